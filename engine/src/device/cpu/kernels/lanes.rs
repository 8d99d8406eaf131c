//! Vectors of f32 from and to strided memory.

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, Simd};

/// The most lanes that a vector has on any machine.
pub(crate) const LANES: usize = 16;

/// The first `n` lanes, by a comparison: the general way to a mask goes through a byte per lane.
#[inline(always)]
pub(crate) fn mask<I: Isa>(isa: I, n: usize) -> I::M32 {
    const NUMBERS: [f32; LANES] = [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];
    let ops = isa.f32();
    // SAFETY: there are as many numbers as lanes at most.
    ops.lt(unsafe { ops.load_ptr(NUMBERS.as_ptr()) }, ops.splat(n as f32))
}

/// `n` elements that lie `stride` apart, the first at `first`, in the first lanes; anything in the
/// others.
///
/// # Safety
/// The elements are valid for reads, and `n` is at most the number of lanes.
#[inline(always)]
pub(crate) unsafe fn load<I: Isa>(isa: I, first: *const f32, stride: usize, n: usize) -> I::F32 {
    let ops = isa.f32();
    // SAFETY: the caller's promise; a masked load touches only the lanes of the mask, `buffer` has enough lanes.
    unsafe {
        if stride == 1 {
            if n == ops.len() { ops.load_ptr(first) } else { ops.load_ptr_mask(first, mask(isa, n)) }
        } else if stride == 0 {
            ops.splat(*first)
        } else {
            let mut buffer = [0.0; LANES];
            for (lane, value) in buffer[..n].iter_mut().enumerate() {
                *value = *first.add(lane * stride);
            }
            ops.load_ptr(buffer.as_ptr())
        }
    }
}

/// Stores the first `n` lanes to elements that lie `stride` apart, the first at `first`.
///
/// # Safety
/// The elements are valid for writes, and `n` is at most the number of lanes.
#[inline(always)]
pub(crate) unsafe fn store<I: Isa>(isa: I, value: I::F32, first: *mut f32, stride: usize, n: usize) {
    let ops = isa.f32();
    // SAFETY: as in `load`.
    unsafe {
        if stride == 1 {
            if n == ops.len() {
                ops.store_ptr(value, first);
            } else {
                ops.store_ptr_mask(value, first, mask(isa, n));
            }
        } else {
            let mut buffer = [0.0; LANES];
            ops.store_ptr(value, buffer.as_mut_ptr());
            for (lane, value) in buffer[..n].iter().enumerate() {
                *first.add(lane * stride) = *value;
            }
        }
    }
}

/// The first `n` lanes of `value`, and `rest` in the others.
#[inline(always)]
pub(crate) fn keep<I: Isa>(isa: I, value: I::F32, rest: I::F32, n: usize) -> I::F32 {
    let ops = isa.f32();
    if n == ops.len() { value } else { ops.select(value, rest, mask(isa, n)) }
}

/// `f` over all lanes, in pairs of halves, so that a sum loses little.
#[inline(always)]
pub(crate) fn across<I: Isa>(isa: I, value: I::F32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = value.to_array();
    let mut n = isa.f32().len();
    while n > 1 {
        n /= 2;
        for lane in 0..n {
            lanes[lane] = f(lanes[lane], lanes[lane + n]);
        }
    }
    lanes[0]
}

/// The larger one; NaN if either is, where a maximum of x86 would forget the first.
#[inline(always)]
pub(crate) fn max<I: Isa>(isa: I, x: I::F32, y: I::F32) -> I::F32 {
    let ops = isa.f32();
    ops.select(ops.max(y, x), y, ops.eq(y, y))
}

/// The smaller one; NaN if either is.
#[inline(always)]
pub(crate) fn min<I: Isa>(isa: I, x: I::F32, y: I::F32) -> I::F32 {
    let ops = isa.f32();
    ops.select(ops.min(y, x), y, ops.eq(y, y))
}
