//! Views behind the pointwise operations on them: product → view → operation becomes product → operation → view, so
//! that the operation can go into the product.

use super::edit::Edit;
use super::noops;
use crate::graph::{Node, Op, ValueId};

pub(super) fn run(edit: &mut Edit<'_>) {
    // A moved view may meet its inverse, and what read both then reads one value: more can move.
    const ROUNDS: usize = 4;
    for _ in 0..ROUNDS {
        let mut moved = false;
        for at in edit.places() {
            if let Some(moves) = sinkable(edit, at) {
                sink(edit, at, moves);
                moved = true;
            }
        }
        if !moved {
            break;
        }
        noops::run(edit);
    }
}

/// An operation whose views can go behind it.
struct Moves {
    /// The view.
    view: Op,
    /// The place of the last of the views, which the operation takes: all that it reads is made before.
    view_at: usize,
    /// The shape before the view.
    from: Vec<usize>,
    /// What the operation will read; constants under the shape given.
    inputs: Vec<(ValueId, Option<Vec<usize>>)>,
}

/// The operation takes the place of the view, and the view that of the operation.
fn sink(edit: &mut Edit<'_>, at: usize, moves: Moves) {
    let (Some(node), Some(y)) = (edit.node(at), edit.output(at)) else { return };
    let op = node.op.clone();
    let inputs = moves.inputs.into_iter().map(|(id, shape)| match shape {
        Some(shape) => edit.add_reshaped(id, &shape),
        None => id,
    });
    let inputs = inputs.collect();
    let computed = edit.add_like(y, &moves.from);
    edit.put(moves.view_at, op, inputs, vec![computed]);
    edit.set(at, moves.view, vec![computed]);
    edit.fused(at);
}

fn sinkable(edit: &Edit<'_>, at: usize) -> Option<Moves> {
    let node = edit.node(at)?;
    let Op::Pointwise(_) = node.op else { return None };
    let y = edit.output(at)?;
    let places = node.inputs.iter().filter(|id| !edit.is_constant(**id)).map(|id| edit.maker(*id));
    let view_at = places.collect::<Option<Vec<usize>>>()?.into_iter().max()?;
    let Node { op: view @ (Op::Reshape | Op::Permute(_)), inputs: viewed, .. } = edit.node(view_at)? else {
        return None;
    };
    let from = edit.shape(*viewed.first()?);
    let mut inputs = vec![];
    let mut useful = false;
    for &id in &node.inputs {
        if edit.is_constant(id) {
            inputs.push((id, Some(constant_before(view, edit.shape(id), edit.shape(y), from)?)));
            continue;
        }
        let made = edit.made_by(id)?;
        let source = *made.inputs.first()?;
        let alike = match (&made.op, view) {
            (Op::Reshape, Op::Reshape) => true,
            (Op::Permute(one), Op::Permute(other)) => one == other,
            _ => false,
        };
        let ours = edit.only_reader(id) == Some(at) && edit.shape(id) == edit.shape(y);
        if !alike || !ours || edit.shape(source) != from {
            return None;
        }
        // A view of what no operation could be fused with would move for nothing.
        useful |= computed(edit, source);
        inputs.push((source, None));
    }
    useful.then(|| Moves { view: view.clone(), view_at, from: from.to_vec(), inputs })
}

/// Whether an operation can be fused with what makes a value, perhaps behind more views that can move.
fn computed(edit: &Edit<'_>, mut id: ValueId) -> bool {
    while let Some(node) = edit.made_by(id) {
        match &node.op {
            Op::Conv(_) | Op::ConvTranspose(_) | Op::Einsum(_) | Op::Pointwise(_) | Op::Reduce(..) => {
                return true;
            }
            Op::Reshape | Op::Permute(_) if edit.only_reader(id).is_some() => id = node.inputs[0],
            _ => return false,
        }
    }
    false
}

/// The shape before the view of a constant that broadcasts after it; `None` where there is none.
fn constant_before(view: &Op, constant: &[usize], to: &[usize], from: &[usize]) -> Option<Vec<usize>> {
    let mut longer = constant.iter().enumerate().filter(|(_, size)| **size != 1);
    let mut shape = vec![1; from.len()];
    if let Some((axis, &size)) = longer.next() {
        let before = match view {
            Op::Permute(order) => order[axis],
            _ => {
                let skipped = |shape: &[usize], axis: usize| shape[..axis].iter().product::<usize>();
                (0..from.len()).find(|at| from[*at] == size && skipped(from, *at) == skipped(to, axis))?
            }
        };
        shape[before] = size;
    }
    // Constants along two axes would have to be copied in another order.
    longer.next().is_none().then_some(shape)
}
