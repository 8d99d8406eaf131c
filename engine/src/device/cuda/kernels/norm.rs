//! Normalisation over some axes: to mean 0 and variance 1, or to mean square 1.

use super::launch::{self, Float, Queue, Unsupported};
use super::split::{Fold, Grouping, Lies, Split, Way};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;

/// What is made 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormKind {
    /// The variance: (x − mean) / √(variance + ε), the variance that of all elements (biased).
    Layer,
    /// The mean square: x / √(mean square + ε).
    Rms,
}

/// What a normalisation reads and writes, and how; strides in elements.
pub(crate) struct Problem<'a> {
    /// What is made 1.
    pub(crate) kind: NormKind,
    /// How source and target are stored.
    pub(crate) float: Float,
    /// Their shape.
    pub(crate) shape: &'a [usize],
    /// Over which axes together.
    pub(crate) axes: &'a [usize],
    /// The source's.
    pub(crate) source_strides: &'a [usize],
    /// The target's.
    pub(crate) target_strides: &'a [usize],
    /// The scale's, where there is one, 0 where it is broadcast.
    pub(crate) scale_strides: Option<&'a [usize]>,
    /// The shift's, likewise.
    pub(crate) shift_strides: Option<&'a [usize]>,
    /// Whether scale and shift are f32 whatever the source is.
    pub(crate) wide_parameters: bool,
    /// ε.
    pub(crate) epsilon: f32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    x: u64,
    out: u64,
    scale: u64,
    shift: u64,
    fold: Fold<4>,
    epsilon: f32,
    inverse_count: f32,
    center: u32,
    wide: u32,
}

/// A normalisation, then · scale + shift, made for one shape.
pub(crate) struct Norm {
    float: Float,
    args: Args,
    empty: bool,
    packed: Option<Grouping<4>>,
    any: Grouping<4>,
    parameters: [bool; 2],
}

impl Norm {
    /// For that problem.
    pub(crate) fn new(problem: &Problem<'_>) -> Result<Norm, Unsupported> {
        let &Problem { float, shape, scale_strides, shift_strides, .. } = problem;
        let none = vec![0; shape.len()];
        let strides = [
            problem.source_strides,
            problem.target_strides,
            scale_strides.unwrap_or(&none),
            shift_strides.unwrap_or(&none),
        ];
        let split = Split::new(shape, problem.axes, strides)?;
        let (packed, any);
        if split.across() {
            packed = if split.packs_columns(4, 2) {
                Some(split.columns(4, float.bytes(), None, false)?)
            } else {
                None
            };
            any = split.columns(1, float.bytes(), None, false)?;
        } else {
            let pack = float.pack();
            let lies = [Lies::Along, Lies::Along, Lies::AlongOrStill, Lies::AlongOrStill];
            let packs = split.packs(pack, lies);
            packed = if packs { Some(split.rows(pack, 32 / pack, 32)?) } else { None };
            any = split.rows(1, 8, 32)?;
        }
        let args = Args {
            x: 0,
            out: 0,
            scale: 0,
            shift: 0,
            fold: any.fold,
            epsilon: problem.epsilon,
            inverse_count: 1.0 / split.count() as f32,
            center: u32::from(problem.kind == NormKind::Layer),
            wide: u32::from(problem.wide_parameters || float == Float::F32),
        };
        let parameters = [scale_strides.is_some(), shift_strides.is_some()];
        Ok(Norm { float, args, empty: shape.contains(&0), packed, any, parameters })
    }

    /// Computes it. The target may be the source, with the same strides.
    ///
    /// # Safety
    /// The tensors lie at these addresses and stay there until the stream has come past the launch.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn launch(
        &self,
        queue: Queue<'_>,
        x: CUdeviceptr,
        scale: Option<CUdeviceptr>,
        shift: Option<CUdeviceptr>,
        out: CUdeviceptr,
    ) -> Result<(), DriverError> {
        debug_assert_eq!(self.parameters, [scale.is_some(), shift.is_some()], "an address per parameter");
        if self.empty {
            return Ok(());
        }
        let (scale, shift) = (scale.unwrap_or(0), shift.unwrap_or(0));
        let aligned = launch::aligned(x | out | scale | shift, 16);
        let grouping = self.packed.as_ref().filter(|_| aligned).unwrap_or(&self.any);
        let kernel = match (grouping.way, self.float, grouping.pack) {
            (Way::Rows(_), Float::F32, 1) => "norm_rows_f32_1_8",
            (Way::Rows(1), Float::F32, _) => "norm_rows_f32_4_1",
            (Way::Rows(2), Float::F32, _) => "norm_rows_f32_4_2",
            (Way::Rows(_), Float::F32, _) => "norm_rows_f32_4_8",
            (Way::Rows(_), Float::F16, 1) => "norm_rows_f16_1_8",
            (Way::Rows(1), Float::F16, _) => "norm_rows_f16_8_1",
            (Way::Rows(2), Float::F16, _) => "norm_rows_f16_8_2",
            (Way::Rows(_), Float::F16, _) => "norm_rows_f16_8_4",
            (Way::Long, Float::F32, 1) => "norm_long_f32_1",
            (Way::Long, Float::F32, _) => "norm_long_f32_4",
            (Way::Long, Float::F16, 1) => "norm_long_f16_1",
            (Way::Long, Float::F16, _) => "norm_long_f16_8",
            (Way::Columns, Float::F32, 1) => "norm_columns_f32_1",
            (Way::Columns, Float::F32, _) => "norm_columns_f32_4",
            (Way::Columns, Float::F16, 1) => "norm_columns_f16_1",
            (Way::Columns, Float::F16, _) => "norm_columns_f16_4",
        };
        let args = Args { x, out, scale, shift, fold: grouping.fold, ..self.args };
        // SAFETY: the caller's promise; `args` is the kernels' struct, and its loops stay within the tensors.
        unsafe { queue.launch(kernel, grouping.grid, (grouping.block, 1), grouping.shared_bytes(), &args) }
    }
}
