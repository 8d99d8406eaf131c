//! Products of one value with several constants → one product with all of them side by side, whose parts are views:
//! queries, keys and values of attention, where a device is faster at one large product than at several small ones.

use super::edit::Edit;
use crate::graph::{Data, Einsum, Op, Part, Value, ValueId};
use crate::tensor::{DType, Shape};
use std::collections::HashMap;

/// Products farther apart stay apart: the value that they make together lives from the first one to the last reader, and the
/// keys of every layer of a decoder would be there at once.
const SPAN: usize = 32;

/// Parts begin at multiples of so many elements, so that whoever reads them can move 16 bytes at a time.
const GRAIN: usize = 8;

pub(super) fn run(edit: &mut Edit<'_>) {
    if !edit.preferences.joined_products {
        return;
    }
    // The family that each kin's next product joins.
    let (mut families, mut all): (HashMap<Kin, usize>, Vec<Vec<usize>>) = (HashMap::new(), vec![]);
    for at in edit.places() {
        let Some(kin) = kin(edit, at) else { continue };
        let family = families.entry(kin).or_insert_with(|| {
            all.push(vec![]);
            all.len() - 1
        });
        if all[*family].first().is_some_and(|first| at - first > SPAN) {
            all.push(vec![]);
            *family = all.len() - 1;
        }
        all[*family].push(at);
    }
    for family in all.iter().filter(|family| family.len() > 1) {
        join(edit, family);
    }
}

/// What products have in common that can be one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kin {
    input: ValueId,
    labels: [Vec<char>; 3],
    /// The second input's axes but for the last.
    rows: Shape,
    bias: bool,
    /// The chain that follows, which reads nothing else; as text, since it holds floats.
    chain: String,
}

/// What the node at a place has in common with its siblings, if it can have any: its constant's last axis is the
/// output's last, and nobody outside wants its output in memory of its own.
fn kin(edit: &Edit<'_>, at: usize) -> Option<Kin> {
    let node = edit.node(at)?;
    let Op::Einsum(einsum @ Einsum { a, b, c, epilogue }) = &node.op else { return None };
    let (input, constant, output) = (node.inputs[0], node.inputs[1], edit.output(at)?);
    let bias = epilogue.bias.then(|| node.inputs[2]);
    let column = columns(einsum)?;
    let plain = node.inputs.len() == 2 + usize::from(epilogue.bias)
        && edit.is_constant(constant)
        && bias.is_none_or(|bias| edit.is_constant(bias) && edit.shape(bias).len() == 1)
        && !edit.is_constant(input)
        && !edit.is_output(output)
        && edit.value(constant).dtype == DType::F32
        && edit.shape(constant).last()?.is_multiple_of(GRAIN);
    let others =
        |labels: &[char]| labels.iter().map(|label| if *label == column { ' ' } else { *label }).collect();
    plain.then(|| Kin {
        input,
        labels: [others(a), others(b), others(c)],
        rows: edit.shape(constant)[..b.len() - 1].into(),
        bias: epilogue.bias,
        chain: format!("{:?}", epilogue.chain),
    })
}

/// The label that is last of the second input and of the output, and not of the first, where it is the only such.
fn columns(Einsum { a, b, c, .. }: &Einsum) -> Option<char> {
    let column = *b.last()?;
    let own = |label: &&char| !a.contains(*label);
    (c.last() == Some(&column) && b.iter().filter(own).count() == 1 && !a.contains(&column)).then_some(column)
}

/// The first of the family makes all of it, and each former output is a slice of that.
fn join(edit: &mut Edit<'_>, family: &[usize]) {
    let Some(&first) = family.first() else { return };
    let Some(node) = edit.node(first).cloned() else { return };
    let Op::Einsum(einsum) = node.op else { return };
    let made: Vec<(usize, ValueId, usize)> = family
        .iter()
        .filter_map(|at| {
            let output = edit.output(*at)?;
            Some((*at, output, *edit.shape(output).last()?))
        })
        .collect();
    let inputs_at = |place: usize| -> Vec<ValueId> {
        family.iter().filter_map(|at| edit.node(*at)?.inputs.get(place).copied()).collect()
    };
    let (constants, biases) = (inputs_at(1), if einsum.epilogue.bias { inputs_at(2) } else { vec![] });
    let mut inputs = vec![node.inputs[0], beside(edit, &constants)];
    if !biases.is_empty() {
        inputs.push(beside(edit, &biases));
    }
    let mut shape: Shape = edit.shape(made[0].1).into();
    let axis = shape.len() - 1;
    shape[axis] = made.iter().map(|(.., columns)| columns).sum();
    let all = edit.add_like(made[0].1, &shape);
    let mut start = 0;
    edit.put(first, Op::Einsum(einsum), inputs, vec![all]);
    for (at, output, columns) in made {
        let slice = Op::Slice { axis, start, step: 1 };
        if at == first {
            edit.insert_after(first, slice, all, output);
        } else {
            edit.set(at, slice, vec![all]);
        }
        start += columns;
    }
    edit.fused(first);
}

/// Constants of as many rows as one.
fn beside(edit: &mut Edit<'_>, constants: &[ValueId]) -> ValueId {
    let mut shape: Shape = edit.shape(constants[0]).into();
    let (mut columns, mut parts) = (0, vec![]);
    for id in constants {
        let value = edit.value(*id);
        let own = value.shape.last().copied().unwrap_or(1);
        let data = value.constant.clone().unwrap_or(Data::Bytes(bytes::Bytes::new()));
        parts.push(Part { data, row: own * value.dtype.size_bytes().unwrap_or(1) });
        columns += own;
    }
    if let Some(last) = shape.last_mut() {
        *last = columns;
    }
    let name = edit.value(constants[0]).name.clone();
    let constant = Some(Data::Beside(parts.into()));
    edit.add_value(Value { name, dtype: DType::F32, shape, constant })
}
