//! Softmax and its logarithm along one axis.

use super::split::{COLUMNS, Split};
use super::walk::{self, Cursor};
use crate::device::cpu::memory::{Source, Target};
use crate::device::cpu::threads::Threads;
use rten_simd::{Isa, SimdOp};
use std::ops::Range;

mod columns;
mod rows;
#[cfg(test)]
mod tests;

/// exp(x) / Σ exp(x) along one axis, or the logarithm of it.
#[derive(Debug)]
pub(crate) struct Softmax {
    split: Split<2>,
    log: bool,
}

impl Softmax {
    /// Along `axis` of a tensor of that shape.
    pub(crate) fn new(
        shape: &[usize],
        axis: usize,
        source_strides: &[usize],
        target_strides: &[usize],
        log: bool,
    ) -> Softmax {
        Softmax { split: Split::new(shape, &[axis], [source_strides, target_strides]), log }
    }

    /// Computes it. The target may be the source, with the same strides.
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
        // An exponential costs about as much as moving a few elements.
        walk::share(threads, self.split.units(), 4 * self.split.bytes, &|units| {
            Part { softmax: self, source, target, units }.dispatch();
        });
    }
}

/// Some units of a run.
struct Part<'a> {
    softmax: &'a Softmax,
    source: Source<'a, f32>,
    target: Target<'a, f32>,
    units: Range<usize>,
}

/// Elements of one result: their first ones, and their distances.
#[derive(Clone, Copy)]
struct Line {
    x: *const f32,
    out: *mut f32,
    strides: [usize; 2],
    len: usize,
}

impl SimdOp for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Softmax { split, log } = self.softmax;
        let pieces = split.pieces();
        let mut cursor = Cursor::new(&split.kept, self.units.start / pieces);
        let mut piece = self.units.start % pieces;
        // Only the axis itself is folded, so that it is either the lane or the only loop.
        let folded = split.folded.first().copied().unwrap_or(walk::Axis::ONCE);
        for _ in self.units {
            let start = if split.across { piece * COLUMNS } else { 0 };
            let at = |t: usize| cursor.at[t] + start * split.lane.strides[t];
            // SAFETY: the loops stay within the extents that `run` compared with the lengths.
            unsafe {
                let (x, out) = (self.source.as_ptr().add(at(0)), self.target.as_ptr().add(at(1)));
                if split.across {
                    let line = Line { x, out, strides: folded.strides, len: folded.len };
                    let n = (split.lane.len - start).min(COLUMNS);
                    columns::results(isa, line, split.lane_strides(), n, *log);
                } else {
                    rows::result(
                        isa,
                        Line { x, out, strides: split.lane.strides, len: split.lane.len },
                        *log,
                    );
                }
            }
            piece += 1;
            if piece == pieces {
                piece = 0;
                cursor.advance();
            }
        }
    }
}
