//! The loops of a reduction, whatever it folds with.

use super::super::lanes::{LANES, across, keep, load, store};
use super::super::split::{BLOCK, COLUMNS};
use super::super::walk::{self, Axis, Cursor};
use super::Part;
use rten_simd::ops::BitOps;
use rten_simd::{Isa, Simd};

impl Part<'_> {
    /// Folds each unit from `start` on with `step`, and partial results with `join`.
    #[inline(always)]
    pub(super) fn fold<I: Isa>(
        &self,
        isa: I,
        start: I::F32,
        step: impl Fn(I::F32, I::F32) -> I::F32,
        join: impl Fn(I::F32, I::F32) -> I::F32,
    ) {
        let lanes = isa.f32().len();
        let split = &self.reduce.split;
        let pieces = split.pieces();
        let mut cursor = Cursor::new(&split.kept, self.units.start / pieces);
        let mut piece = self.units.start % pieces;
        let [x_stride, out_stride] = split.lane.strides;
        for _ in self.units.clone() {
            // SAFETY: the loops stay within the extents that `run` compared with the lengths.
            unsafe {
                let (x, out) =
                    (self.source.as_ptr().add(cursor.at[0]), self.target.as_ptr().add(cursor.at[1]));
                if split.across {
                    let end = split.lane.len.min((piece + 1) * COLUMNS);
                    let mut i = piece * COLUMNS;
                    while i < end {
                        let (x, out) = (x.add(i * x_stride), out.add(i * out_stride));
                        if x_stride == 1 && i + 4 * lanes <= end {
                            self.columns::<I, 4>(isa, x, out, lanes, start, &step, &join);
                            i += 4 * lanes;
                        } else {
                            self.columns::<I, 1>(isa, x, out, (end - i).min(lanes), start, &step, &join);
                            i += lanes;
                        }
                    }
                } else {
                    let x_stride = if x_stride == 1 { 1 } else { x_stride };
                    *out = self.row(isa, x, x_stride, start, &step, &join);
                }
            }
            piece += 1;
            if piece == pieces {
                piece = 0;
                cursor.advance();
            }
        }
    }

    /// One result whose elements lie along the lanes.
    #[inline(always)]
    unsafe fn row<I: Isa>(
        &self,
        isa: I,
        x: *const f32,
        stride: usize,
        start: I::F32,
        step: &impl Fn(I::F32, I::F32) -> I::F32,
        join: &impl Fn(I::F32, I::F32) -> I::F32,
    ) -> f32 {
        const UNROLL: usize = 4;
        let lanes = isa.f32().len();
        let split = &self.reduce.split;
        let mut total = start;
        let mut cursor = Cursor::new(&split.folded, 0);
        for _ in 0..walk::count(&split.folded) {
            // SAFETY: the caller's promise.
            let at = |i: usize, n: usize| unsafe { load(isa, x.add(cursor.at[0] + i * stride), stride, n) };
            let mut i = 0;
            while i < split.lane.len {
                let end = split.lane.len.min(i + BLOCK * lanes);
                let mut part = [start; UNROLL];
                while i + UNROLL * lanes <= end {
                    for (u, part) in part.iter_mut().enumerate() {
                        *part = step(*part, at(i + u * lanes, lanes));
                    }
                    i += UNROLL * lanes;
                }
                while i < end {
                    let n = (end - i).min(lanes);
                    part[0] = keep(isa, step(part[0], at(i, n)), part[0], n);
                    i += n;
                }
                total = join(total, join(join(part[0], part[1]), join(part[2], part[3])));
            }
            cursor.advance();
        }
        self.finish(across(isa, total, |a, b| {
            // Through vectors, so that there is one definition of what joins.
            let ops = isa.f32();
            join(ops.splat(a), ops.splat(b)).to_array()[0]
        }))
    }

    /// `K` vectors of results side by side along the lanes, `n` lanes of each.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    unsafe fn columns<I: Isa, const K: usize>(
        &self,
        isa: I,
        x: *const f32,
        out: *mut f32,
        n: usize,
        start: I::F32,
        step: &impl Fn(I::F32, I::F32) -> I::F32,
        join: &impl Fn(I::F32, I::F32) -> I::F32,
    ) {
        let lanes = isa.f32().len();
        debug_assert!(lanes <= LANES && (K == 1 || n == lanes));
        let split = &self.reduce.split;
        let (stride, out_stride) = (if K == 1 { split.lane.strides[0] } else { 1 }, split.lane.strides[1]);
        let (outer, inner) = match split.folded.split_last() {
            Some((inner, outer)) => (outer, *inner),
            None => (&[][..], Axis::ONCE),
        };
        let mut cursor = Cursor::new(outer, 0);
        let mut total = [start; K];
        for _ in 0..walk::count(outer) {
            for block in (0..inner.len).step_by(BLOCK) {
                let mut part = [start; K];
                for i in block..inner.len.min(block + BLOCK) {
                    for (k, part) in part.iter_mut().enumerate() {
                        let offset = cursor.at[0] + i * inner.strides[0] + k * lanes * stride;
                        // SAFETY: the caller's promise.
                        *part = step(*part, unsafe { load(isa, x.add(offset), stride, n) });
                    }
                }
                for k in 0..K {
                    total[k] = join(total[k], part[k]);
                }
            }
            cursor.advance();
        }
        for (k, total) in total.into_iter().enumerate() {
            let mut results = total.to_array();
            for lane in 0..n {
                results[lane] = self.finish(results[lane]);
            }
            // SAFETY: the caller's promise.
            unsafe {
                let to = out.add(k * lanes * out_stride);
                store(isa, isa.f32().load(results.as_ref()), to, out_stride, n);
            }
        }
    }

    fn finish(&self, total: f32) -> f32 {
        total * self.reduce.factor
    }
}
