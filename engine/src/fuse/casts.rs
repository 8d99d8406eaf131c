//! Conversions as chains: a bool is loaded as 0 or 1, a whole number by an operation of its own. So a comparison,
//! its conversion and what follows can become one step.

use super::constants::place_of;
use super::edit::Edit;
use crate::graph::{Binary, Chain, Instr, Op, Src, Unary, ValueId};
use crate::tensor::DType;

pub(super) fn run(edit: &mut Edit<'_>) {
    for at in edit.places() {
        match edit.node(at).map(|node| &node.op) {
            Some(Op::Cast) => convert(edit, at),
            Some(Op::Pointwise(_)) => load(edit, at),
            _ => {}
        }
    }
}

/// A conversion that is an operation of chains, or that the operation before can make itself.
fn convert(edit: &mut Edit<'_>, at: usize) {
    let (Some(node), Some(y)) = (edit.node(at), edit.output(at)) else { return };
    let x = node.inputs[0];
    let instr = match (edit.value(x).dtype, edit.value(y).dtype) {
        (DType::I32, DType::F32) => Instr::Unary(Unary::FromI32, Src::Operand(0)),
        (DType::F32, DType::Bool) => Instr::Binary(Binary::NotEqual, Src::Operand(0), Src::Const(0.0)),
        (DType::Bool, DType::F32) => {
            // The comparison's own result is 0 or 1: it may as well be stored as f32.
            if let Some(made) = edit.made_by(x)
                && let Op::Pointwise(chain) = &made.op
                && edit.only_reader(x) == Some(at)
            {
                let (chain, inputs) = (chain.clone(), made.inputs.clone());
                edit.set(at, Op::Pointwise(chain), inputs);
                edit.fused(at);
            }
            return;
        }
        _ => return,
    };
    edit.set(at, Op::Pointwise(Chain { instrs: vec![instr] }), vec![x]);
    edit.fused(at);
}

/// A chain that reads a bool converted to f32 reads the bool.
fn load(edit: &mut Edit<'_>, at: usize) {
    let Some(node) = edit.node(at) else { return };
    let Op::Pointwise(chain) = &node.op else { return };
    let sources: Vec<ValueId> = node.inputs.iter().map(|id| bool_before(edit, *id).unwrap_or(*id)).collect();
    if sources == node.inputs {
        return;
    }
    let mut inputs = vec![];
    let places: Vec<u16> = sources.iter().map(|id| place_of(&mut inputs, *id)).collect();
    let instrs = chain.instrs.iter().map(|instr| {
        instr.map(|src| match src {
            Src::Operand(at) => Src::Operand(places[at as usize]),
            src => src,
        })
    });
    let chain = Chain { instrs: instrs.collect() };
    edit.set(at, Op::Pointwise(chain), inputs);
    edit.fused(at);
}

fn bool_before(edit: &Edit<'_>, id: ValueId) -> Option<ValueId> {
    let node = edit.made_by(id).filter(|node| matches!(node.op, Op::Cast))?;
    let x = *node.inputs.first()?;
    (edit.value(x).dtype == DType::Bool && edit.value(id).dtype == DType::F32).then_some(x)
}
