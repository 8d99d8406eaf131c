//! An operation on a concatenation moves to its parts, where most of them are made by what takes it in for nothing.
//! The parts can then be made where they belong in the concatenation, and nobody walks over it again.

use super::edit::Edit;
use crate::graph::{Node, Op, ValueId};

pub(super) fn run(edit: &mut Edit<'_>) {
    for at in edit.places() {
        let Some((axis, parts)) = concatenated(edit, at) else { continue };
        let Some(node) = edit.node(at) else { continue };
        let (op, Some(y)) = (node.op.clone(), edit.output(at)) else { continue };
        let mut moved = vec![];
        for part in parts {
            let shape = edit.shape(part).to_vec();
            let value = edit.add_like(y, &shape);
            edit.insert_before(at, op.clone(), vec![part], value);
            moved.push(value);
        }
        edit.set(at, Op::Concat(axis), moved);
        edit.fused(at);
    }
}

/// The axis and parts of a concatenation that only the operation at `at` reads, on numbers besides.
fn concatenated(edit: &Edit<'_>, at: usize) -> Option<(usize, Vec<ValueId>)> {
    let node = edit.node(at).filter(|node| matches!(node.op, Op::Pointwise(_)))?;
    let &[whole] = node.inputs.as_slice() else { return None };
    let concat = edit.maker(whole)?;
    let Node { op: Op::Concat(axis), inputs: parts, .. } = edit.node(concat)? else { return None };
    if edit.only_reader(whole) != Some(at) || edit.shape(whole) != edit.shape(edit.output(at)?) {
        return None;
    }
    let takes_it_in = |id: &&ValueId| {
        let op = edit.made_by(**id).map(|node| &node.op);
        let fusible = op.is_some_and(|op| matches!(op, Op::Pointwise(_)) || op.epilogue().is_some());
        fusible && edit.only_reader(**id) == Some(concat)
    };
    let elements = |id: &ValueId| edit.value(*id).elements();
    let taken: Vec<&ValueId> = parts.iter().filter(takes_it_in).collect();
    let most = 2 * taken.iter().map(|id| elements(id)).sum::<usize>() >= elements(&whole);
    // One step is replaced by one for each part that does not take it in.
    (most && taken.len() + 1 >= parts.len()).then(|| (*axis, parts.clone()))
}
