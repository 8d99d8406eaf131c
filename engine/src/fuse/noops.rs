//! What changes nothing goes, and of two views in a row one is left.

use super::constants::tidy;
use super::edit::Edit;
use crate::graph::{Graph, Node, Op, Reducer, Text, Value, ValueId};
use crate::tensor::DType;
use smallvec::SmallVec;
use std::collections::HashMap;

pub(super) fn run(edit: &mut Edit<'_>) {
    let mut known: HashMap<(String, Vec<ValueId>, Vec<usize>), ValueId> = HashMap::new();
    for at in edit.places() {
        if let Some(Op::Pointwise(_)) = edit.node(at).map(|node| &node.op) {
            tidy(edit, at);
        }
        unbroadcast(edit, at);
        look_up_known(edit, at);
        slice_of_concat(edit, at);
        merge_views(edit, at);
        let Some(node) = edit.node(at) else { continue };
        let Some(y) = edit.output(at) else { continue };
        let nothing = does_nothing(edit.graph(), node).then(|| node.inputs[0]);
        if nothing.is_some_and(|x| edit.replace_value(y, x)) {
            continue;
        }
        // The same again: exporters write some expressions twice, and patterns expect one value.
        let Some(key) = edit.node(at).and_then(|node| key(edit, node, y)) else { continue };
        match known.get(&key) {
            // The first may have died since, read by nobody.
            Some(&twin) if edit.maker(twin).is_some() && edit.replace_value(y, twin) => {}
            _ => {
                known.insert(key, y);
            }
        }
    }
}

/// What tells whether two nodes compute the same; `None` for those whose text does not tell all.
fn key(edit: &Edit<'_>, node: &Node, y: ValueId) -> Option<(String, Vec<ValueId>, Vec<usize>)> {
    let told = matches!(
        node.op,
        Op::Pointwise(_)
            | Op::Reduce(..)
            | Op::Norm(_)
            | Op::Slice { .. }
            | Op::Reshape
            | Op::Permute(_)
            | Op::Cast
    );
    let value = edit.value(y);
    told.then(|| (format!("{} {}", Text(&node.op), value.dtype), node.inputs.clone(), value.shape.to_vec()))
}

/// Whether a node's output is its first input.
fn does_nothing(graph: &Graph, node: &Node) -> bool {
    let (Some(&x), Some(&y)) = (node.inputs.first(), node.outputs.first()) else { return false };
    let (x, y) = (graph.value(x), graph.value(y));
    if x.shape != y.shape || x.dtype != y.dtype {
        return false;
    }
    match &node.op {
        Op::Reshape | Op::Broadcast | Op::Slice { .. } | Op::Pad(_) | Op::Cast => true,
        Op::Permute(order) => order.iter().enumerate().all(|(at, axis)| at == *axis),
        Op::Concat(_) => node.inputs.len() == 1,
        Op::Resize(axes) => axes.is_empty(),
        // Axes of one element, which the shapes being equal tells.
        Op::Reduce(reducer, _) => {
            matches!(reducer, Reducer::Sum | Reducer::Mean | Reducer::Max | Reducer::Min | Reducer::Product)
        }
        _ => false,
    }
}

/// A view of a view as one view of what that shows.
fn merge_views(edit: &mut Edit<'_>, at: usize) {
    while let Some((op, source)) = merged_view(edit, at) {
        edit.set(at, op, vec![source]);
    }
}

fn merged_view(edit: &Edit<'_>, at: usize) -> Option<(Op, ValueId)> {
    let node = edit.node(at)?;
    let x = *node.inputs.first()?;
    match (&node.op, edit.made_by(x)) {
        // The elements stay in order where axes of size 1 move past others.
        (Op::Permute(order), _) if keeps_order(edit.shape(x), order) => Some((Op::Reshape, x)),
        (Op::Reshape, Some(Node { op: Op::Reshape, inputs, .. })) => Some((Op::Reshape, inputs[0])),
        (Op::Permute(second), Some(Node { op: Op::Permute(first), inputs, .. })) => {
            let order: SmallVec<[usize; 6]> = second.iter().map(|axis| first[*axis]).collect();
            Some((Op::Permute(order), inputs[0]))
        }
        _ => None,
    }
}

