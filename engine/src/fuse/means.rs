//! Means and sums of squares, which exporters and importers write as a sum and a factor.

use super::edit::Edit;
use crate::graph::{Binary, Op, Reducer};

pub(super) fn run(edit: &mut Edit<'_>) {
    for at in edit.places() {
        squares(edit, at);
        mean(edit, at);
    }
}

/// Σ of squares: the squares are never stored.
fn squares(edit: &mut Edit<'_>, at: usize) {
    let Some(node) = edit.node(at) else { return };
    let Op::Reduce(reducer, axes) = &node.op else { return };
    let reducer = match reducer {
        Reducer::Sum => Reducer::SumOfSquares,
        Reducer::Mean => Reducer::MeanOfSquares,
        _ => return,
    };
    let (axes, squares) = (axes.clone(), node.inputs[0]);
    let Some(x) = edit.squared(squares) else { return };
    if edit.only_reader(squares) == Some(at) && edit.shape(x) == edit.shape(squares) {
        edit.set(at, Op::Reduce(reducer, axes), vec![x]);
        edit.fused(at);
    }
}

/// Σ · 1 / n.
fn mean(edit: &mut Edit<'_>, at: usize) {
    let Some(y) = edit.output(at) else { return };
    let Some((sum, factor)) = edit.with_number(y, Binary::Mul) else { return };
    let Some((reducer, axes, x)) = edit.reduced(sum) else { return };
    let reducer = match reducer {
        Reducer::Sum => Reducer::Mean,
        Reducer::SumOfSquares => Reducer::MeanOfSquares,
        _ => return,
    };
    let axes: smallvec::SmallVec<[usize; 4]> = axes.into();
    let count: usize = axes.iter().map(|axis| edit.shape(x)[*axis]).product();
    if (f64::from(factor) * count as f64 - 1.0).abs() > 1e-6 || edit.shape(sum) != edit.shape(y) {
        return;
    }
    if edit.only_reader(sum) != Some(at) {
        return edit.declined(at, "the sum is read by others too");
    }
    edit.set(at, Op::Reduce(reducer, axes), vec![x]);
    edit.fused(at);
}
