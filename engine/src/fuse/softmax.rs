//! exp(x − max(x)) / Σ in its parts → softmax. Without the maximum as well: softmax takes it off, which changes
//! nothing but that large x no longer overflow.

use super::edit::Edit;
use crate::graph::{Binary, Op, Reducer, Unary, ValueId};
use smallvec::SmallVec;

pub(super) fn run(edit: &mut Edit<'_>) {
    for at in edit.places() {
        let Some(y) = edit.output(at) else { continue };
        if let Some((x, axes)) = softmax(edit, y) {
            edit.set(at, Op::Softmax { axes, log: false }, vec![x]);
            edit.fused(at);
        } else if let Some((Unary::Ln, x)) = edit.unary(y)
            && let Some(node) = edit.made_by(x)
            && let Op::Softmax { axes, log: false } = &node.op
            && edit.only_reader(x) == Some(at)
        {
            let (axes, inputs) = (axes.clone(), node.inputs.clone());
            edit.set(at, Op::Softmax { axes, log: true }, inputs);
            edit.fused(at);
        }
    }
}

fn softmax(edit: &Edit<'_>, y: ValueId) -> Option<(ValueId, SmallVec<[usize; 4]>)> {
    if let Some((exp, sum)) = edit.pair(y, Binary::Div) {
        return of(edit, exp, sum);
    }
    let (a, b) = edit.pair(y, Binary::Mul)?;
    [(a, b), (b, a)].into_iter().find_map(|(exp, inverse)| of(edit, exp, edit.inverse_of(inverse)?))
}

/// What it is the softmax of where the first value is an exponential and the second its sum.
fn of(edit: &Edit<'_>, exp: ValueId, sum: ValueId) -> Option<(ValueId, SmallVec<[usize; 4]>)> {
    let (Unary::Exp, exponent) = edit.unary(exp)? else { return None };
    let (Reducer::Sum, axes, summed) = edit.reduced(sum)? else { return None };
    if summed != exp || edit.shape(exponent) != edit.shape(exp) {
        return None;
    }
    let axes: SmallVec<[usize; 4]> = axes.into();
    let without_maximum = edit.pair(exponent, Binary::Sub).filter(|(x, max)| {
        let maximum = edit.reduced(*max);
        edit.shape(*x) == edit.shape(exp)
            && maximum.is_some_and(|(reducer, over, of)| {
                reducer == Reducer::Max && over == axes.as_slice() && of == *x
            })
    });
    Some((without_maximum.map_or(exponent, |(x, _)| x), axes))
}
