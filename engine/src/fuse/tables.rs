//! What is done to every row that is looked up in a small table is done to the table, once, ahead.

use super::edit::Edit;
use super::evaluate::{evaluate, load};
use crate::graph::{Node, Op, ValueId};
use crate::tensor::DType;

/// Tables of more elements are left: they would be computed here one element after the other.
const LARGEST_ELEMENTS: usize = 1 << 16;

pub(super) fn run(edit: &mut Edit<'_>) {
    for at in edit.places() {
        if let Some((axis, inputs, floats)) = ahead(edit, at) {
            let value = edit.value(inputs[0]).clone();
            let table = edit.add_floats(&value.name, &value.shape, &floats);
            edit.set(at, Op::Gather(axis), vec![table, inputs[1]]);
            edit.fused(at);
        }
    }
}

/// The look-up that the chain at `at` follows, and what the chain makes of its table.
fn ahead(edit: &Edit<'_>, at: usize) -> Option<(usize, Vec<ValueId>, Vec<f32>)> {
    let node = edit.node(at)?;
    let (Op::Pointwise(chain), y) = (&node.op, edit.output(at)?) else { return None };
    let mut looked_up = node.inputs.iter().filter(|id| !edit.is_constant(**id));
    let row = *looked_up.next()?;
    let Node { op: Op::Gather(0), inputs, .. } = edit.made_by(row)? else { return None };
    let &[table, indices] = inputs.as_slice() else { return None };
    let rows = edit.value(table);
    let fits = looked_up.next().is_none()
        && edit.only_reader(row) == Some(at)
        && edit.only_reader(table).is_some()
        && edit.shape(row) == edit.shape(y)
        && (rows.dtype, edit.value(y).dtype) == (DType::F32, DType::F32)
        && rows.elements() <= LARGEST_ELEMENTS.min(edit.value(y).elements());
    if !fits {
        return None;
    }
    // The indices' axes stand where the table has its first; nothing else may vary along them.
    let leading = edit.shape(indices).len();
    let mut operands = vec![];
    for &id in &node.inputs {
        let shape = edit.shape(id);
        if id == row {
            operands.push((rows.shape.to_vec(), load(rows)?));
        } else if shape[..leading].iter().all(|size| *size == 1) {
            operands.push(([&[1], &shape[leading..]].concat(), load(edit.value(id))?));
        } else {
            return None;
        }
    }
    let operands: Vec<(&[usize], &[f32])> =
        operands.iter().map(|(shape, floats)| (shape.as_slice(), floats.as_slice())).collect();
    Some((0, inputs.clone(), evaluate(chain, &operands, &rows.shape)))
}
