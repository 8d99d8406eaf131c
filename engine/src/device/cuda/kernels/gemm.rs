//! Products of matrices: which of gemm.cu's kernels, and its argument.

use super::epilogue::{Epilogue, Pointers};
use super::grid::{Div, Gpu, Grid};
use super::pack::Packed;
use super::tile::{self, Args, Candidate, Family, Precision, Size};

/// Elements from one position to the next: along both axes of the batch, rows (m, or n of B) and columns (k, or n of
/// C and the operand).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strides {
    pub(crate) batch: [usize; 2],
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// How B lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum B {
    /// A constant, packed as [`Packed`] says; each axis of the batch moves by so many groups.
    Packed([usize; 2]),
    /// Elements (n, k).
    Strided(Strides),
}

/// C\[m, n\] = Σk A\[m, k\] · B\[k, n\], for two axes of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gemm {
    pub(crate) precision: Precision,
    pub(crate) batch: [usize; 2],
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Strides,
    pub(crate) b: B,
    pub(crate) c: Strides,
    pub(crate) operand: Strides,
    pub(crate) epilogue: Epilogue,
}

impl Gemm {
    /// The form of a constant B, of so many matrices.
    pub(crate) fn packed(&self, groups: usize) -> Packed {
        Packed { groups, n: self.n, taps: 1, channels: self.k, precision: self.precision }
    }

    /// What candidates depend on.
    pub(crate) fn size(&self) -> Size {
        Size {
            batch: self.batch[0] * self.batch[1],
            m: self.m,
            n: self.n,
            k_blocks: self.k.div_ceil(self.precision.block()),
        }
    }

    /// The kernels for operands that lie so.
    pub(crate) fn family(&self, pointers: &Pointers) -> Family {
        let aligned = (pointers.a | pointers.b).is_multiple_of(16);
        let chunk = self.precision.chunk();
        let rows = |s: &Strides, rows: usize| {
            let outer = [(self.batch[0], s.batch[0]), (self.batch[1], s.batch[1]), (rows, s.row)];
            let whole = outer.iter().all(|(len, stride)| *len == 1 || stride.is_multiple_of(chunk));
            aligned && s.column == 1 && whole
        };
        match (rows(&self.a, self.m), &self.b) {
            (true, B::Packed(_)) => Family::Gemm,
            (false, B::Packed(_)) => Family::GemmAnyPacked,
            (true, B::Strided(b)) if rows(b, self.n) => Family::GemmRows,
            _ => Family::GemmAny,
        }
    }

    /// What a tuner may try, the most promising first; of the pointers, it matters which are multiples of 16.
    pub(crate) fn candidates(&self, pointers: &Pointers, gpu: &Gpu) -> Vec<Candidate> {
        let whole = self.args(&tile::ANY, pointers).vector == 1;
        tile::candidates(self.family(pointers), self.precision, &self.size(), whole, gpu)
    }

    /// The launch.
    pub(crate) fn grid(&self, candidate: &Candidate, gpu: &Gpu) -> Grid {
        candidate.grid(&self.size(), gpu)
    }

    /// The kernel's argument for that candidate.
    pub(crate) fn args(&self, candidate: &Candidate, pointers: &Pointers) -> Args {
        let wide = |batch: [usize; 2]| batch.map(|stride| stride as i64);
        let image = |s: &Strides| [0, 0, s.row as i32, s.column as i32];
        let mut args = Args {
            a: pointers.a,
            a_batch: wide(self.a.batch),
            c_batch: wide(self.c.batch),
            operand_batch: wide(self.operand.batch),
            batch_inner: self.batch[1].max(1) as i32,
            m: self.m as i32,
            n: self.n as i32,
            k: self.k as i32,
            k_blocks: self.size().k_blocks as i32,
            out_w: Div::new(self.m),
            out_hw: Div::new(self.m),
            flat: 1,
            c_strides: image(&self.c),
            operand_strides: image(&self.operand),
            // Where elements are gathered, A is an image of one line whose pixels are its rows.
            a_strides: image(&self.a),
            in_h: 1,
            in_w: self.m as i32,
            channels: self.k as i32,
            tap_channels: Div::new(self.k.next_multiple_of(self.precision.block())),
            window_w: Div::new(1),
            window_h: 1,
            stride: [1, 1],
            dilation: [1, 1],
            ..Args::default()
        };
        match &self.b {
            B::Packed(groups) => {
                let packed = self.packed(1);
                args.packed_rows = packed.rows() as i32;
                args.b_batch = groups.map(|step| (step * packed.group_bytes()) as i64);
            }
            B::Strided(b) => {
                args.b_batch = wide(b.batch);
                (args.b_n, args.b_k) = (b.row as i32, b.column as i32);
            }
        }
        candidate.inform(&self.size(), &mut args);
        args.finish(&self.epilogue, pointers, self.precision.chunk());
        args
    }
}
