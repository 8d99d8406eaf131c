//! The inner loop of matrix multiplication and convolution: a tile of rows × vectors of output held in registers.
//!
//! Rows of A are found through a table of pointers, one for each "tap" and row (Dukhan 2019, The Indirect
//! Convolution Algorithm): a matrix has one tap, a convolution one for each element of its kernel. A is broadcast
//! from memory, B comes in panels as wide as the tile. The sizes of tiles:
//!
//! | registers          | 1 vector | 2 vectors | 3 vectors |
//! |--------------------|----------|-----------|-----------|
//! | 16 (AVX2, others)  | 6 rows   | 6         | 3         |
//! | 32 (AVX-512)       | 12       | 12        | 8         |
//! | 32 × 4 lanes (NEON)| 8        | 8         | 6         |

#![expect(
    clippy::needless_range_loop,
    reason = "indices of register arrays, which unroll as they are written"
)]

mod finish;

use std::ptr;

use rten_simd::ops::{BitOps, NumOps};
use rten_simd::{Isa, SimdOp};

use finish::{finish, load};

/// The most rows of a tile: a table of row pointers has so many more entries than rows, filled with any row.
pub(crate) const MAX_ROWS: usize = 12;
/// The most vectors side by side in a tile.
pub(super) const MAX_VECTORS: usize = 3;
/// The most lanes of a vector of any instruction set here.
const MAX_LANES: usize = 16;

/// The elements of a cache line.
const LINE: usize = 16;

/// Sums of so many products give the lines of C the time to come nearer.
const FAR: usize = 48;

/// One panel of columns of the output for a block of rows: C = clamp(bias + A·B + residual), or that plus what C holds
/// already, where K is divided.
#[derive(Clone, Copy)]
pub(crate) struct Panel {
    pub(crate) rows: usize,
    /// Pointers to rows of A: for tap t and row r at `t * table_stride + r`.
    pub(crate) table: *const *const f32,
    pub(crate) table_stride: usize,
    /// Taps, and consecutive elements of A at each.
    pub(crate) taps: usize,
    pub(crate) run: usize,
    /// Elements to skip at each pointer: the first channel of a group.
    pub(crate) a_offset: usize,
    /// `taps * run` rows of `vectors` full vectors, `b_stride` elements apart.
    pub(crate) b: *const f32,
    pub(crate) b_stride: usize,
    pub(crate) vectors: usize,
    /// Elements from `b` to what will be read after it, or 0: the next panel is brought nearer while this one is met by
    /// its first rows, for weights that are read once in a run come from afar.
    pub(crate) ahead: usize,
    /// The panel's first element of the output, which has `cols` columns here and rows `c_stride` elements apart.
    pub(crate) c: *mut f32,
    pub(crate) c_stride: usize,
    pub(crate) cols: usize,
    /// `cols` elements, or null.
    pub(crate) bias: *const f32,
    pub(crate) clamp: Option<(f32, f32)>,
    /// Whether the products are added to what C holds.
    pub(crate) add: bool,
    /// The panel's first element of the residual, or null.
    pub(crate) residual: *const f32,
    pub(crate) residual_stride: usize,
}

impl Panel {
    /// Computes the panel.
    ///
    /// # Safety
    ///
    /// All pointers must be valid for what the fields say, `table` for `MAX_ROWS` entries beyond the rows of the last
    /// tap whose pointers are valid too, and nobody else may use the columns of C meanwhile.
    pub(crate) unsafe fn run(&self) {
        match self.vectors {
            1 => Run::<1>(self).dispatch(),
            2 => Run::<2>(self).dispatch(),
            _ => Run::<3>(self).dispatch(),
        }
    }
}

/// The lanes of a vector on this machine.
pub(crate) fn lanes() -> usize {
    struct Lanes;
    impl SimdOp for Lanes {
        type Output = usize;
        #[inline(always)]
        fn eval<I: Isa>(self, isa: I) -> usize {
            isa.f32().len()
        }
    }
    Lanes.dispatch()
}

struct Run<'a, const NV: usize>(&'a Panel);

impl<const NV: usize> SimdOp for Run<'_, NV> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let lanes = isa.f32().len();
        // SAFETY: what `Panel::run` demands.
        unsafe {
            // All of it is decided when compiled: `lanes` is a constant of the instruction set.
            if lanes == 16 {
                if NV == 3 { walk::<I, NV, 8, 1>(isa, self.0) } else { walk::<I, NV, 12, 1>(isa, self.0) }
            } else if cfg!(target_arch = "aarch64") {
                if NV == 3 { walk::<I, NV, 6, 1>(isa, self.0) } else { walk::<I, NV, 8, 1>(isa, self.0) }
            } else if NV == 3 {
                walk::<I, NV, 3, 1>(isa, self.0)
            } else if NV == 2 {
                walk::<I, NV, 6, 1>(isa, self.0)
            } else {
                walk::<I, NV, 6, 2>(isa, self.0)
            }
        }
    }
}

