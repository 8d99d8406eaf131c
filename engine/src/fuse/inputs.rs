//! A number that multiplies the input of a product multiplies its weights instead, or else its result: as the
//! scale of a query before it meets the keys, or of pixels before the first convolution.

use super::edit::Edit;
use super::scales::{Channels, multiplied_by, weights};
use crate::graph::{Binary, Chain, Instr, Op, Src, ValueId};

pub(super) fn run(edit: &mut Edit<'_>) {
    for at in edit.places() {
        for place in 0..2 {
            if let Some((x, number)) = scaled_input(edit, at, place) {
                take(edit, at, place, x, number);
            }
        }
    }
}

/// What the product reads at that place, without the number that multiplies it.
fn scaled_input(edit: &Edit<'_>, at: usize, place: usize) -> Option<(ValueId, f32)> {
    let node = edit.node(at)?;
    let epilogue = node.op.epilogue()?;
    let scaled = *node.inputs.get(place)?;
    let (x, number) = edit.with_number(scaled, Binary::Mul)?;
    let ours = edit.only_reader(scaled) == Some(at) && edit.shape(x) == edit.shape(scaled);
    // Where a chain or another product ends with the multiplication, it costs nothing.
    let free = edit.made_by(x).is_some_and(|node| {
        matches!(node.op, Op::Pointwise(_)) || node.op.epilogue().is_some() && edit.only_reader(x).is_some()
    });
    (ours && !free && epilogue.chain.is_none()).then_some((x, number))
}

fn take(edit: &mut Edit<'_>, at: usize, place: usize, x: ValueId, number: f32) {
    let Some(node) = edit.node(at) else { return };
    let (mut op, mut inputs) = (node.op.clone(), node.inputs.clone());
    let Some(channels) = Channels::of(edit, node) else { return };
    let alone = |id: ValueId| edit.only_reader(id).is_some();
    let weights = weights(edit, at, node, &channels).filter(|weights| alone(weights.constant));
    inputs[place] = x;
    let Some(epilogue) = op.epilogue_mut() else { return };
    match weights {
        Some(weights) => {
            let Some(id) = multiplied_by(edit, &weights, number) else { return };
            if !weights.replace(edit, &mut inputs, id) {
                return;
            }
        }
        None if epilogue.bias => {
            return edit.declined(at, "the bias would be multiplied too, and the weights cannot be");
        }
        None if !edit.preferences.epilogue_chains => return,
        None => {
            let instrs = vec![Instr::Binary(Binary::Mul, Src::Operand(0), Src::Const(number))];
            epilogue.chain = Some(Chain { instrs });
        }
    }
    edit.set(at, op, inputs);
    edit.fused(at);
}
