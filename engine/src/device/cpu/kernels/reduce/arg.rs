//! The position of the largest or smallest element along an axis.

use super::super::walk::{self, Axes, Cursor};
use crate::device::cpu::memory::{Source, Target};
use crate::device::cpu::threads::Threads;

/// Argmax or argmin of f32 along one axis, as i64.
#[derive(Debug)]
pub(crate) struct ArgReduce {
    kept: Axes<2>,
    len: usize,
    stride: usize,
    extents: [usize; 2],
    bytes: usize,
    min: bool,
    last: bool,
}

impl ArgReduce {
    /// Along `axis`, which must not be empty if there are results. `target_strides` has an entry per axis of the
    /// source; that of `axis` does not count. Of equal elements the first counts, or the last if `last`.
    pub(crate) fn new(
        min: bool,
        last: bool,
        shape: &[usize],
        axis: usize,
        source_strides: &[usize],
        target_strides: &[usize],
    ) -> ArgReduce {
        let (mut kept, mut target) = (shape.to_vec(), target_strides.to_vec());
        (kept[axis], target[axis]) = (1, 0);
        ArgReduce {
            kept: walk::collapse(&kept, [source_strides, &target], 0),
            len: shape[axis],
            stride: source_strides[axis],
            extents: [walk::span(shape, source_strides), walk::span(&kept, &target)],
            bytes: 4 * shape.iter().product::<usize>(),
            min,
            last,
        }
    }

    /// Computes it.
    pub(crate) fn run(&self, source: Source<'_, f32>, target: Target<'_, i64>, threads: &Threads) {
        let [x_extent, out_extent] = self.extents;
        assert!(source.len() >= x_extent, "a source of {} elements, {x_extent} are read", source.len());
        assert!(
            target.len() >= out_extent,
            "a target of {} elements, {out_extent} are written",
            target.len()
        );
        if out_extent == 0 {
            return;
        }
        assert!(self.len > 0, "no element to choose from");
        walk::share(threads, walk::count(&self.kept), self.bytes, &|units| {
            let mut cursor = Cursor::new(&self.kept, units.start);
            for _ in units {
                // SAFETY: the loops stay within the extents that were just compared with the lengths.
                unsafe {
                    let x = source.as_ptr().add(cursor.at[0]);
                    *target.as_ptr().add(cursor.at[1]) = self.best(x) as i64;
                }
                cursor.advance();
            }
        });
    }

    unsafe fn best(&self, x: *const f32) -> usize {
        let sign = if self.min { -1.0 } else { 1.0 };
        // SAFETY: the caller's promise, here and below.
        let mut best = (sign * unsafe { *x }, 0);
        for i in 1..self.len {
            // SAFETY: as above.
            let value = sign * unsafe { *x.add(i * self.stride) };
            if value > best.0 || (self.last && value == best.0) {
                best = (value, i);
            }
        }
        best.1
    }
}
