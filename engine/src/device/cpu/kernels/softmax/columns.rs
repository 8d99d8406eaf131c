//! Softmax where each lane has a result of its own.

use super::super::lanes::{LANES, load, store};
use super::super::math::exp_of_negative;
use super::Line;
use rten_simd::ops::{BitOps, FloatOps, NumOps};
use rten_simd::{Isa, Simd};

/// `n` results side by side along the lanes.
///
/// # Safety
/// The elements of the lines, the first of which is `line`, are valid, for writes those of the target.
#[inline(always)]
pub(super) unsafe fn results<I: Isa>(isa: I, line: Line, lane: [usize; 2], n: usize, log: bool) {
    let lanes = isa.f32().len();
    let mut i = 0;
    // SAFETY: the caller's promise for the `n` columns.
    unsafe {
        let at = |i: usize| Line { x: line.x.add(i * lane[0]), out: line.out.add(i * lane[1]), ..line };
        if lane == [1, 1] {
            while i + 4 * lanes <= n {
                vectors::<I, 4>(isa, at(i), [1, 1], lanes, log);
                i += 4 * lanes;
            }
            while i + lanes <= n {
                vectors::<I, 1>(isa, at(i), [1, 1], lanes, log);
                i += lanes;
            }
        }
        while i < n {
            vectors::<I, 1>(isa, at(i), lane, (n - i).min(lanes), log);
            i += lanes;
        }
    }
}

/// `K` vectors of results side by side, `n` lanes of each.
#[inline(always)]
unsafe fn vectors<I: Isa, const K: usize>(isa: I, line: Line, lane: [usize; 2], n: usize, log: bool) {
    let ops = isa.f32();
    let lanes = ops.len();
    debug_assert!(lanes <= LANES && (K == 1 || n == lanes));
    let Line { x, out, strides: [x_stride, out_stride], len } = line;
    // SAFETY: the caller's promise.
    unsafe {
        let at = |i: usize, k: usize| load(isa, x.add(i * x_stride + k * lanes * lane[0]), lane[0], n);
        let to = |i: usize, k: usize| out.add(i * out_stride + k * lanes * lane[1]);
        let mut most = [ops.splat(f32::NEG_INFINITY); K];
        for i in 0..len {
            for (k, most) in most.iter_mut().enumerate() {
                *most = ops.max(*most, at(i, k));
            }
        }
        let mut sums = [ops.zero(); K];
        for i in 0..len {
            for k in 0..K {
                let e = exp_of_negative(isa, ops.sub(at(i, k), most[k]));
                sums[k] = ops.add(sums[k], e);
                if !log {
                    store(isa, e, to(i, k), lane[1], n);
                }
            }
        }
        let scale = sums.map(|sum| {
            if !log {
                return ops.div(ops.one(), sum);
            }
            let mut ln = sum.to_array();
            for lane in 0..lanes {
                ln[lane] = ln[lane].ln();
            }
            ops.load(ln.as_ref())
        });
        for i in 0..len {
            for k in 0..K {
                let y = if log {
                    ops.sub(ops.sub(at(i, k), most[k]), scale[k])
                } else {
                    ops.mul(load(isa, to(i, k), lane[1], n), scale[k])
                };
                store(isa, y, to(i, k), lane[1], n);
            }
        }
    }
}
