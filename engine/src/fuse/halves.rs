//! Values kept as f16, where a device wants that: half the bytes to move, and products on its matrix units.
//!
//! f16 ends at 65504 and has eleven bits. Every op computes in f32 all the same, so what counts is which values are
//! stored: those of products, images, norms and activations are; those that a model lets grow (exponentials, powers, sums
//! of many, numbers near the ends of f32 such as the masks of attention) stay f32, and so does what is computed of them
//! until an op brings it back into range. Whole numbers become f32 first. What callers bring and get stays as it is.
//!
//! A chain reads and writes each operand in its own dtype. All other ops take one for all, and get a conversion where
//! an operand has another.

use super::Precision;
use super::edit::Edit;
use crate::graph::{Binary, Chain, Instr, Node, Op, PoolKind, Reducer, Src, Unary, Value, ValueId};
use crate::tensor::DType;
use std::collections::{HashMap, HashSet};

pub(super) fn run(edit: &mut Edit<'_>) {
    if edit.preferences.precision != Precision::F16 {
        return;
    }
    let stored = decide(edit);
    let mut halved = HashSet::new();
    for at in edit.places() {
        let Some(y) = edit.output(at).filter(|y| stored.get(y) == Some(&Stored::Half)) else { continue };
        edit.retype(y, DType::F16);
        edit.fused(at);
        halved.insert(y);
    }
    let mut converted = HashMap::new();
    for at in edit.places() {
        convert(edit, at, &halved, &stored, &mut converted);
    }
}

/// How a value of f32 numbers is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    /// As f16.
    Half,
    /// As f32, since it may be out of the range of f16.
    Wide,
    /// As f32, since a caller brings it or gets it, or the model's file has it so; f16 could hold it.
    AsGiven,
}

/// How each f32 value that a node makes is stored.
fn decide(edit: &Edit<'_>) -> HashMap<ValueId, Stored> {
    let mut stored: HashMap<ValueId, Stored> = HashMap::new();
    for at in edit.places() {
        let (Some(node), Some(y)) = (edit.node(at), edit.output(at)) else { continue };
        if edit.value(y).dtype != DType::F32 {
            continue;
        }
        let inputs: Vec<Stored> =
            operands(edit, node).map(|id| stored.get(&id).copied().unwrap_or(Stored::AsGiven)).collect();
        let wide = inputs.contains(&Stored::Wide);
        let half = inputs.contains(&Stored::Half);
        let own = match &node.op {
            _ if edit.preferences.wide.contains(&node.name) => Stored::Wide,
            Op::Pointwise(chain) if grows(chain) || (wide && !is_bounded(chain)) => Stored::Wide,
            Op::Pointwise(_) => Stored::Half,
            Op::Conv(_) | Op::ConvTranspose(_) | Op::Einsum(_) | Op::Attention(_) if !wide => Stored::Half,
            // In range whatever the input is, which is of the same dtype.
            Op::Softmax { .. } | Op::Norm(_) => {
                if wide {
                    Stored::AsGiven
                } else {
                    Stored::Half
                }
            }
            op if keeps_range(op) && !wide => {
                if half {
                    Stored::Half
                } else {
                    Stored::AsGiven
                }
            }
            Op::Cast if edit.value(node.inputs[0]).dtype == DType::Bool => Stored::AsGiven,
            _ => Stored::Wide,
        };
        let own = if edit.is_output(y) && own == Stored::Half { Stored::AsGiven } else { own };
        stored.insert(y, own);
    }
    stored
}

/// Whether what an op makes is no larger than what it reads.
fn keeps_range(op: &Op) -> bool {
    match op {
        Op::Reduce(reducer, _) => matches!(reducer, Reducer::Mean | Reducer::Max | Reducer::Min),
        Op::Pool(pool) => pool.kind != PoolKind::Sum,
        Op::Resize(_) | Op::Concat(_) | Op::Slice { .. } | Op::Pad(_) | Op::Copy | Op::Gather(_) => true,
        Op::Reshape | Op::Permute(_) | Op::Broadcast => true,
        _ => false,
    }
}

/// What a node reads of f32 numbers that are no parameters of its own.
fn operands<'a>(edit: &'a Edit<'_>, node: &'a Node) -> impl Iterator<Item = ValueId> {
    let dtypes = |id: &ValueId| matches!(edit.value(*id).dtype, DType::F32 | DType::F16);
    let own = match &node.op {
        // Scale and shift are f32 whatever the input is.
        Op::Norm(_) | Op::Gather(_) => 1,
        // What is added to the scores is f32 too.
        Op::Attention(_) => 3,
        _ => node.inputs.len(),
    };
    node.inputs[..own].iter().copied().filter(move |id| dtypes(id) && !is_parameter(edit, node, *id))
}

