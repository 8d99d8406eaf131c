//! Devices: what runs the steps of a plan. The only unsafe code of the engine lies below this module.
//!
//! A device says what it prefers (as data, for stages that must not name one), gives the memory of a slab and the lanes
//! in it, chooses a kernel for every step, says how that kernel wants its constants to lie and what scratch it needs,
//! and later runs the kernels in a lane. To the stages above it is a `Device`.

mod batch;
mod cpu;
mod cuda;
mod host;
mod null;
mod room;
mod weights;
mod workspace;

pub use cuda::{Binaries, Built, NotBuilt, NotCompiled, build as build_kernels};

pub(crate) use batch::Batch;
pub(crate) use null::Null;
pub(crate) use room::{Held, Room};
pub use workspace::Workspace;
pub(crate) use workspace::{Lane, Lanes};

use crate::cache::{Cache, Pieces};
use crate::error::Error;
use crate::fuse::{Precision, Preferences};
use crate::graph::{DataFile, Graph};
use crate::plan::{self, Plan};
use crate::slab::{self, Extent, Moving};
use crate::tensor::Tensor;
use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A device that is ready to be used.
#[derive(Clone)]
pub struct Opened(Arc<dyn Device>);

impl Default for Opened {
    /// The processor.
    fn default() -> Opened {
        Opened(Arc::new(cpu::Cpu))
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Opened").field(&self.name()).finish()
    }
}

impl Opened {
    /// An NVIDIA GPU, by its index as the driver counts from 0; its kernels are looked for in `binaries`.
    ///
    /// # Errors
    /// It is not there or cannot be used; the reason and what to do are said.
    pub fn cuda(index: usize, binaries: &Binaries) -> Result<Opened, NoDevice> {
        Ok(Opened(Arc::new(cuda::Cuda::open(index, binaries)?)))
    }

    /// The kind of device, as the configuration names it.
    pub fn kind(&self) -> &'static str {
        self.0.kind()
    }

    /// The device's own name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Whether the device can store and multiply numbers so.
    pub fn computes_in(&self, precision: Precision) -> bool {
        self.0.computes_in(precision)
    }

    /// Bytes that the driver has taken for this process by now, on the device.
    ///
    /// # Errors
    /// The driver does not answer.
    pub fn driver_bytes(&self) -> Result<u64, Error> {
        self.0.driver_bytes()
    }

    /// Bytes of the device's own memory that nobody has taken; `None` where it has none of its own, so that what the
    /// process holds of the host's memory counts as well.
    pub fn own_free_bytes(&self) -> Option<u64> {
        self.0.own_free_bytes()
    }

    /// A workspace outside any slab, which grows to what is run in it; its runs use `threads` threads of the host.
    ///
    /// # Errors
    /// The threads cannot be started, or the device does not give what a lane needs.
    pub fn workspace(&self, threads: usize) -> Result<Workspace, Error> {
        Ok(Workspace::of(self.0.growing_lane(threads)?))
    }

    /// To the stages above.
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        Arc::clone(&self.0)
    }
}

/// A device that is not there or cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no CUDA device can be used: {reason}; {remedy}")]
pub struct NoDevice {
    /// Why.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

impl NoDevice {
    fn new(reason: &str, remedy: &str) -> NoDevice {
        NoDevice { reason: reason.into(), remedy: remedy.into() }
    }
}

/// Pinned host memory that a device's driver did not give. Ordinary memory is in its place, whose copies are slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// How often.
    pub times: u64,
    /// Bytes of all those times together.
    pub bytes: u64,
}

/// A device, to the stages above it.
pub(crate) trait Device: Send + Sync {
    /// Its kind, as the configuration names it.
    fn kind(&self) -> &'static str;

    /// Its name.
    fn name(&self) -> &str;

    /// Bytes that the driver has taken by now.
    ///
    /// # Errors
    /// The driver does not answer.
    fn driver_bytes(&self) -> Result<u64, Error>;

    /// Bytes of its own memory that nobody has taken; `None` where its memory is the host's.
    fn own_free_bytes(&self) -> Option<u64>;

    /// Pinned memory that the driver did not give by now; `None` where none is asked for.
    fn pinned_refused(&self) -> Option<Refused>;

    /// A lane outside any slab, which grows to what is run in it.
    ///
    /// # Errors
    /// It does not give what a lane needs.
    fn growing_lane(&self, threads: usize) -> Result<Box<dyn Lane>, Error>;

    /// Whether it can store and multiply numbers so.
    fn computes_in(&self, precision: Precision) -> bool;

    /// Whether the first run of a program does what later ones need not.
    fn prepares_runs(&self) -> bool {
        false
    }

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
        manner: Manner,
    ) -> Result<Box<dyn Prepared>, NoKernel>;
}

/// How a program is to compute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// How numbers are stored and multiplied, on devices that know that.
    pub(crate) precision: Precision,
    /// Threads inside an op, on the processor.
    pub(crate) threads: usize,
    /// Which kernel a step gets where there are several.
    pub(crate) pick: Pick,
}

/// Which of several kernels is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// The one that is measured to be the fastest.
    Fastest,
    /// That one, or the last, counted from the one that a rule of thumb promises most of.
    Nth(usize),
}

#[cfg(test)]
impl Manner {
    /// f32, and kernels as a rule of thumb has it.
    pub(crate) fn plain(threads: usize) -> Manner {
        Manner { precision: Precision::F32, threads, pick: Pick::Nth(0) }
    }
}

/// How long one step of a program takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTime {
    /// The step's name.
    pub step: String,
    /// Its op.
    pub op: String,
    /// The kernel that computes it; empty where there is one only.
    pub kernel: String,
    /// By itself and repeated; `None` where that cannot be told.
    pub took: Option<Duration>,
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

    /// Runs in `lane`, which has at least the plan's bytes, and adds each request's results to its `outputs`, of which
    /// there are as many; `now` is a count that goes up with every run.
    ///
    /// # Errors
    /// A kernel cannot run on these values.
    fn run(
        &self,
        lane: &mut dyn Lane,
        batch: Batch<'_>,
        outputs: &mut [Vec<Tensor>],
        now: u64,
    ) -> Result<(), Error>;

    /// Steps whose results, stored as f16, are at the end of its range or beyond, where inputs are noise between −3 and 3 and
    /// ones; `None` where there is no room to find out, or the device stores none so.
    ///
    /// # Errors
    /// The device's.
    fn beyond_range(&self, _room: &GiveRoom<'_>, _now: u64) -> Result<Option<Vec<String>>, Error> {
        Ok(None)
    }

    /// How long each step takes in a lane that has run the program; `None` where the device does not tell.
    ///
    /// # Errors
    /// The device's.
    fn step_times(&self, _lane: &mut dyn Lane, _now: u64) -> Result<Option<Vec<StepTime>>, Error> {
        Ok(None)
    }

    /// How long runs take whose inputs and outputs stay in the device's memory, timed for as long as `limit` says; `None`
    /// where the device has no memory of its own.
    ///
    /// # Errors
    /// As for a run.
    fn resident_times(
        &self,
        _lane: &mut dyn Lane,
        _batch: Batch<'_>,
        _now: u64,
        _limit: Duration,
    ) -> Result<Option<Vec<Duration>>, Error> {
        Ok(None)
    }
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

/// Bytes of host memory that could be taken without swapping; `None` where the system does not say.
pub fn host_available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
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
