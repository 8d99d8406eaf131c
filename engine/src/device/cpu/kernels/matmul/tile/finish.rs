//! The end of a tile: what is added to its sums, and how they are stored.

use std::ptr;

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, Simd};

use super::{MAX_LANES, MAX_VECTORS, Panel};

/// As many elements as there are, `left` or a full vector.
#[inline(always)]
pub(super) unsafe fn load<I: Isa>(isa: I, at: *const f32, left: usize) -> I::F32 {
    let ops = isa.f32();
    // SAFETY: the caller has `left` elements there.
    unsafe {
        if left >= ops.len() { ops.load_ptr(at) } else { ops.load_ptr_mask(at, ops.first_n_mask(left)) }
    }
}

/// What C holds, residual and clamp, and the store.
#[inline(always)]
pub(super) unsafe fn finish<I: Isa, const NV: usize, const MR: usize>(
    isa: I,
    panel: &Panel,
    acc: &mut [[I::F32; NV]; MR],
    row: usize,
    rows: usize,
) {
    let ops = isa.f32();
    let lanes = ops.len();
    // SAFETY: as in `tile`.
    unsafe {
        let others = [
            (if panel.add { panel.c.cast_const() } else { ptr::null() }, panel.c_stride),
            (panel.residual, panel.residual_stride),
        ];
        for (from, stride) in others {
            if !from.is_null() {
                for i in 0..MR {
                    for v in 0..NV {
                        if i < rows {
                            let at = from.add((row + i) * stride + v * lanes);
                            acc[i][v] = ops.add(acc[i][v], load(isa, at, panel.cols - v * lanes));
                        }
                    }
                }
            }
        }
        if let Some((low, high)) = panel.clamp {
            let (low, high) = (ops.splat(low), ops.splat(high));
            for i in 0..MR {
                for v in 0..NV {
                    // In this order of operands x86 passes a NaN on.
                    acc[i][v] = ops.min(high, ops.max(low, acc[i][v]));
                }
            }
        }
        for i in 0..MR {
            if i < rows {
                let c = panel.c.add((row + i) * panel.c_stride);
                if panel.cols == NV * lanes {
                    for v in 0..NV {
                        ops.store_ptr(acc[i][v], c.add(v * lanes));
                    }
                } else {
                    store_part::<I, NV>(isa, &acc[i], c, panel.cols);
                }
            }
        }
    }
}

/// Stores a row whose last vector is not full: that one is stored a second time, shifted to end with the row. Masked
/// stores are slow on some machines.
#[inline(always)]
unsafe fn store_part<I: Isa, const NV: usize>(isa: I, row: &[I::F32; NV], c: *mut f32, cols: usize) {
    let ops = isa.f32();
    let lanes = ops.len();
    // SAFETY: `cols` elements may be written at `c`, more than are in all vectors but the last.
    unsafe {
        if NV == 1 {
            let part = row[0].to_array();
            for (at, &x) in part.as_ref().iter().enumerate().take(cols) {
                *c.add(at) = x;
            }
            return;
        }
        let mut line = [0f32; MAX_VECTORS * MAX_LANES];
        for v in 0..NV {
            if v + 1 < NV {
                ops.store_ptr(row[v], c.add(v * lanes));
            }
            ops.store_ptr(row[v], line.as_mut_ptr().add(v * lanes));
        }
        ops.store_ptr(ops.load_ptr(line.as_ptr().add(cols - lanes)), c.add(cols - lanes));
    }
}
