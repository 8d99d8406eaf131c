//! Sums, extremes and products over some axes.

use super::lanes;
use super::split::Split;
use super::walk;
use crate::device::cpu::memory::{Source, Target};
use crate::device::cpu::threads::Threads;
use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};
use std::ops::Range;

mod arg;
mod fold;
#[cfg(test)]
mod tests;

pub(crate) use arg::ArgReduce;

/// What is made of the elements of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum ReduceOp {
    Sum,
    Mean,
    /// NaN if any element is.
    Max,
    /// NaN if any element is.
    Min,
    Product,
    /// Σ x².
    SumOfSquares,
    /// Σ x² / count.
    MeanOfSquares,
}

/// A reduction of f32 over some axes.
#[derive(Debug)]
pub(crate) struct Reduce {
    op: ReduceOp,
    split: Split<2>,
    /// What each result is multiplied by.
    factor: f32,
}

impl Reduce {
    /// Over `axes` of a tensor of that shape. `target_strides` has an entry per axis of the source; those of
    /// `axes` do not count. Over no element a sum is 0, a product 1, a maximum -∞, a minimum ∞, a mean NaN.
    pub(crate) fn new(
        op: ReduceOp,
        shape: &[usize],
        axes: &[usize],
        source_strides: &[usize],
        target_strides: &[usize],
    ) -> Reduce {
        let target: Vec<usize> = (0..shape.len())
            .map(|axis| if axes.contains(&axis) { 0 } else { target_strides[axis] })
            .collect();
        let mut split = Split::new(shape, axes, [source_strides, &target]);
        let kept: Vec<usize> =
            (0..shape.len()).map(|axis| if axes.contains(&axis) { 1 } else { shape[axis] }).collect();
        // Results over no element are written too.
        split.extents[1] = walk::span(&kept, &target);
        let factor = match op {
            ReduceOp::Mean | ReduceOp::MeanOfSquares => 1.0 / split.count as f32,
            _ => 1.0,
        };
        Reduce { op, split, factor }
    }

    /// Computes it.
    pub(crate) fn run(&self, source: Source<'_, f32>, target: Target<'_, f32>, threads: &Threads) {
        let [x_extent, out_extent] = self.split.extents;
        assert!(source.len() >= x_extent, "a source of {} elements, {x_extent} are read", source.len());
        assert!(
            target.len() >= out_extent,
            "a target of {} elements, {out_extent} are written",
            target.len()
        );
        if out_extent == 0 {
            return;
        }
        walk::share(threads, self.split.units(), self.split.bytes, &|units| {
            Part { reduce: self, source, target, units }.dispatch();
        });
    }
}

/// Some units of a run.
struct Part<'a> {
    reduce: &'a Reduce,
    source: Source<'a, f32>,
    target: Target<'a, f32>,
    units: Range<usize>,
}

impl SimdOp for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let ops = isa.f32();
        macro_rules! fold {
            ($start:expr, $a:ident, $x:ident => $step:expr, $p:ident, $q:ident => $join:expr) => {
                self.fold(
                    isa,
                    ops.splat($start),
                    #[inline(always)]
                    |$a, $x| $step,
                    #[inline(always)]
                    |$p, $q| $join,
                )
            };
        }
        match self.reduce.op {
            ReduceOp::Sum | ReduceOp::Mean => {
                fold!(0.0, a, x => ops.add(a, x), a, b => ops.add(a, b));
            }
            ReduceOp::Product => fold!(1.0, a, x => ops.mul(a, x), a, b => ops.mul(a, b)),
            ReduceOp::Max => {
                fold!(f32::NEG_INFINITY, a, x => lanes::max(isa, a, x), a, b => lanes::max(isa, a, b));
            }
            ReduceOp::Min => {
                fold!(f32::INFINITY, a, x => lanes::min(isa, a, x), a, b => lanes::min(isa, a, b));
            }
            ReduceOp::SumOfSquares | ReduceOp::MeanOfSquares => {
                fold!(0.0, a, x => ops.mul_add(x, x, a), a, b => ops.add(a, b));
            }
        }
    }
}
