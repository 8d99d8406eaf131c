//! The axes of an operation that folds some of them: which vectors it takes, and in which order it walks.

use super::walk::{self, Axes, Axis};
use smallvec::SmallVec;

/// Elements along the lanes that one unit of work covers where each lane has a result of its own.
pub(crate) const COLUMNS: usize = 64;
/// Positions after which a running sum is put aside, so that long sums keep their accuracy.
pub(crate) const BLOCK: usize = 256;

/// Axes of tensors, of which the first is folded.
#[derive(Debug)]
pub(crate) struct Split<const N: usize> {
    /// The loops with a result for each position, the outermost first; without `lane`.
    pub(crate) kept: Axes<N>,
    /// The loops that are folded; without `lane`.
    pub(crate) folded: Axes<N>,
    /// The innermost axis of the first tensor, which vectors are taken along.
    pub(crate) lane: Axis<N>,
    /// Whether `lane` is kept, so that each lane has a result of its own.
    pub(crate) across: bool,
    /// How many elements each result is made of.
    pub(crate) count: usize,
    /// How many elements of each tensor are touched, from the first on.
    pub(crate) extents: [usize; N],
    /// Bytes of the first tensor.
    pub(crate) bytes: usize,
}

impl<const N: usize> Split<N> {
    /// Folds `axes` of `shape`.
    pub(crate) fn new(shape: &[usize], axes: &[usize], strides: [&[usize]; N]) -> Split<N> {
        let of = |folded: bool| -> Axes<N> {
            let chosen: SmallVec<[usize; 6]> =
                (0..shape.len()).filter(|axis| axes.contains(axis) == folded).collect();
            let lens: SmallVec<[usize; 6]> = chosen.iter().map(|&axis| shape[axis]).collect();
            let strides: [SmallVec<[usize; 6]>; N] =
                strides.map(|tensor| chosen.iter().map(|&axis| tensor[axis]).collect());
            walk::collapse(&lens, std::array::from_fn(|t| &strides[t][..]), 0)
        };
        let (mut kept, mut folded) = (of(false), of(true));
        let count = walk::count(&folded);
        let extents = std::array::from_fn(|t| walk::span(shape, strides[t]));
        let inner = |axes: &Axes<N>| axes.last().map_or(usize::MAX, |axis| axis.strides[0].max(1));
        let across = inner(&kept) < inner(&folded) || folded.is_empty();
        let lane = if across { kept.pop() } else { folded.pop() }.unwrap_or(Axis::ONCE);
        let bytes = 4 * shape.iter().product::<usize>();
        Split { kept, folded, lane, across, count, extents, bytes }
    }

    /// How many units of work there are: results, or pieces of [`COLUMNS`] results along the lanes.
    pub(crate) fn units(&self) -> usize {
        walk::count(&self.kept) * self.pieces()
    }

    /// How many units share a position of the kept loops.
    pub(crate) fn pieces(&self) -> usize {
        if self.across { self.lane.len.div_ceil(COLUMNS) } else { 1 }
    }

    /// The strides of the lanes.
    pub(crate) fn lane_strides(&self) -> [usize; N] {
        self.lane.strides
    }
}
