//! Attention in one kernel: which of attention.cu's, and its argument.

use super::gemm::Strides;
use super::grid::{Gpu, Grid};
use super::tile::Precision;
use cudarc::driver::sys::CUdeviceptr;

/// softmax(scale · q · kᵀ + mask) · v for two axes of a batch. Rows are queries or keys, columns elements of them; of
/// the mask, which is f32 always, rows are queries and columns keys, and strides of 0 repeat it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    pub(crate) precision: Precision,
    pub(crate) batch: [usize; 2],
    pub(crate) queries: usize,
    pub(crate) keys: usize,
    /// Elements of a query and a key, and of a value: at most [`Attention::DEPTH`].
    pub(crate) depth: usize,
    pub(crate) columns: usize,
    pub(crate) q: Strides,
    pub(crate) k: Strides,
    pub(crate) v: Strides,
    pub(crate) y: Strides,
    /// Added to the scaled scores, stored as the rest is.
    pub(crate) mask: Option<Strides>,
    pub(crate) scale: f32,
    /// Whether a query with nothing but masks of −∞ gets zeros; otherwise −∞ is taken for a large finite number.
    pub(crate) zeroes: bool,
}

/// Addresses of first elements; the mask's is 0 where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pointers {
    pub(crate) q: CUdeviceptr,
    pub(crate) k: CUdeviceptr,
    pub(crate) v: CUdeviceptr,
    pub(crate) mask: CUdeviceptr,
    pub(crate) y: CUdeviceptr,
}

/// A kernel of attention.cu.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Candidate {
    precision: Precision,
    /// Elements of a row that there is room for.
    depth: usize,
    form: Form,
}

/// How the warps of a block divide queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// 16 queries, whose keys four warps share.
    Few,
    /// 64 queries, 16 for each of four warps.
    Many,
    /// 32 queries, whose keys two rows of two warps share.
    Pairs,
    /// 64 queries, whose keys two rows of four warps share.
    Both,
}

impl Candidate {
    /// The kernel's name.
    pub(crate) fn kernel(&self) -> String {
        let form = match self.form {
            Form::Few => "few",
            Form::Many => "many",
            Form::Pairs => "pairs",
            Form::Both => "both",
        };
        format!("attention_{}_{}_{form}", self.precision.name(), self.depth)
    }

    fn queries(&self) -> usize {
        match self.form {
            Form::Few => 16,
            Form::Pairs => 32,
            Form::Many | Form::Both => 64,
        }
    }

    /// Shared memory of a block: queries and the stages of keys and values, or the parts of the result.
    pub(crate) fn shared_bytes(&self) -> usize {
        let row = self.depth * self.precision.bytes();
        // Two stages of keys, or one of several warps with their own.
        let keys = match (self.form, self.depth) {
            (Form::Few, 64) => 4 * 32,
            (Form::Few, _) => 4 * 16,
            (_, 64) if self.precision != Precision::F32 => 2 * 64,
            _ => 2 * 32,
        };
        let rows = match self.form {
            Form::Few => 4,
            Form::Many => 1,
            Form::Pairs | Form::Both => 2,
        };
        let parts = rows * self.queries() * (self.depth + 4) * 4;
        (self.queries() * row + 2 * keys * row).max(parts)
    }
}

/// The kernels' argument. As `Attention` in attention.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args {
    q: CUdeviceptr,
    k: CUdeviceptr,
    v: CUdeviceptr,
    mask: CUdeviceptr,
    y: CUdeviceptr,
    q_batch: [i64; 2],
    k_batch: [i64; 2],
    v_batch: [i64; 2],
    y_batch: [i64; 2],
    mask_batch: [i64; 2],
    batch_inner: i32,
    queries: i32,
    keys: i32,
    depth: i32,
    columns: i32,
    q_strides: [i32; 2],
    k_strides: [i32; 2],
    v_strides: [i32; 2],
    y_strides: [i32; 2],
    mask_strides: [i32; 2],
    vector: i32,
    vector_y: i32,
    scale: f32,
    zeroes: i32,
}

// As large as the kernels take it for.
const _: () = assert!(size_of::<Args>() == 200);

impl Attention {
    /// Elements of a query, key or value at most.
    pub(crate) const DEPTH: usize = 128;

    /// What a tuner may try, the most promising first; none where rows are too long.
    pub(crate) fn candidates(&self, gpu: &Gpu) -> Vec<Candidate> {
        let depth = match self.depth.max(self.columns) {
            0..=64 => 64,
            65..=Attention::DEPTH => 128,
            _ => return vec![],
        };
        let few = Candidate { precision: self.precision, depth, form: Form::Few };
        let form = |form| Candidate { form, ..few };
        let (many, pairs, both) = (form(Form::Many), form(Form::Pairs), form(Form::Both));
        let blocks = self.batch[0] * self.batch[1] * self.queries.div_ceil(64);
        let first = if blocks < 2 * gpu.processors { [few, many] } else { [many, few] };
        let mut list = first.to_vec();
        if depth == 64 {
            list.extend([pairs, both]);
        }
        list.retain(|candidate| candidate.shared_bytes() <= gpu.shared_bytes);
        list
    }

    /// The launch.
    pub(crate) fn grid(&self, candidate: &Candidate, gpu: &Gpu) -> Grid {
        let batch = self.batch[0] * self.batch[1];
        Grid {
            blocks: [self.queries.div_ceil(candidate.queries()) as u32, batch as u32, 1],
            threads: if candidate.form == Form::Both { 256 } else { 128 },
            shared_bytes: candidate.shared_bytes() as u32,
            cluster: 1,
            dependent: gpu.capability >= 90,
        }
    }

    /// The kernel's argument.
    pub(crate) fn args(&self, pointers: &Pointers) -> Args {
        let batch = |s: &Strides| s.batch.map(|stride| stride as i64);
        let strides = |s: &Strides| [s.row as i32, s.column as i32];
        let chunk = self.precision.chunk();
        let whole = |s: &Strides, address: CUdeviceptr| {
            let outer = [s.batch[0], s.batch[1], s.row];
            s.column == 1
                && outer.iter().all(|stride| stride.is_multiple_of(chunk))
                && address.is_multiple_of(16)
        };
        let mask = self.mask.unwrap_or_default();
        let vector = whole(&self.q, pointers.q) && whole(&self.k, pointers.k) && whole(&self.v, pointers.v);
        Args {
            q: pointers.q,
            k: pointers.k,
            v: pointers.v,
            mask: if self.mask.is_some() { pointers.mask } else { 0 },
            y: pointers.y,
            q_batch: batch(&self.q),
            k_batch: batch(&self.k),
            v_batch: batch(&self.v),
            y_batch: batch(&self.y),
            mask_batch: batch(&mask),
            batch_inner: self.batch[1].max(1) as i32,
            queries: self.queries as i32,
            keys: self.keys as i32,
            depth: self.depth as i32,
            columns: self.columns as i32,
            q_strides: strides(&self.q),
            k_strides: strides(&self.k),
            v_strides: strides(&self.v),
            y_strides: strides(&self.y),
            mask_strides: strides(&mask),
            vector: i32::from(vector),
            vector_y: i32::from(whole(&self.y, pointers.y)),
            scale: self.scale,
            zeroes: i32::from(self.zeroes),
        }
    }
}