/// Whether an operand is a constant that the node packs as it likes, or a bias.
fn is_parameter(edit: &Edit<'_>, node: &Node, id: ValueId) -> bool {
    let at = |place: usize| node.inputs.get(place) == Some(&id);
    match &node.op {
        Op::Conv(conv) | Op::ConvTranspose(conv) => at(1) || (conv.epilogue.bias && at(2)),
        Op::Einsum(einsum) => (at(1) && edit.is_constant(id)) || (einsum.epilogue.bias && at(2)),
        _ => false,
    }
}

/// Whether a chain's result may be out of the range of f16 though its operands are not.
fn grows(chain: &Chain) -> bool {
    const LARGE: f32 = 1e4;
    let large = |src: &Src| matches!(src, Src::Const(number) if number.abs() > LARGE);
    chain.instrs.iter().any(|instr| match instr {
        Instr::Unary(op, x) => {
            large(x)
                || matches!(
                    op,
                    Unary::Exp
                        | Unary::Sinh
                        | Unary::Cosh
                        | Unary::Tan
                        | Unary::Square
                        | Unary::Recip
                        | Unary::Rsqrt
                        | Unary::Ln
                        | Unary::FromI32
                )
        }
        Instr::Binary(Binary::Pow, ..) => true,
        // A square.
        Instr::Binary(Binary::Mul, x, y) if x == y => true,
        // A clamp's bound is no value until something is as large.
        Instr::Binary(Binary::Min | Binary::Max, ..) => false,
        Instr::Binary(Binary::Div, x, y) => {
            large(x) || !matches!(y, Src::Const(number) if number.abs() >= 1.0)
        }
        Instr::Binary(op, x, y) if is_arithmetic(*op) => large(x) || large(y),
        Instr::Binary(..) => false,
        Instr::Select(_, y, z) => large(y) || large(z),
    })
}

/// Whether a chain ends with a function of a bounded range.
fn is_bounded(chain: &Chain) -> bool {
    use Unary::{Atan, Cos, Erf, Sigmoid, Sign, Sin, Tanh};
    let last = chain.instrs.last();
    matches!(last, Some(Instr::Unary(Atan | Cos | Erf | Sigmoid | Sign | Sin | Tanh, _)))
}

fn is_arithmetic(op: Binary) -> bool {
    matches!(op, Binary::Add | Binary::Sub | Binary::Mul | Binary::LeakyRelu)
}

/// Gives a node that takes one dtype for all its operands those that have another converted, and what a caller gets in the
/// caller's dtype. `converted` knows the conversions that there are.
fn convert(
    edit: &mut Edit<'_>,
    at: usize,
    halved: &HashSet<ValueId>,
    stored: &HashMap<ValueId, Stored>,
    converted: &mut HashMap<(ValueId, DType), ValueId>,
) {
    let (Some(node), Some(y)) = (edit.node(at), edit.output(at)) else { return };
    if matches!(node.op, Op::Pointwise(_) | Op::Cast) {
        return;
    }
    let first = operands(edit, node).next();
    let host = matches!(node.op, Op::Host(_));
    let wanted = match edit.value(y).dtype {
        _ if host => DType::F32,
        DType::F32
            if edit.is_output(y) && stored.get(&y) != Some(&Stored::Wide) && computes_in_half(edit, node) =>
        {
            DType::F16
        }
        dtype @ (DType::F32 | DType::F16) => dtype,
        // A position or a count: as its input is.
        _ => match first {
            Some(first) => edit.value(first).dtype,
            None => return,
        },
    };
    let (op, mut inputs) = (node.op.clone(), node.inputs.clone());
    // A host step may well want an f16 that is the model's own.
    let differs = |id: &ValueId| edit.value(*id).dtype != wanted && (!host || halved.contains(id));
    let other: Vec<ValueId> = operands(edit, node).filter(differs).collect();
    for id in &other {
        let known = converted.get(&(*id, wanted)).copied();
        let new = known.unwrap_or_else(|| {
            let new = edit.add_value(Value { dtype: wanted, constant: None, ..edit.value(*id).clone() });
            edit.insert_before(at, Op::Cast, vec![*id], new);
            converted.insert((*id, wanted), new);
            new
        });
        inputs.iter_mut().filter(|input| **input == *id).for_each(|input| *input = new);
    }
    if wanted == DType::F16 && edit.value(y).dtype == DType::F32 {
        let made = edit.add_value(Value { dtype: wanted, ..edit.value(y).clone() });
        edit.put(at, op, inputs, vec![made]);
        edit.insert_after(at, Op::Cast, made, y);
        converted.insert((y, wanted), made);
    } else if !other.is_empty() {
        edit.set(at, op, inputs);
    }
}

/// Whether a node whose result a caller gets would otherwise store it as f16.
fn computes_in_half(edit: &Edit<'_>, node: &Node) -> bool {
    let product = matches!(node.op, Op::Conv(_) | Op::ConvTranspose(_) | Op::Einsum(_) | Op::Attention(_));
    let mut operands = operands(edit, node);
    let half = |id: ValueId| edit.value(id).dtype == DType::F16;
    if product { operands.all(|id| half(id) || edit.maker(id).is_none()) } else { operands.any(half) }
}
