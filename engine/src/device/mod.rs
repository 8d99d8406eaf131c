//! Devices: what runs the steps of a plan. The only unsafe code of the engine lies below this module.
//!
//! A device says what it prefers (as data, for stages that must not name one), gives the memory of a slab and the lanes
//! in it, chooses a kernel for every step, says how that kernel wants its constants to lie and what scratch it needs,
//! and later runs the kernels in a lane. To the stages above it is a `Device`.

mod cpu;
mod room;
mod workspace;

pub(crate) use room::{Held, Room};
pub use workspace::Workspace;
pub(crate) use workspace::{Lane, Lanes};

use crate::cache::{Cache, Pieces};
use crate::error::Error;
use crate::fuse::Preferences;
use crate::graph::{DataFile, Graph};
use crate::plan::{self, Plan};
use crate::slab::{self, Extent, Moving};
use crate::tensor::Tensor;
use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which device computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The processor.
    #[default]
    Cpu,
}

impl Choice {
    pub(crate) fn open(self) -> Arc<dyn Device> {
        match self {
            Choice::Cpu => Arc::new(cpu::Cpu),
        }
    }
}

/// A device, to the stages above it.
pub(crate) trait Device: Send + Sync {
    /// What it does well, for the passes of [`crate::fuse`].
    fn preferences(&self) -> Preferences;

    /// Bytes that every extent and every block of a workspace starts at a multiple of.
    fn alignment(&self) -> u64;

    /// Takes memory, all of it now: that of the slab, once and at start; or for tools without a slab.
    ///
    /// # Errors
    /// The system's words.
    fn memory(&self, bytes: u64) -> io::Result<Arc<dyn Memory>>;

    /// The steady and the burst lanes of a slab that lies in `memory`, each with so many threads inside an op.
    ///
    /// # Errors
    /// The threads cannot be started.
    fn lanes(
        &self,
        memory: &Arc<dyn Memory>,
        layout: slab::Layout,
        threads: usize,
    ) -> Result<[Lanes; 2], Error>;

    /// What will hold the packed constants of one model, to be shared by its programs.
    fn constants(&self) -> Constants;

    /// Chooses kernels for the steps of a graph's layout and plans the workspace.
    ///
    /// # Errors
    /// A step has no kernel.
    fn prepare(
        &self,
        graph: Graph,
        layout: plan::Layout,
        threads: usize,
    ) -> Result<Box<dyn Prepared>, NoKernel>;
}

/// Memory of a device.
pub(crate) trait Memory: Send + Sync {
    /// The address of an extent's first byte, as the device counts.
    fn at(&self, extent: Extent) -> *mut u8;

    /// Does what a move has claimed: copies the bytes of one extent to another, which may overlap it.
    fn carry(&self, moving: Moving);
}

/// What a device keeps of one model's constants.
pub(crate) type Constants = Box<dyn Any + Send + Sync>;

/// Gives room for so many bytes.
pub(crate) type GiveRoom<'a> = dyn Fn(u64) -> Result<Room, Error> + 'a;

/// What a program is made of before its constants have a place.
pub(crate) trait Prepared {
    /// The plan that will be run.
    fn plan(&self) -> &Plan;

    /// Brings the constants that `constants` does not have yet into one room, and binds all operands.
    ///
    /// # Errors
    /// There is no room for the constants, or they cannot be read.
    fn finish(
        self: Box<Self>,
        constants: &Constants,
        kept: Option<&Kept<'_>>,
        room: &GiveRoom<'_>,
    ) -> Result<Box<dyn Runnable>, Error>;
}

/// A plan made ready for a device: what a lane runs.
pub(crate) trait Runnable: Send + Sync {
    /// The plan that is run.
    fn plan(&self) -> &Plan;

    /// Bytes of the packed constants, those that other programs brought included.
    fn weights_bytes(&self) -> usize;

    /// Runs in `lane`, which has at least the plan's bytes, and puts the results into `outputs`; `now` is a count that
    /// goes up with every run.
    ///
    /// # Errors
    /// A kernel cannot run on these values.
    fn run(
        &self,
        lane: &mut dyn Lane,
        inputs: &[Tensor],
        outputs: &mut Vec<Tensor>,
        now: u64,
    ) -> Result<(), Error>;
}

/// Where packed constants are kept between starts.
pub(crate) struct Kept<'a> {
    /// The packed constants on disk.
    pub(crate) pieces: &'a Pieces,
    /// The model's files, whose places tell constants apart.
    pub(crate) files: &'a [Arc<DataFile>],
    /// Hears why constants could not be kept.
    pub(crate) cache: &'a Cache,
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Blocks of memory for weights and workspaces that the process has allocated on any device: where there is a slab,
/// that is the only one.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Counts an allocation; to be called by whoever makes one.
fn allocated() {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
}

/// A step for which a device has no kernel, though the stages before should have left none: a fault of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no kernel for step `{step}` ({op}): {reason}")]
pub struct NoKernel {
    /// The step's name.
    pub step: String,
    /// Its op.
    pub op: String,
    /// What about it.
    pub reason: String,
}
