//! What a step is on the GPU: launches of kernels on operands whose addresses a run knows.

use super::kernels::launch::Queue;
use super::kernels::tile;
use super::modules::Modules;
use super::tuning::{Problem, Tuned, Way};
use crate::device::weights::Packing;
use crate::device::{NoKernel, Pick};
use crate::fuse::Precision;
use crate::plan::{Operand, Step};
use crate::tensor::DType;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::{CUdeviceptr, CUstream};

/// The operands of one step, resolved for one run, and where its launches go.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a> {
    /// The kernels and the stream.
    pub(super) queue: Queue<'a>,
    /// The first element of each input.
    pub(super) inputs: &'a [CUdeviceptr],
    /// The first element of each output.
    pub(super) outputs: &'a [CUdeviceptr],
    /// As many bytes as the kernel asked for.
    pub(super) scratch: CUdeviceptr,
    /// What the kernel wanted to have beside the constants of the graph.
    pub(super) table: CUdeviceptr,
    /// A word, of host memory where that is pinned, that is 0 and that a kernel sets where the values do not suit.
    pub(super) flag: CUdeviceptr,
}

impl Operands<'_> {
    /// The stream.
    pub(super) fn stream(&self) -> CUstream {
        self.queue.stream
    }
}

/// Kernels for one step, bound to the shapes and strides of its operands. A launch may be captured: it takes nothing
/// from the device and waits for nothing.
pub(super) trait Kernel: Send + Sync {
    /// Bytes of scratch.
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// How a constant input is to be packed; `None` where it is read as the plan lays it out.
    fn packing(&self, _input: usize) -> Option<Packing> {
        None
    }

    /// Packs a constant input, laid out as the plan says.
    fn pack(&self, _input: usize, _from: &[f32], _to: &mut [u8]) {}

    /// Bytes that are to lie on the device beside the graph's constants.
    fn table(&self) -> &[u8] {
        &[]
    }

    /// What it says about the values when the kernel has set its flag, if it ever does.
    fn fault(&self) -> Option<&'static str> {
        None
    }

    /// The kernels that it could launch instead, where there are several.
    fn ways(&self) -> Option<&dyn Ways> {
        None
    }

    /// Puts the step into the stream.
    ///
    /// # Safety
    /// The operands lie where it is said, and stay there until the stream has come past the step.
    ///
    /// # Errors
    /// The driver's.
    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError>;
}

/// Several kernels that compute the same but for the rounding.
pub(super) trait Ways {
    /// What they are for.
    fn problem(&self) -> Problem;

    /// How many there are.
    fn count(&self) -> usize;

    /// One of them, as it is told from the others at every start.
    fn way(&self, at: usize) -> Way;

    /// The place of one of them.
    fn find(&self, way: Way) -> Option<usize> {
        (0..self.count()).find(|at| self.way(*at) == way)
    }

    /// Which one is launched.
    fn chosen(&self) -> usize;

    /// Launches that one from now on.
    ///
    /// # Errors
    /// The driver's; the choice stays as it was.
    fn choose(&self, at: usize, modules: &Modules) -> Result<(), DriverError>;

    /// The kernel that is launched, and its blocks.
    fn name(&self) -> String;
}

/// What binding a step needs to know of the device.
#[derive(Clone, Copy)]
pub(super) struct Binder<'a> {
    pub(super) modules: &'a Modules,
    /// What was found out to be the fastest.
    pub(super) tuned: &'a Tuned,
    pub(super) pick: Pick,
    /// How f32 numbers are multiplied.
    pub(super) precision: Precision,
}

/// So many kernels are tried for a step: the fastest is among them for nearly all.
pub(super) const TRIED: usize = 10;

impl Binder<'_> {
    /// How many kernels are worth a try.
    pub(super) fn tries(&self) -> usize {
        match self.pick {
            Pick::Fastest => TRIED,
            Pick::Nth(nth) => nth + 1,
        }
    }

    /// How products of such an operand are computed.
    ///
    /// # Errors
    /// Its elements are none that products are made of.
    pub(super) fn product(&self, step: &Step, operand: &Operand) -> Result<tile::Precision, NoKernel> {
        match (operand.dtype, self.precision) {
            (DType::F16, _) => Ok(tile::Precision::F16),
            (DType::F32, Precision::Tf32) => Ok(tile::Precision::Tf32),
            (DType::F32, _) => Ok(tile::Precision::F32),
            (other, _) => Err(none(step, format!("an operand of {other}"))),
        }
    }
}

/// The refusal of a step.
pub(super) fn none(step: &Step, reason: impl Into<String>) -> NoKernel {
    NoKernel { step: step.name.clone(), op: step.op.name().into(), reason: reason.into() }
}
