//! Layer norms and root-mean-square norms, from what exporters write for them.
//!
//! A variance written as E\[x²\] − E\[x\]² becomes that of the norm, Σ (x − mean)² / n: more exact, for the first
//! loses the digits that the two means share.

use super::edit::Edit;
use super::matching::Arg;
use crate::graph::{Binary, Norm, Op, Reducer, Unary, ValueId};
use smallvec::SmallVec;

type Axes = SmallVec<[usize; 4]>;

pub(super) fn run(edit: &mut Edit<'_>) {
    for at in edit.places() {
        centered_rms(edit, at);
        written_out(edit, at);
        scale_or_shift(edit, at);
    }
}

/// (x, axes) where the value is x − mean(x).
fn centered(edit: &Edit<'_>, id: ValueId) -> Option<(ValueId, Axes)> {
    let (x, mean) = edit.pair(id, Binary::Sub)?;
    let axes = mean_of(edit, mean, x)?;
    Some((x, axes))
}

/// The axes where the first value is the mean of the second.
fn mean_of(edit: &Edit<'_>, mean: ValueId, of: ValueId) -> Option<Axes> {
    match edit.reduced(mean)? {
        (Reducer::Mean, axes, x) if x == of => Some(axes.into()),
        _ => None,
    }
}

/// x − mean, then the root-mean-square norm over the same axes.
fn centered_rms(edit: &mut Edit<'_>, at: usize) {
    let Some(node) = edit.node(at) else { return };
    let Op::Norm(norm) = &node.op else { return };
    if norm.center {
        return;
    }
    let (mut norm, inputs) = (norm.clone(), node.inputs.clone());
    let Some((x, axes)) = centered(edit, inputs[0]) else { return };
    if axes != norm.axes {
        return edit
            .declined(at, format!("the mean is over axes {axes:?}, the squares are over {:?}", norm.axes));
    }
    norm.center = true;
    edit.set(at, Op::Norm(norm), [&[x], &inputs[1..]].concat());
    edit.fused(at);
}

/// x / √(mean(x²) + ε) in its parts, with the mean taken off before or not; a factor may stand on the root.
fn written_out(edit: &mut Edit<'_>, at: usize) {
    let Some(y) = edit.output(at) else { return };
    let Some(found) = normalized(edit, y) else { return };
    if edit.shape(found.x) != edit.shape(y) {
        return edit.declined(at, "the scale is larger than what is normalized");
    }
    let norm = Norm {
        axes: found.axes,
        epsilon: found.epsilon,
        center: found.center,
        scale: found.scale.is_some(),
        shift: false,
    };
    let inputs = [found.x].into_iter().chain(found.scale).collect();
    edit.set(at, Op::Norm(norm), inputs);
    edit.fused(at);
}

struct Found {
    x: ValueId,
    axes: Axes,
    epsilon: f32,
    center: bool,
    scale: Option<ValueId>,
}

fn normalized(edit: &Edit<'_>, y: ValueId) -> Option<Found> {
    let (op, Arg::Value(a), Arg::Value(b)) = edit.binary(y)? else { return None };
    match op {
        // x / √v.
        Binary::Div => {
            let (Unary::Sqrt, variance) = edit.unary(b)? else { return None };
            found(edit, a, variance, None)
        }
        Binary::Mul => [(a, b), (b, a)].into_iter().find_map(|(x, factor)| {
            if let Some(variance) = under_root(edit, factor) {
                return found(edit, x, variance, None);
            }
            // x · (scale · 1 / √v), as flax writes it.
            let (a, b) = edit.pair(factor, Binary::Mul)?;
            [(a, b), (b, a)].into_iter().find_map(|(scale, root)| {
                let found = found(edit, x, under_root(edit, root)?, Some(scale))?;
                along_axes(edit, scale, &found.axes).then_some(found)
            })
        }),
        _ => None,
    }
}

/// `v` where the value is 1 / √v.
fn under_root(edit: &Edit<'_>, id: ValueId) -> Option<ValueId> {
    match edit.unary(id) {
        Some((Unary::Rsqrt, variance)) => Some(variance),
        _ => match edit.unary(edit.inverse_of(id)?)? {
            (Unary::Sqrt, variance) => Some(variance),
            _ => None,
        },
    }
}

/// Whether the value, ε added, is the variance of what is normalized.
fn found(edit: &Edit<'_>, normalized: ValueId, variance: ValueId, scale: Option<ValueId>) -> Option<Found> {
    let (variance, epsilon) = edit.with_number(variance, Binary::Add)?;
    let centered = centered(edit, normalized);
    if let Some(axes) = mean_square_of(edit, variance, normalized) {
        return Some(match centered {
            Some((x, of_mean)) if of_mean == axes => Found { x, axes, epsilon, center: true, scale },
            _ => Found { x: normalized, axes, epsilon, center: false, scale },
        });
    }
    let (x, axes) = centered?;
    // max(E[x²] − E[x]², 0): the maximum guards against rounding.
    let inner = match edit.with_number(variance, Binary::Max) {
        Some((inner, 0.0)) => inner,
        _ => variance,
    };
    let (squares, square) = edit.pair(inner, Binary::Sub)?;
    let alike = mean_square_of(edit, squares, x)? == axes && mean_of(edit, edit.squared(square)?, x)? == axes;
    alike.then_some(Found { x, axes, epsilon, center: true, scale })
}

/// The axes where the first value is the mean of the second's squares.
fn mean_square_of(edit: &Edit<'_>, mean: ValueId, of: ValueId) -> Option<Axes> {
    let (reducer, axes, x) = edit.reduced(mean)?;
    let ours = match reducer {
        Reducer::MeanOfSquares => x == of,
        Reducer::Mean => edit.squared(x) == Some(of),
        _ => false,
    };
    ours.then(|| axes.into())
}

/// Whether a constant varies along the norm's axes only.
fn along_axes(edit: &Edit<'_>, id: ValueId, axes: &[usize]) -> bool {
    let sizes = edit.shape(id).iter().enumerate();
    edit.is_constant(id) && sizes.filter(|(_, size)| **size != 1).all(|(axis, _)| axes.contains(&axis))
}

/// A constant multiplied or added to a norm that nothing else reads is its scale or shift.
fn scale_or_shift(edit: &mut Edit<'_>, at: usize) {
    let Some(y) = edit.output(at) else { return };
    let (op, a, b) = match edit.binary(y) {
        Some((op @ (Binary::Mul | Binary::Add), Arg::Value(a), Arg::Value(b))) => (op, a, b),
        _ => return,
    };
    for (normed, constant) in [(a, b), (b, a)] {
        let Some(node) = edit.made_by(normed) else { continue };
        let Op::Norm(norm) = &node.op else { continue };
        let (mut norm, mut inputs) = (norm.clone(), node.inputs.clone());
        if edit.only_reader(normed) != Some(at) || !edit.is_constant(constant) {
            continue;
        }
        if edit.shape(normed) != edit.shape(y) || !along_axes(edit, constant, &norm.axes) {
            return edit.declined(at, "the constant varies along axes that are not normalized");
        }
        let free = match op {
            Binary::Mul => !norm.scale && !norm.shift,
            _ => !norm.shift,
        };
        if !free {
            return;
        }
        norm.scale |= op == Binary::Mul;
        norm.shift |= op == Binary::Add;
        inputs.push(constant);
        edit.set(at, Op::Norm(norm), inputs);
        return edit.fused(at);
    }
}
