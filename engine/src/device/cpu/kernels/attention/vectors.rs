//! What is done to the scores of one row, a vector at a time.

use super::super::lanes::{across, keep, load, store};
use super::super::math::exp_of_negative;
use rten_simd::Isa;
use rten_simd::ops::{BitOps, NumOps};

/// What is done to scores, known when compiled.
pub(super) trait Change: Copy {
    /// Whether it changes anything.
    const CHANGES: bool = true;

    /// `n` scores and their part of the mask.
    ///
    /// # Safety
    /// The mask is valid for `n` elements, if there is one.
    unsafe fn of<I: Isa>(self, isa: I, scores: I::F32, mask: *const f32, n: usize) -> I::F32;
}

#[derive(Clone, Copy)]
pub(super) struct Nothing;

#[derive(Clone, Copy)]
pub(super) struct Add;

#[derive(Clone, Copy)]
pub(super) struct Select<const KEPT: bool>(pub(super) f32);

impl Change for Nothing {
    const CHANGES: bool = false;

    #[inline(always)]
    unsafe fn of<I: Isa>(self, _isa: I, scores: I::F32, _mask: *const f32, _n: usize) -> I::F32 {
        scores
    }
}

impl Change for Add {
    #[inline(always)]
    unsafe fn of<I: Isa>(self, isa: I, scores: I::F32, mask: *const f32, n: usize) -> I::F32 {
        // SAFETY: the caller's promise.
        unsafe { isa.f32().add(scores, load(isa, mask, 1, n)) }
    }
}

impl<const KEPT: bool> Change for Select<KEPT> {
    #[inline(always)]
    unsafe fn of<I: Isa>(self, isa: I, scores: I::F32, mask: *const f32, n: usize) -> I::F32 {
        let ops = isa.f32();
        // SAFETY: the caller's promise.
        let zero = ops.eq(unsafe { load(isa, mask, 1, n) }, ops.zero());
        let other = ops.splat(self.0);
        if KEPT { ops.select(other, scores, zero) } else { ops.select(scores, other, zero) }
    }
}

/// Vectors that are under way at once, so that none waits for the one before.
const UNROLL: usize = 4;

/// Changes `len` scores, and finds the largest.
///
/// # Safety
/// They are valid, and so are as many numbers of the mask.
#[inline(always)]
pub(super) unsafe fn most<I: Isa, C: Change>(
    isa: I,
    scores: *mut f32,
    len: usize,
    mask: *const f32,
    change: C,
) -> f32 {
    let ops = isa.f32();
    let lanes = ops.len();
    let lowest = ops.splat(f32::NEG_INFINITY);
    let whole = len - len % (UNROLL * lanes);
    let mut most = [lowest; UNROLL];
    // SAFETY: the caller's `len` scores and numbers of the mask.
    unsafe {
        for first in (0..whole).step_by(UNROLL * lanes) {
            for (u, most) in most.iter_mut().enumerate() {
                let i = first + u * lanes;
                let x = change.of(isa, ops.load_ptr(scores.add(i)), mask.wrapping_add(i), lanes);
                if C::CHANGES {
                    ops.store_ptr(x, scores.add(i));
                }
                *most = ops.max(*most, x);
            }
        }
        for i in (whole..len).step_by(lanes) {
            let n = (len - i).min(lanes);
            let x = change.of(isa, load(isa, scores.add(i), 1, n), mask.wrapping_add(i), n);
            if C::CHANGES {
                store(isa, x, scores.add(i), 1, n);
            }
            most[0] = ops.max(most[0], keep(isa, x, lowest, n));
        }
    }
    let most = ops.max(ops.max(most[0], most[1]), ops.max(most[2], most[3]));
    across(isa, most, |x, y| if x > y { x } else { y })
}

/// `len` scores become exponentials of what they are above `base`; their sum.
///
/// # Safety
/// They are valid.
#[inline(always)]
pub(super) unsafe fn exponentials<I: Isa>(isa: I, scores: *mut f32, len: usize, base: f32) -> f32 {
    let ops = isa.f32();
    let lanes = ops.len();
    let base = ops.splat(base);
    let whole = len - len % (UNROLL * lanes);
    let mut sums = [ops.zero(); UNROLL];
    // SAFETY: the caller's `len` scores.
    unsafe {
        for first in (0..whole).step_by(UNROLL * lanes) {
            for (u, sum) in sums.iter_mut().enumerate() {
                let at = scores.add(first + u * lanes);
                let e = exp_of_negative(isa, ops.sub(ops.load_ptr(at), base));
                ops.store_ptr(e, at);
                *sum = ops.add(*sum, e);
            }
        }
        for i in (whole..len).step_by(lanes) {
            let n = (len - i).min(lanes);
            let e = exp_of_negative(isa, ops.sub(load(isa, scores.add(i), 1, n), base));
            store(isa, e, scores.add(i), 1, n);
            sums[0] = ops.add(sums[0], keep(isa, e, ops.zero(), n));
        }
    }
    let sum = ops.add(ops.add(sums[0], sums[1]), ops.add(sums[2], sums[3]));
    across(isa, sum, |x, y| x + y)
}

/// `n` numbers times a factor.
///
/// # Safety
/// They are valid.
#[inline(always)]
pub(super) unsafe fn times<I: Isa>(isa: I, y: *mut f32, n: usize, factor: f32) {
    let ops = isa.f32();
    let lanes = ops.len();
    for i in (0..n).step_by(lanes) {
        let count = (n - i).min(lanes);
        // SAFETY: the caller's `n` elements.
        unsafe {
            let x = ops.mul(load(isa, y.add(i), 1, count), ops.splat(factor));
            store(isa, x, y.add(i), 1, count);
        }
    }
}
