//! Normalisation where the elements of a result lie along the lanes.

use super::super::lanes::{across, keep, load, store};
use super::super::split::{BLOCK, Split};
use super::super::walk::{self, Cursor};
use super::{Firsts, Norm, NormKind};
use rten_simd::Isa;
use rten_simd::ops::{BitOps, NumOps};

/// The sum of `f` of every element of one result, which lie along the lanes.
#[inline(always)]
unsafe fn sum<I: Isa>(
    isa: I,
    split: &Split<4>,
    x: *const f32,
    stride: usize,
    f: impl Fn(I::F32) -> I::F32,
) -> f32 {
    const UNROLL: usize = 4;
    let ops = isa.f32();
    let lanes = ops.len();
    let mut cursor = Cursor::new(&split.folded, 0);
    let len = split.lane.len;
    let mut total = ops.zero();
    for _ in 0..walk::count(&split.folded) {
        let mut i = 0;
        // SAFETY: the caller's promise.
        let at = |i: usize, n: usize| unsafe { load(isa, x.add(cursor.at[0] + i * stride), stride, n) };
        while i < len {
            let end = len.min(i + BLOCK * lanes);
            let mut sums = [ops.zero(); UNROLL];
            while i + UNROLL * lanes <= end {
                for (u, sum) in sums.iter_mut().enumerate() {
                    *sum = ops.add(*sum, f(at(i + u * lanes, lanes)));
                }
                i += UNROLL * lanes;
            }
            while i < end {
                let n = (end - i).min(lanes);
                sums[0] = ops.add(sums[0], keep(isa, f(at(i, n)), ops.zero(), n));
                i += n;
            }
            total = ops.add(total, ops.add(ops.add(sums[0], sums[1]), ops.add(sums[2], sums[3])));
        }
        cursor.advance();
    }
    across(isa, total, |x, y| x + y)
}

/// One result whose elements lie along the lanes.
///
/// # Safety
/// The elements that the loops of `norm` reach from `firsts` on are valid, for writes those of the target.
#[inline(always)]
pub(super) unsafe fn result<I: Isa>(isa: I, norm: &Norm, firsts: Firsts, strides: [usize; 4]) {
    let ops = isa.f32();
    let lanes = ops.len();
    let split = &norm.split;
    let count = split.count as f32;
    // SAFETY: the caller's promise; a tail is loaded and stored by its lanes only.
    unsafe {
        let mean = match norm.kind {
            NormKind::Layer => sum(isa, split, firsts.x, strides[0], |x| x) / count,
            NormKind::Rms => 0.0,
        };
        let mean = ops.splat(mean);
        let squares = sum(
            isa,
            split,
            firsts.x,
            strides[0],
            #[inline(always)]
            |x| {
                let x = ops.sub(x, mean);
                ops.mul(x, x)
            },
        );
        let factor = ops.splat(1.0 / (squares / count + norm.epsilon).sqrt());
        let mut cursor = Cursor::new(&split.folded, 0);
        for _ in 0..walk::count(&split.folded) {
            let mut i = 0;
            while i < split.lane.len {
                let n = (split.lane.len - i).min(lanes);
                let at = firsts.add(std::array::from_fn(|t| cursor.at[t] + i * strides[t]));
                let x = ops.mul(ops.sub(load(isa, at.x, strides[0], n), mean), factor);
                let scale = load(isa, at.scale, strides[2], n);
                let y = ops.mul_add(x, scale, load(isa, at.bias, strides[3], n));
                store(isa, y, at.out, strides[1], n);
                i += lanes;
            }
            cursor.advance();
        }
    }
}
