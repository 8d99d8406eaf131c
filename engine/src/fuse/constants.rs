//! Constants: one copy of each, numbers inside the operations that read them, and what depends on nothing else
//! computed.
//!
//! A permuted constant stays a view: the plan packs it from where it lies, and a copy would take memory.

use super::edit::Edit;
use super::evaluate::{evaluate, load};
use super::simplify::{Simplified, simplify};
use crate::graph::{Chain, Data, Op, Src, ValueId};
use crate::tensor::DType;
use std::collections::HashMap;

/// Values of more elements are left to the device, which is faster at them.
const LARGEST_ELEMENTS: usize = 1 << 16;

pub(super) fn run(edit: &mut Edit<'_>) {
    let first = first_of_each(edit);
    for at in edit.places() {
        share(edit, at, &first);
        match edit.node(at).map(|node| &node.op) {
            Some(Op::Pointwise(_)) => tidy(edit, at),
            Some(Op::Cast) => cast(edit, at),
            Some(Op::Reshape) => reshape(edit, at),
            _ => {}
        }
    }
}

/// For each constant the first of the same dtype, shape and bytes.
fn first_of_each(edit: &Edit<'_>) -> HashMap<ValueId, ValueId> {
    let mut known = HashMap::new();
    let mut first = HashMap::new();
    for at in edit.places() {
        let Some(node) = edit.node(at) else { continue };
        for &id in &node.inputs {
            let value = edit.value(id);
            let Some(data) = &value.constant else { continue };
            if first.contains_key(&id) {
                continue;
            }
            // What is still in a file is told apart by its place there: weights are not read here.
            let key = (value.dtype, value.shape.clone(), data.identity());
            first.insert(id, *known.entry(key).or_insert(id));
        }
    }
    first
}

fn share(edit: &mut Edit<'_>, at: usize, first: &HashMap<ValueId, ValueId>) {
    let Some(node) = edit.node(at) else { return };
    let inputs: Vec<ValueId> = node.inputs.iter().map(|id| first.get(id).copied().unwrap_or(*id)).collect();
    if inputs != node.inputs {
        let op = node.op.clone();
        edit.set(at, op, inputs);
    }
}

/// A pointwise node with each operand once, numbers in place and its chain simplified; or what it comes to.
pub(super) fn tidy(edit: &mut Edit<'_>, at: usize) {
    let Some(node) = edit.node(at) else { return };
    let (Op::Pointwise(chain), Some(y)) = (&node.op, edit.output(at)) else { return };
    let (chain, inputs) = with_numbers(edit, chain, &node.inputs);
    match simplify(&chain) {
        Simplified::Chain(simple) => {
            let (chain, inputs) = used_only(simple, &inputs);
            if inputs.iter().all(|id| edit.is_constant(*id)) {
                compute(edit, at, y, &chain, &inputs);
            } else {
                edit.set(at, Op::Pointwise(chain), inputs);
            }
        }
        Simplified::Source(Src::Const(_)) => compute(edit, at, y, &chain, &inputs),
        Simplified::Source(Src::Operand(operand)) => {
            let x = inputs[operand as usize];
            let same = edit.shape(x) == edit.shape(y) && edit.value(x).dtype == edit.value(y).dtype;
            if same && !edit.is_constant(x) && edit.replace_value(y, x) {
                edit.fused(at);
            }
        }
        Simplified::Source(Src::Reg(_)) => {}
    }
}

/// The chain with constants of one number inside, on each other operand once.
fn with_numbers(edit: &Edit<'_>, chain: &Chain, inputs: &[ValueId]) -> (Chain, Vec<ValueId>) {
    let mut unique: Vec<ValueId> = vec![];
    let sources: Vec<Src> = inputs
        .iter()
        .map(|id| match edit.value(*id).scalar() {
            Some(number) => Src::Const(number),
            None => Src::Operand(place_of(&mut unique, *id)),
        })
        .collect();
    let instrs = chain.instrs.iter().map(|instr| {
        instr.map(|src| match src {
            Src::Operand(at) => sources[at as usize],
            src => src,
        })
    });
    (Chain { instrs: instrs.collect() }, unique)
}

