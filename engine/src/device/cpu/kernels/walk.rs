//! Loops over strided elements: axes sorted and merged when a kernel is made, and walked without a division.

use crate::device::cpu::threads::Threads;
use smallvec::SmallVec;
use std::ops::Range;

/// A task shorter than this many bytes costs more to hand over than to do.
const TASK_BYTES: usize = 64 << 10;

/// One loop over `N` tensors at once: how often, and by how many elements each tensor moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis<const N: usize> {
    /// How many positions there are.
    pub(crate) len: usize,
    /// The distance of neighbouring positions in each tensor, in elements.
    pub(crate) strides: [usize; N],
}

impl<const N: usize> Axis<N> {
    /// A loop that runs once.
    pub(crate) const ONCE: Axis<N> = Axis { len: 1, strides: [0; N] };
}

/// Nested loops, the outermost first.
pub(crate) type Axes<const N: usize> = SmallVec<[Axis<N>; 4]>;

/// The loops over `shape`: those of length 1 left out, the others ordered by the stride of tensor `by` (largest
/// outermost; broadcast axes are outermost of all), neighbours merged where every tensor allows it.
pub(crate) fn collapse<const N: usize>(shape: &[usize], strides: [&[usize]; N], by: usize) -> Axes<N> {
    for tensor in strides {
        assert_eq!(tensor.len(), shape.len(), "one stride per axis");
    }
    let mut axes: Axes<N> = (0..shape.len())
        .filter(|&axis| shape[axis] != 1)
        .map(|axis| Axis { len: shape[axis], strides: strides.map(|tensor| tensor[axis]) })
        .collect();
    // Where `by` is broadcast, any order is as good for it; the other tensors decide.
    axes.sort_by_key(|axis| {
        let rest = axis.strides.iter().copied().max().unwrap_or(0);
        let first = if axis.strides[by] == 0 { usize::MAX } else { axis.strides[by] };
        std::cmp::Reverse((first, rest))
    });
    let mut merged: Axes<N> = SmallVec::new();
    for axis in axes {
        match merged.last_mut() {
            Some(outer) if (0..N).all(|t| outer.strides[t] == axis.strides[t] * axis.len) => {
                *outer = Axis { len: outer.len * axis.len, strides: axis.strides };
            }
            _ => merged.push(axis),
        }
    }
    merged
}

/// How many positions the loops visit.
pub(crate) fn count<const N: usize>(axes: &[Axis<N>]) -> usize {
    axes.iter().map(|axis| axis.len).product()
}

/// How many elements of tensor `t` the loops span, the first and the last included; 0 if they visit none.
pub(crate) fn extent<const N: usize>(axes: &[Axis<N>], t: usize) -> usize {
    if count(axes) == 0 {
        return 0;
    }
    1 + axes.iter().map(|axis| (axis.len - 1) * axis.strides[t]).sum::<usize>()
}

/// How many elements a tensor of that shape and those strides spans; 0 for an empty one.
pub(crate) fn span(shape: &[usize], strides: &[usize]) -> usize {
    assert_eq!(strides.len(), shape.len(), "one stride per axis");
    if shape.contains(&0) {
        return 0;
    }
    1 + shape.iter().zip(strides).map(|(len, stride)| (len - 1) * stride).sum::<usize>()
}

/// A position within nested loops.
pub(crate) struct Cursor<'a, const N: usize> {
    axes: &'a [Axis<N>],
    // Deeper nests than this are not known; one would cost an allocation per run.
    index: SmallVec<[usize; 8]>,
    /// Where the position lies in each tensor, in elements.
    pub(crate) at: [usize; N],
}

impl<'a, const N: usize> Cursor<'a, N> {
    /// The position number `linear` in the order of the loops, which must not be empty.
    pub(crate) fn new(axes: &'a [Axis<N>], mut linear: usize) -> Cursor<'a, N> {
        let mut cursor = Cursor { axes, index: SmallVec::from_elem(0, axes.len()), at: [0; N] };
        if linear == 0 {
            return cursor;
        }
        for (axis, index) in axes.iter().zip(&mut cursor.index).rev() {
            *index = linear % axis.len;
            linear /= axis.len;
            for t in 0..N {
                cursor.at[t] += *index * axis.strides[t];
            }
        }
        cursor
    }

    /// To the next position; past the last one comes the first.
    #[inline]
    pub(crate) fn advance(&mut self) {
        for (axis, index) in self.axes.iter().zip(&mut self.index).rev() {
            *index += 1;
            for t in 0..N {
                self.at[t] += axis.strides[t];
            }
            if *index < axis.len {
                return;
            }
            *index = 0;
            for t in 0..N {
                self.at[t] -= axis.len * axis.strides[t];
            }
        }
    }
}

/// Does `units` of work that touch `bytes` in all, in parallel where that pays; `work` gets ranges of units.
pub(crate) fn share(threads: &Threads, units: usize, bytes: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
    let count = threads.count();
    // More tasks than threads, so that a thread that is held up does not hold up the step.
    let tasks = (bytes / TASK_BYTES).min(units).min(4 * count);
    if tasks <= 1 || count <= 1 {
        if units > 0 {
            work(0..units);
        }
        return;
    }
    threads.for_each(tasks, &|task| work(units * task / tasks..units * (task + 1) / tasks));
}