fn keeps_order(shape: &[usize], order: &[usize]) -> bool {
    let mut longer = order.iter().filter(|axis| shape[**axis] != 1);
    let mut last = None;
    longer.all(|axis| last.replace(*axis).is_none_or(|before| before < *axis))
}

/// Pointwise operations broadcast by themselves.
fn unbroadcast(edit: &mut Edit<'_>, at: usize) {
    let Some(node) = edit.node(at).filter(|node| matches!(node.op, Op::Pointwise(_))) else { return };
    let source = |id: &ValueId| match edit.made_by(*id) {
        Some(Node { op: Op::Broadcast, inputs, .. }) => inputs[0],
        _ => *id,
    };
    let inputs: Vec<ValueId> = node.inputs.iter().map(source).collect();
    if inputs != node.inputs {
        let op = node.op.clone();
        edit.set(at, op, inputs);
    }
}

/// A look-up at indices known ahead, at one distance from each other, is a slice.
fn look_up_known(edit: &mut Edit<'_>, at: usize) {
    let (Some(node), Some(y)) = (edit.node(at), edit.output(at)) else { return };
    let (Op::Gather(axis), &[x, indices]) = (&node.op, node.inputs.as_slice()) else { return };
    let (axis, mut shape) = (*axis, edit.shape(x).to_vec());
    let Some((start, step, count)) = distance(edit.value(indices), shape[axis]) else { return };
    shape[axis] = count;
    let slice = Op::Slice { axis, start, step };
    if shape == edit.shape(y) {
        edit.set(at, slice, vec![x]);
    } else {
        let sliced = edit.add_like(y, &shape);
        edit.insert_before(at, slice, vec![x], sliced);
        edit.set(at, Op::Reshape, vec![sliced]);
    }
    edit.fused(at);
}

/// More indices than this are hardly evenly spaced.
const LARGEST_INDICES: usize = 1 << 16;

/// (first, distance, how many) of constant indices into an axis; those below 0 count from its end.
fn distance(indices: &Value, size: usize) -> Option<(usize, usize, usize)> {
    let bytes = indices.small_bytes(LARGEST_INDICES)?;
    let numbers: Vec<i64> = match indices.dtype {
        DType::I64 => bytes
            .chunks_exact(8)
            .map(|b| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
            .collect(),
        DType::I32 => {
            bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]).into()).collect()
        }
        _ => return None,
    };
    let inside = |number: &i64| {
        let number = if *number < 0 { number.checked_add_unsigned(size as u64)? } else { *number };
        usize::try_from(number).ok().filter(|index| *index < size)
    };
    let places = numbers.iter().map(inside).collect::<Option<Vec<usize>>>()?;
    let first = *places.first()?;
    let step = match places.get(1) {
        Some(second) => second.checked_sub(first).filter(|step| *step > 0)?,
        None => 1,
    };
    let even = places.iter().enumerate().all(|(at, place)| *place == first + at * step);
    even.then_some((first, step, places.len()))
}

/// A slice that lies within one part of a concatenation is a slice of that part.
fn slice_of_concat(edit: &mut Edit<'_>, at: usize) {
    let (Some(node), Some(y)) = (edit.node(at), edit.output(at)) else { return };
    let Op::Slice { axis, start, step } = node.op else { return };
    let Some(Node { op: Op::Concat(along), inputs, .. }) = edit.made_by(node.inputs[0]) else { return };
    let taken = edit.shape(y)[axis];
    if *along != axis || taken == 0 {
        return;
    }
    let last = start + (taken - 1) * step;
    let mut offset = 0;
    for &part in inputs {
        let size = edit.shape(part)[axis];
        if (offset..offset + size).contains(&start) && last < offset + size {
            let op = Op::Slice { axis, start: start - offset, step };
            return edit.set(at, op, vec![part]);
        }
        offset += size;
    }
}