/// Where `id` stands among `unique`, at the end if it is new.
pub(super) fn place_of(unique: &mut Vec<ValueId>, id: ValueId) -> u16 {
    let known = unique.iter().position(|other| *other == id);
    known.unwrap_or_else(|| {
        unique.push(id);
        unique.len() - 1
    }) as u16
}

/// The chain on those of its operands that it reads.
pub(super) fn used_only(chain: Chain, inputs: &[ValueId]) -> (Chain, Vec<ValueId>) {
    let mut used: Vec<ValueId> = vec![];
    let instrs = chain.instrs.iter().map(|instr| {
        instr.map(|src| match src {
            Src::Operand(at) => Src::Operand(place_of(&mut used, inputs[at as usize])),
            src => src,
        })
    });
    let instrs = instrs.collect();
    (Chain { instrs }, used)
}

/// Makes a constant of a node that reads only constants.
fn compute(edit: &mut Edit<'_>, at: usize, y: ValueId, chain: &Chain, inputs: &[ValueId]) {
    let value = edit.value(y);
    if value.elements() > LARGEST_ELEMENTS {
        return edit.declined(at, format!("{} elements are known ahead, but many", value.elements()));
    }
    let loaded: Option<Vec<(&[usize], Vec<f32>)>> =
        inputs.iter().map(|id| Some((edit.shape(*id), load(edit.value(*id))?))).collect();
    let Some(loaded) = loaded else { return };
    let operands: Vec<(&[usize], &[f32])> =
        loaded.iter().map(|(shape, elements)| (*shape, elements.as_slice())).collect();
    let results = evaluate(chain, &operands, &value.shape);
    let bytes: Vec<u8> = match value.dtype {
        DType::F32 => results.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::Bool => results.iter().map(|x| u8::from(*x != 0.0)).collect(),
        _ => return,
    };
    constant(edit, at, y, Data::Bytes(bytes.into()));
}

/// An output stays a node: nothing else would copy it to where the caller expects it.
fn constant(edit: &mut Edit<'_>, at: usize, y: ValueId, data: Data) {
    if !edit.is_output(y) {
        edit.fused(at);
        edit.make_constant(y, data);
    }
}

/// Small constants converted to f32.
fn cast(edit: &mut Edit<'_>, at: usize) {
    let (Some(node), Some(y)) = (edit.node(at), edit.output(at)) else { return };
    let (x, y_dtype) = (edit.value(node.inputs[0]), edit.value(y).dtype);
    let Some(bytes) = x.small_bytes(LARGEST_ELEMENTS) else { return };
    let eight = |b: &[u8]| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
    let floats: Vec<f32> = match (x.dtype, y_dtype) {
        (DType::Bool, DType::F32) => bytes.iter().map(|byte| f32::from(*byte)).collect(),
        (DType::I32, DType::F32) => {
            bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]) as f32).collect()
        }
        (DType::I64, DType::F32) => bytes.chunks_exact(8).map(|b| eight(b) as f32).collect(),
        _ => return,
    };
    let bytes: Vec<u8> = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
    constant(edit, at, y, Data::Bytes(bytes.into()));
}

/// A reshaped constant is the same bytes, unless others read it in its own shape: it would be on the device twice.
fn reshape(edit: &mut Edit<'_>, at: usize) {
    const SMALL_BYTES: usize = 4096;
    let (Some(node), Some(y)) = (edit.node(at), edit.output(at)) else { return };
    let x = node.inputs[0];
    let alone = edit.only_reader(x).is_some() || edit.value(x).bytes() <= SMALL_BYTES;
    if let Some(data) = edit.value(x).constant.clone().filter(|_| alone) {
        constant(edit, at, y, data);
    }
}
