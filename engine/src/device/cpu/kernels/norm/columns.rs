//! Normalisation where each lane has a result of its own.

use super::super::lanes::{LANES, load, store};
use super::super::split::BLOCK;
use super::super::walk::{self, Axis, Cursor};
use super::{Firsts, Norm, NormKind};
use rten_simd::ops::{BitOps, FloatOps, NumOps};
use rten_simd::{Isa, Simd};

/// The loops that are folded, the innermost apart.
fn loops(norm: &Norm) -> (&[Axis<4>], Axis<4>) {
    match norm.split.folded.split_last() {
        Some((inner, outer)) => (outer, *inner),
        None => (&[], Axis::ONCE),
    }
}

/// `K` vectors of results side by side along the lanes, `n` lanes of each.
///
/// # Safety
/// The elements that the loops of `norm` reach from `firsts` on are valid, for writes those of the target.
#[inline(always)]
pub(super) unsafe fn results<I: Isa, const K: usize>(isa: I, norm: &Norm, firsts: Firsts, n: usize) {
    let ops = isa.f32();
    let lanes = ops.len();
    debug_assert!(lanes <= LANES && (K == 1 || n == lanes));
    let strides = norm.split.lane.strides;
    // Source and target are contiguous along the lanes wherever several vectors are taken.
    let (from, to) = if K == 1 { (strides[0], strides[1]) } else { (1, 1) };
    let (outer, inner) = loops(norm);
    // SAFETY: the caller's promise; a tail is loaded and stored by its lanes only.
    unsafe {
        let zero = [ops.zero(); K];
        let average = match norm.kind {
            NormKind::Layer => mean(isa, norm, firsts.x, from, n, zero, false),
            NormKind::Rms => zero,
        };
        let variance = mean(isa, norm, firsts.x, from, n, average, true);
        let mut factor = variance;
        for factor in &mut factor {
            let mut lane = ops.add(*factor, ops.splat(norm.epsilon)).to_array();
            for i in 0..lanes {
                lane[i] = lane[i].sqrt();
            }
            *factor = ops.div(ops.one(), ops.load(lane.as_ref()));
        }
        let mut cursor = Cursor::new(outer, 0);
        for _ in 0..walk::count(outer) {
            for i in 0..inner.len {
                let at = firsts.add(std::array::from_fn(|t| cursor.at[t] + i * inner.strides[t]));
                for k in 0..K {
                    let x = load(isa, at.x.add(k * lanes * from), from, n);
                    let x = ops.mul(ops.sub(x, average[k]), factor[k]);
                    let scale = load(isa, at.scale.add(k * lanes * strides[2]), strides[2], n);
                    let bias = load(isa, at.bias.add(k * lanes * strides[3]), strides[3], n);
                    store(isa, ops.mul_add(x, scale, bias), at.out.add(k * lanes * to), to, n);
                }
            }
            cursor.advance();
        }
    }
}

/// The mean of x - `shift`, or of its square, of each result.
#[inline(always)]
unsafe fn mean<I: Isa, const K: usize>(
    isa: I,
    norm: &Norm,
    x: *const f32,
    stride: usize,
    n: usize,
    shift: [I::F32; K],
    squared: bool,
) -> [I::F32; K] {
    let ops = isa.f32();
    let lanes = ops.len();
    let (outer, inner) = loops(norm);
    let mut cursor = Cursor::new(outer, 0);
    let mut total = [ops.zero(); K];
    for _ in 0..walk::count(outer) {
        for block in (0..inner.len).step_by(BLOCK) {
            let mut part = [ops.zero(); K];
            for i in block..inner.len.min(block + BLOCK) {
                for k in 0..K {
                    let at = cursor.at[0] + i * inner.strides[0] + k * lanes * stride;
                    // SAFETY: the caller's promise.
                    let x = ops.sub(unsafe { load(isa, x.add(at), stride, n) }, shift[k]);
                    part[k] = if squared { ops.mul_add(x, x, part[k]) } else { ops.add(part[k], x) };
                }
            }
            for k in 0..K {
                total[k] = ops.add(total[k], part[k]);
            }
        }
        cursor.advance();
    }
    let count = ops.splat(1.0 / norm.split.count as f32);
    for total in &mut total {
        *total = ops.mul(*total, count);
    }
    total
}
