//! Which values are made in place inside a concatenation of them, so that it needs no step.

use crate::graph::{Graph, Op, ValueId};
use std::collections::HashMap;

/// A place inside the output of a concatenation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    /// The concatenation's output.
    pub(super) inside: ValueId,
    /// Along which axis.
    pub(super) axis: usize,
    /// From which index on.
    pub(super) start: usize,
}

/// A home for every value that can have one. Outer concatenations are looked at first, so that an inner one finds
/// its home in the outer.
pub(super) fn homes(graph: &Graph) -> HashMap<ValueId, Home> {
    let makers = graph.makers();
    let mut homes = HashMap::new();
    for node in graph.nodes.iter().rev() {
        let Op::Concat(axis) = node.op else { continue };
        let mut start = 0;
        for input in &node.inputs {
            let maker = makers[input.0 as usize].map(|at| &graph.nodes[at].op);
            let twice = node.inputs.iter().filter(|other| *other == input).count() > 1;
            let fits = maker.is_some_and(can_write_anywhere) && !twice && !graph.outputs.contains(input);
            if fits && !homes.contains_key(input) {
                homes.insert(*input, Home { inside: node.outputs[0], axis, start });
            }
            start += graph.shape(*input)[axis];
        }
    }
    homes
}

/// Whether the op makes its output itself, at strides that it is told.
fn can_write_anywhere(op: &Op) -> bool {
    match op {
        Op::Reshape | Op::Permute(_) | Op::Slice { .. } | Op::Broadcast | Op::Host(_) => false,
        Op::Conv(_)
        | Op::ConvTranspose(_)
        | Op::Einsum(_)
        | Op::Attention(_)
        | Op::Pointwise(_)
        | Op::Reduce(..)
        | Op::Softmax { .. }
        | Op::Norm(_)
        | Op::Pool(_)
        | Op::Resize(_)
        | Op::Concat(_)
        | Op::Pad(_)
        | Op::Gather(_)
        | Op::Cast
        | Op::Copy => true,
    }
}
