//! Softmax where the elements of a result lie along the lanes.

use super::super::lanes::{across, keep, load, store};
use super::super::math::exp_of_negative;
use super::Line;
use rten_simd::Isa;
use rten_simd::ops::{BitOps, NumOps};

/// One result whose elements lie along the lanes.
///
/// # Safety
/// The elements of `line` are valid, for writes those of the target.
#[inline(always)]
pub(super) unsafe fn result<I: Isa>(isa: I, line: Line, log: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        if line.strides == [1, 1] {
            strided(isa, Line { strides: [1, 1], ..line }, log);
        } else {
            strided(isa, line, log);
        }
    }
}

#[inline(always)]
unsafe fn strided<I: Isa>(isa: I, line: Line, log: bool) {
    const UNROLL: usize = 4;
    let ops = isa.f32();
    let lanes = ops.len();
    let Line { x, out, strides: [x_stride, out_stride], len } = line;
    let lowest = ops.splat(f32::NEG_INFINITY);
    // SAFETY: the caller's promise; every vector is of elements before `len`.
    unsafe {
        let at = |i: usize, n: usize| load(isa, x.add(i * x_stride), x_stride, n);
        let whole = len - len % (UNROLL * lanes);
        let mut most = [lowest; UNROLL];
        for i in (0..whole).step_by(UNROLL * lanes) {
            for (u, most) in most.iter_mut().enumerate() {
                *most = ops.max(*most, at(i + u * lanes, lanes));
            }
        }
        for i in (whole..len).step_by(lanes) {
            let n = (len - i).min(lanes);
            most[0] = ops.max(most[0], keep(isa, at(i, n), lowest, n));
        }
        let most = ops.max(ops.max(most[0], most[1]), ops.max(most[2], most[3]));
        let most = ops.splat(across(isa, most, |x, y| if x > y { x } else { y }));
        let exp = |x: I::F32| exp_of_negative(isa, ops.sub(x, most));
        let mut sums = [ops.zero(); UNROLL];
        for i in (0..whole).step_by(UNROLL * lanes) {
            for (u, sum) in sums.iter_mut().enumerate() {
                let e = exp(at(i + u * lanes, lanes));
                *sum = ops.add(*sum, e);
                if !log {
                    store(isa, e, out.add((i + u * lanes) * out_stride), out_stride, lanes);
                }
            }
        }
        for i in (whole..len).step_by(lanes) {
            let n = (len - i).min(lanes);
            let e = exp(at(i, n));
            sums[0] = ops.add(sums[0], keep(isa, e, ops.zero(), n));
            if !log {
                store(isa, e, out.add(i * out_stride), out_stride, n);
            }
        }
        let sum = ops.add(ops.add(sums[0], sums[1]), ops.add(sums[2], sums[3]));
        let sum = across(isa, sum, |x, y| x + y);
        if log {
            let ln = ops.splat(sum.ln());
            for i in (0..len).step_by(lanes) {
                let n = (len - i).min(lanes);
                let y = ops.sub(ops.sub(at(i, n), most), ln);
                store(isa, y, out.add(i * out_stride), out_stride, n);
            }
            return;
        }
        let factor = ops.splat(1.0 / sum);
        for i in (0..whole).step_by(UNROLL * lanes) {
            for u in 0..UNROLL {
                let to = out.add((i + u * lanes) * out_stride);
                store(isa, ops.mul(load(isa, to, out_stride, lanes), factor), to, out_stride, lanes);
            }
        }
        for i in (whole..len).step_by(lanes) {
            let n = (len - i).min(lanes);
            let to = out.add(i * out_stride);
            store(isa, ops.mul(load(isa, to, out_stride, n), factor), to, out_stride, n);
        }
    }
}
