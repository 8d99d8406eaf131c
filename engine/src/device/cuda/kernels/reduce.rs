//! Sums, extremes and products over some axes, and the positions of extremes.

use super::axes::{self, Divider};
use super::launch::{self, Float, Queue, Unsupported};
use super::split::{BLOCKS, Fold, Grouping, Lies, Split, Way};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;

/// Loads of a thread that are worth a second launch to be shared.
const MANY: usize = 64;
/// The most threads that share a result.
const LANES: usize = 512;

/// What is made of the elements of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum ReduceOp {
    Sum,
    Mean,
    /// NaN if any element is.
    Max,
    /// NaN if any element is.
    Min,
    Product,
    /// Σ x².
    SumOfSquares,
    /// Σ x² / count.
    MeanOfSquares,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    x: u64,
    out: u64,
    fold: Fold<2>,
    part_blocks: Divider,
    part_len: u32,
    part_stride: u32,
    op: u32,
    half_out: u32,
    factor: f32,
}

/// A reduction over some axes, made for one shape.
pub(crate) struct Reduce {
    float: Float,
    first: Pass,
    /// Of the parts' results, where each result is made in several parts.
    second: Option<Pass>,
    scratch_bytes: usize,
}

/// One launch.
struct Pass {
    packed: Option<Grouping<2>>,
    any: Grouping<2>,
    parts: usize,
    args: Args,
}

impl ReduceOp {
    /// The kernel's number for it, and for joining what parts have made.
    fn codes(self) -> (u32, u32) {
        match self {
            ReduceOp::Sum | ReduceOp::Mean => (0, 0),
            ReduceOp::Max => (1, 1),
            ReduceOp::Min => (2, 2),
            ReduceOp::Product => (3, 3),
            ReduceOp::SumOfSquares | ReduceOp::MeanOfSquares => (4, 0),
        }
    }
}

impl Reduce {
    /// Over `axes` of a tensor of that shape. `target_strides` has an entry per axis of the source; those of
    /// `axes` do not count. Over no element a sum is 0, a product 1, a maximum −∞, a minimum ∞, a mean NaN.
    pub(crate) fn new(
        op: ReduceOp,
        float: Float,
        shape: &[usize],
        axes: &[usize],
        source_strides: &[usize],
        target_strides: &[usize],
    ) -> Result<Reduce, Unsupported> {
        let target: Vec<usize> = (0..shape.len())
            .map(|axis| if axes.contains(&axis) { 0 } else { target_strides[axis] })
            .collect();
        let split = Split::new(shape, axes, [source_strides, &target])?;
        let (count, results) = (split.count(), split.results());
        let factor = match op {
            ReduceOp::Mean | ReduceOp::MeanOfSquares => 1.0 / count as f32,
            _ => 1.0,
        };
        let (code, joining) = op.codes();
        let mut first = Pass::new(&split, float.pack(), code)?;
        let parts = first.parts(count);
        first.args.half_out = u32::from(float == Float::F16);
        if parts <= 1 || results == 0 {
            first.args.factor = factor;
            return Ok(Reduce { float, first, second: None, scratch_bytes: 0 });
        }
        // The first launch writes f32 results, all of a part after another, in the order of the kept loops.
        let mut dense = split.clone();
        let mut stride = 1;
        for axis in dense.kept.iter_mut().rev() {
            axis.strides[1] = stride;
            stride *= axis.len;
        }
        let mut first = Pass::new(&dense, float.pack(), code)?;
        let part = count.div_ceil(parts).next_multiple_of(float.pack());
        first.parts = count.div_ceil(part);
        (first.args.part_len, first.args.part_stride) = (part as u32, results as u32);
        let mut joined = split;
        for (axis, dense) in joined.kept.iter_mut().zip(&dense.kept) {
            axis.strides[0] = dense.strides[1];
        }
        joined.folded = [axes::Axis { len: first.parts, strides: [results, 0] }].into_iter().collect();
        let mut second = Pass::new(&joined, Float::F32.pack(), joining)?;
        second.args.half_out = u32::from(float == Float::F16);
        second.args.factor = factor;
        let scratch_bytes = first.parts * results * 4;
        Ok(Reduce { float, first, second: Some(second), scratch_bytes })
    }

    /// The scratch that a launch needs.
    pub(crate) fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    /// Computes it. Source, target and scratch must not overlap.
    ///
    /// # Safety
    /// Source and target lie at these addresses and `scratch` has the bytes that [`Reduce::scratch_bytes`]
    /// says, at a multiple of 16, until the stream has come past the launch.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn launch(
        &self,
        queue: Queue<'_>,
        x: CUdeviceptr,
        out: CUdeviceptr,
        scratch: CUdeviceptr,
    ) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.second {
                None => self.first.launch(queue, self.float, x, out),
                Some(second) => {
                    self.first.launch(queue, self.float, x, scratch)?;
                    second.launch(queue, Float::F32, scratch, out)
                }
            }
        }
    }
}

