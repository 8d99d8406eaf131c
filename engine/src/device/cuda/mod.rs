//! An NVIDIA GPU as a device, with nothing but its driver: the one module that names cudarc.
//!
//! | part | what it does |
//! |---|---|
//! | `probe` | looks for the driver and all that is called of it |
//! | `context` | the driver's context, and what is known of the GPU |
//! | `binaries`, `nvrtc`, `modules` | kernels: found built ahead or compiled here, and loaded |
//! | `memory` | the slab: one allocation |
//! | `pinned`, `staging` | host memory for copies, pinned where the driver gives that; streams |
//! | `upload`, `weights` | constants on their way there, through bounded host memory |
//! | `launch`, `bind` | a step of a plan → launches of kernels |
//! | `tuning` | which kernel is the fastest for a step, once it was measured |
//! | `lane`, `transfers`, `graphs` | workspace, stream, inputs and outputs, and what was recorded |
//! | `program` | what a lane runs |
//!
//! Streams are passed and never ambient. Nothing is allocated on the device but the slab; what the driver takes for
//! recorded launches and for code that it loads late is in the headroom.

mod binaries;
mod bind;
mod context;
mod graphs;
mod kernels;
mod lane;
mod launch;
mod memory;
mod modules;
mod nvml;
mod nvrtc;
mod pinned;
mod probe;
mod program;
mod staging;
#[cfg(test)]
mod tests;
mod transfers;
mod tuning;
mod upload;
mod weights;

pub use binaries::{Binaries, Built, NotBuilt, build};
pub use nvrtc::NotCompiled;

use super::weights::WeightStore;
use super::{Constants, Device, Lane, Lanes, Manner, Memory, NoDevice, NoKernel, Prepared, Refused};
use crate::error::Error;
use crate::fuse::{AttentionKeys, Precision, Preferences};
use crate::graph::Graph;
use crate::{plan, slab};
use context::Context;
use lane::CudaLane;
use memory::DeviceMemory;
use modules::Modules;
use std::io;
use std::sync::{Arc, Mutex};
use tuning::Tuned;
use upload::Upload;

/// Bytes that every extent and every block of a workspace starts at a multiple of: what the driver gives for its own
/// allocations, and more than any kernel's widest access.
const ALIGNMENT: u64 = 256;

/// A GPU.
pub(super) struct Cuda {
    shared: Arc<Shared>,
}

/// What everything on one GPU shares.
struct Shared {
    modules: Modules,
    tuned: Tuned,
    upload: Arc<Mutex<Upload>>,
    context: Arc<Context>,
}

impl Cuda {
    /// Opens the GPU of that index and loads its kernels.
    ///
    /// # Errors
    /// There is none, or there are no kernels for it.
    pub(super) fn open(index: usize, binaries: &Binaries) -> Result<Cuda, NoDevice> {
        let context = Context::open(index)?;
        let modules = Modules::load(&context, binaries)?;
        let tuned = Tuned::open(&context, binaries);
        let upload = Upload::new(&context);
        let upload = upload.map_err(|error| NoDevice::new(&error.to_string(), "free host memory"))?;
        Ok(Cuda {
            shared: Arc::new(Shared { modules, tuned, upload: Arc::new(Mutex::new(upload)), context }),
        })
    }
}

impl Device for Cuda {
    fn kind(&self) -> &'static str {
        "cuda"
    }

    fn name(&self) -> &str {
        &self.shared.context.name
    }

    fn driver_bytes(&self) -> Result<u64, Error> {
        self.shared.context.driver_bytes()
    }

    fn own_free_bytes(&self) -> Option<u64> {
        let context = &self.shared.context;
        (!context.integrated).then(|| context.free_bytes().unwrap_or(0))
    }

    fn pinned_refused(&self) -> Option<Refused> {
        Some(self.shared.context.refused())
    }

    fn growing_lane(&self, _threads: usize) -> Result<Box<dyn Lane>, Error> {
        Ok(Box::new(CudaLane::growing(&self.shared)?))
    }

    fn computes_in(&self, _precision: Precision) -> bool {
        true
    }

    fn prepares_runs(&self) -> bool {
        true
    }

    fn preferences(&self) -> Preferences {
        // Nothing is gained by steps apart, which write their scores to memory. A launch takes longer than a small product.
        let deepest = kernels::attention::Attention::DEPTH;
        let attention = AttentionKeys { fewest: 1, fewest_selected: 1, deepest, additive: true };
        Preferences { attention: Some(attention), joined_products: true, ..Preferences::default() }
    }

    fn alignment(&self) -> u64 {
        ALIGNMENT
    }

    fn memory(&self, bytes: u64) -> io::Result<Arc<dyn Memory>> {
        let Shared { context, upload, .. } = &*self.shared;
        Ok(Arc::new(DeviceMemory::take(context, upload, bytes)?))
    }

    fn lanes(
        &self,
        memory: &Arc<dyn Memory>,
        layout: slab::Layout,
        _threads: usize,
    ) -> Result<[Lanes; 2], Error> {
        CudaLane::all(&self.shared, memory, layout)
    }

    fn constants(&self) -> Constants {
        Box::<WeightStore>::default()
    }

    fn prepare(
        &self,
        graph: Graph,
        layout: plan::Layout,
        manner: Manner,
    ) -> Result<Box<dyn Prepared>, NoKernel> {
        Ok(Box::new(program::Prepared::new(&self.shared, graph, layout, manner)?))
    }
}