/// Tile after tile of MR rows, then one or two that are as small as what is left allows. A tile with few
/// accumulators has several sets of them, for otherwise each sum would wait for the one before.
#[inline(always)]
unsafe fn walk<I: Isa, const NV: usize, const MR: usize, const SETS: usize>(isa: I, panel: &Panel) {
    let mut row = 0;
    // SAFETY: the tiles cover the rows once; the rest is the caller's promise.
    unsafe {
        while row + MR <= panel.rows {
            tile::<I, NV, MR, SETS>(isa, panel, row, MR);
            row += MR;
        }
        match panel.rows - row {
            0 => {}
            1 => tile::<I, NV, 1, 4>(isa, panel, row, 1),
            2 => tile::<I, NV, 2, 2>(isa, panel, row, 2),
            left @ 3..=4 if MR > 4 => tile::<I, NV, 4, 1>(isa, panel, row, left),
            left @ 5..=8 if MR > 8 => tile::<I, NV, 8, 1>(isa, panel, row, left),
            left => tile::<I, NV, MR, SETS>(isa, panel, row, left),
        }
    }
}

/// MR rows from `row` on, of which the first `rows` are stored.
#[inline(always)]
unsafe fn tile<I: Isa, const NV: usize, const MR: usize, const SETS: usize>(
    isa: I,
    panel: &Panel,
    row: usize,
    rows: usize,
) {
    let ops = isa.f32();
    let lanes = ops.len();
    let mut acc = [[[ops.zero(); NV]; MR]; SETS];
    // SAFETY: `Panel::run` demands that all of these are valid.
    unsafe {
        if !panel.bias.is_null() {
            for v in 0..NV {
                let bias = load(isa, panel.bias.add(v * lanes), panel.cols - v * lanes);
                for i in 0..MR {
                    acc[0][i][v] = bias;
                }
            }
        }
        if panel.taps * panel.run >= FAR {
            for i in 0..MR {
                let c = panel.c.wrapping_add((row + i) * panel.c_stride);
                ops.prefetch_write(c);
                ops.prefetch_write(c.wrapping_add(NV * lanes - 1));
            }
        }
        let mut b = panel.b;
        // Each of the first tiles brings another line of each row of B; the others touch what is there.
        let line = row / MR * LINE;
        let ahead = if line < panel.b_stride { panel.ahead + line } else { 0 };
        for tap in 0..panel.taps {
            let entries = panel.table.add(tap * panel.table_stride + row);
            let mut a = [ptr::null::<f32>(); MR];
            for i in 0..MR {
                a[i] = (*entries.add(i)).add(panel.a_offset);
            }
            let mut k = 0;
            if cfg!(target_arch = "aarch64") && MR >= 4 {
                while k + 4 <= panel.run {
                    lane_steps::<I, NV, MR>(isa, &mut acc[0], &a, k, b, panel.b_stride);
                    b = b.add(4 * panel.b_stride);
                    k += 4;
                }
            } else {
                while k + SETS <= panel.run {
                    for set in 0..SETS {
                        // With one vector a step has as many loads as the processor can do meanwhile.
                        if NV > 1 {
                            near(b.wrapping_add(ahead));
                        }
                        step::<I, NV, MR>(isa, &mut acc[set], &a, k + set, b);
                        b = b.add(panel.b_stride);
                    }
                    k += SETS;
                }
            }
            if SETS > 1 || cfg!(target_arch = "aarch64") {
                while k < panel.run {
                    step::<I, NV, MR>(isa, &mut acc[0], &a, k, b);
                    b = b.add(panel.b_stride);
                    k += 1;
                }
            }
        }
        for set in 1..SETS {
            for i in 0..MR {
                for v in 0..NV {
                    acc[0][i][v] = ops.add(acc[0][i][v], acc[set][i][v]);
                }
            }
        }
        finish::<I, NV, MR>(isa, panel, &mut acc[0], row, rows);
    }
}

/// Asks for the line at `at` to be in the L2 cache soon; any address will do.
#[inline(always)]
fn near(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// acc += A[.., k] · B[k, ..]
#[inline(always)]
unsafe fn step<I: Isa, const NV: usize, const MR: usize>(
    isa: I,
    acc: &mut [[I::F32; NV]; MR],
    a: &[*const f32; MR],
    k: usize,
    b: *const f32,
) {
    let ops = isa.f32();
    let mut row_b = [ops.zero(); NV];
    // SAFETY: as in `tile`.
    unsafe {
        for v in 0..NV {
            row_b[v] = ops.load_ptr(b.add(v * ops.len()));
        }
        for i in 0..MR {
            let x = ops.splat(*a[i].add(k));
            for v in 0..NV {
                acc[i][v] = ops.mul_add(x, row_b[v], acc[i][v]);
            }
        }
    }
}

/// Four steps of which A is loaded as vectors of four: NEON multiplies by a lane, and broadcasting from memory would
/// cost it a vector instruction each.
#[inline(always)]
unsafe fn lane_steps<I: Isa, const NV: usize, const MR: usize>(
    isa: I,
    acc: &mut [[I::F32; NV]; MR],
    a: &[*const f32; MR],
    k: usize,
    b: *const f32,
    b_stride: usize,
) {
    let ops = isa.f32();
    let mut x = [ops.zero(); MR];
    // SAFETY: as in `tile`; a vector has four lanes here.
    unsafe {
        for i in 0..MR {
            x[i] = ops.load_ptr(a[i].add(k));
        }
        macro_rules! lane {
            ($lane:literal) => {
                let mut row_b = [ops.zero(); NV];
                for v in 0..NV {
                    row_b[v] = ops.load_ptr(b.add($lane * b_stride + v * ops.len()));
                }
                for i in 0..MR {
                    let one = ops.broadcast_lane::<$lane>(x[i]);
                    for v in 0..NV {
                        acc[i][v] = ops.mul_add(one, row_b[v], acc[i][v]);
                    }
                }
            };
        }
        lane!(0);
        lane!(1);
        lane!(2);
        lane!(3);
    }
}