impl Pass {
    fn new(split: &Split<2>, pack: usize, op: u32) -> Result<Pass, Unsupported> {
        let (packed, any);
        if split.across() {
            // What will be made in parts anyway.
            let wide = split.count() > MANY * LANES / 8;
            // The results themselves are stored one by one.
            let mut source = split.clone();
            source.kept.iter_mut().chain(&mut source.folded).for_each(|axis| axis.strides[1] = 0);
            packed = if source.packs_columns(pack, 1) {
                Some(split.columns(pack, 16 / pack, None, wide)?)
            } else {
                None
            };
            any = split.columns(1, 16 / pack, None, wide)?;
        } else {
            let packs = split.packs(pack, [Lies::Along, Lies::Anyhow]);
            packed = if packs { Some(rows(split, pack, 32)?) } else { None };
            any = rows(split, 1, 32)?;
        }
        Ok(Pass { packed, any, parts: 1, args: Args::of(split, &any, op) })
    }

    /// In how many parts each result is best made: in several where few blocks would have many loads a
    /// thread.
    fn parts(&self, count: usize) -> usize {
        let grouping = self.packed.as_ref().unwrap_or(&self.any);
        let loads = count.div_ceil(grouping.threads_a_result());
        if loads <= MANY || grouping.grid as usize >= BLOCKS {
            return 1;
        }
        (loads / 8).min(2 * BLOCKS / (grouping.grid as usize).max(1)).max(1)
    }

    unsafe fn launch(
        &self,
        queue: Queue<'_>,
        float: Float,
        x: CUdeviceptr,
        out: CUdeviceptr,
    ) -> Result<(), DriverError> {
        let grouping = self.packed.as_ref().filter(|_| launch::aligned(x, 16)).unwrap_or(&self.any);
        let kernel = match (grouping.way == Way::Columns, float, grouping.pack) {
            (false, Float::F32, 1) => "reduce_rows_f32_1",
            (false, Float::F32, _) => "reduce_rows_f32_4",
            (true, Float::F32, 1) => "reduce_columns_f32_1",
            (true, Float::F32, _) => "reduce_columns_f32_4",
            (false, Float::F16, 1) => "reduce_rows_f16_1",
            (false, Float::F16, _) => "reduce_rows_f16_8",
            (true, Float::F16, 1) => "reduce_columns_f16_1",
            (true, Float::F16, _) => "reduce_columns_f16_8",
        };
        let part_blocks = Divider::new(grouping.grid as usize);
        let args = Args { x, out, fold: grouping.fold, part_blocks, ..self.args };
        let grid = grouping.grid * self.parts as u32;
        // SAFETY: the caller's promise; `args` is the kernels' struct, and its loops stay within the tensors.
        unsafe { queue.launch(kernel, grid, (grouping.block, 1), grouping.shared_bytes(), &args) }
    }
}

impl Args {
    /// Of one part, with a factor of 1 and f32 results.
    fn of(split: &Split<2>, grouping: &Grouping<2>, op: u32) -> Args {
        Args {
            x: 0,
            out: 0,
            fold: grouping.fold,
            part_blocks: Divider::new(1),
            part_len: split.count() as u32,
            part_stride: 0,
            op,
            half_out: 0,
            factor: 1.0,
        }
    }
}

/// Threads for results along memory: each loops over what is beyond a few packs.
fn rows(split: &Split<2>, pack: usize, lanes: usize) -> Result<Grouping<2>, Unsupported> {
    let packs = split.count().div_ceil(pack);
    split.rows(pack, packs.div_ceil(LANES).max(8), lanes)
}

/// Argmax or argmin along one axis, as i64, made for one shape.
pub(crate) struct ArgReduce {
    float: Float,
    grouping: Grouping<2>,
    min: bool,
    last: bool,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ArgArgs {
    x: u64,
    out: u64,
    fold: Fold<2>,
    smallest: u32,
    last: u32,
}

impl ArgReduce {
    /// Along `axis`, which must not be empty if there are results. `target_strides` has an entry per axis of
    /// the source; that of `axis` does not count. Of equal elements the first counts, or the last if `last`.
    pub(crate) fn new(
        min: bool,
        last: bool,
        float: Float,
        shape: &[usize],
        axis: usize,
        source_strides: &[usize],
        target_strides: &[usize],
    ) -> Result<ArgReduce, Unsupported> {
        let mut target = target_strides.to_vec();
        target[axis] = 0;
        let split = Split::new(shape, &[axis], [source_strides, &target])?;
        if split.count() == 0 && split.results() > 0 {
            return Err(Unsupported::Other("no element to choose from"));
        }
        Ok(ArgReduce { float, grouping: rows(&split, 1, 1)?, min, last })
    }

    /// Computes it.
    ///
    /// # Safety
    /// Source and target lie at these addresses and stay there until the stream has come past the launch.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn launch(
        &self,
        queue: Queue<'_>,
        x: CUdeviceptr,
        out: CUdeviceptr,
    ) -> Result<(), DriverError> {
        let kernel = if self.float == Float::F32 { "reduce_arg_f32" } else { "reduce_arg_f16" };
        let Grouping { fold, grid, block, .. } = self.grouping;
        let (smallest, last) = (u32::from(self.min), u32::from(self.last));
        // SAFETY: the caller's promise; the argument is the kernel's struct, and its loops stay within the
        // tensors.
        unsafe { queue.launch(kernel, grid, (block, 1), 0, &ArgArgs { x, out, fold, smallest, last }) }
    }
}
