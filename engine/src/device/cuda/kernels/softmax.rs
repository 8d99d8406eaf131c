//! Softmax and its logarithm over some axes.

use super::launch::{self, Float, Queue, Unsupported};
use super::split::{Fold, Grouping, Lies, Split, Way};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;

/// The most elements that a thread keeps of a result.
const SHORT: usize = 32;
/// Results from which on a thread each is enough.
const MANY: usize = 64 << 10;

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    x: u64,
    out: u64,
    fold: Fold<2>,
    log: u32,
}

/// exp(x − max) / Σ over some axes, or the logarithm of it, made for one shape.
pub(crate) struct Softmax {
    float: Float,
    log: bool,
    /// Whether each result is made by one thread.
    short: bool,
    empty: bool,
    packed: Option<Grouping<2>>,
    any: Grouping<2>,
}

impl Softmax {
    /// Over `axes` together of a tensor of that shape.
    pub(crate) fn new(
        float: Float,
        shape: &[usize],
        axes: &[usize],
        source_strides: &[usize],
        target_strides: &[usize],
        log: bool,
    ) -> Result<Softmax, Unsupported> {
        let split = Split::new(shape, axes, [source_strides, target_strides])?;
        let short = split.count() <= SHORT && split.folded.len() <= 1 && split.results() >= MANY;
        let (packed, any);
        if split.across() {
            let height = short.then_some(1);
            let pack = if short { 2 } else { 4 };
            let packs = split.packs_columns(pack, 2) && (!short || split.count() <= SHORT / 2);
            packed = if packs { Some(split.columns(pack, float.bytes(), height, false)?) } else { None };
            any = split.columns(1, float.bytes(), height, false)?;
        } else {
            let pack = float.pack();
            let packs = split.packs(pack, [Lies::Along; 2]);
            packed = if packs { Some(split.rows(pack, 32 / pack, 32)?) } else { None };
            any = split.rows(1, 8, 32)?;
        }
        Ok(Softmax { float, log, short, empty: shape.contains(&0), packed, any })
    }

    /// Computes it. The target may be the source, with the same strides.
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
        if self.empty {
            return Ok(());
        }
        let grouping = self.packed.as_ref().filter(|_| launch::aligned(x | out, 16)).unwrap_or(&self.any);
        let kernel = match (grouping.way, self.float, grouping.pack) {
            (Way::Rows(_), Float::F32, 1) => "softmax_rows_f32_1_8",
            (Way::Rows(1), Float::F32, _) => "softmax_rows_f32_4_1",
            (Way::Rows(2), Float::F32, _) => "softmax_rows_f32_4_2",
            (Way::Rows(_), Float::F32, _) => "softmax_rows_f32_4_8",
            (Way::Rows(_), Float::F16, 1) => "softmax_rows_f16_1_8",
            (Way::Rows(1), Float::F16, _) => "softmax_rows_f16_8_1",
            (Way::Rows(2), Float::F16, _) => "softmax_rows_f16_8_2",
            (Way::Rows(_), Float::F16, _) => "softmax_rows_f16_8_4",
            (Way::Long, Float::F32, 1) => "softmax_long_f32_1",
            (Way::Long, Float::F32, _) => "softmax_long_f32_4",
            (Way::Long, Float::F16, 1) => "softmax_long_f16_1",
            (Way::Long, Float::F16, _) => "softmax_long_f16_8",
            (Way::Columns, Float::F32, 1) if self.short => "softmax_short_f32_1",
            (Way::Columns, Float::F32, _) if self.short => "softmax_short_f32_2",
            (Way::Columns, Float::F16, 1) if self.short => "softmax_short_f16_1",
            (Way::Columns, Float::F16, _) if self.short => "softmax_short_f16_2",
            (Way::Columns, Float::F32, 1) => "softmax_columns_f32_1",
            (Way::Columns, Float::F32, _) => "softmax_columns_f32_4",
            (Way::Columns, Float::F16, 1) => "softmax_columns_f16_1",
            (Way::Columns, Float::F16, _) => "softmax_columns_f16_4",
        };
        let args = Args { x, out, fold: grouping.fold, log: u32::from(self.log) };
        // SAFETY: the caller's promise; `args` is the kernels' struct, and its loops stay within the tensors.
        unsafe { queue.launch(kernel, grouping.grid, (grouping.block, 1), grouping.shared_bytes(), &args) }
    }
}
