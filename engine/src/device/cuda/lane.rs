//! A lane of the GPU: a workspace, a stream, host memory that the GPU reaches, and what was recorded for programs.

use super::Shared;
use super::graphs::Graphs;
use super::memory::DeviceMemory;
use super::pinned::{Pinned, Stream};
use crate::device::{Lane, Lanes, Memory, Workspace};
use crate::error::Error;
use crate::slab::{Extent, Layout};
use cudarc::driver::sys::CUdeviceptr;
use std::sync::Arc;

/// Bytes of host memory that a lane keeps for inputs and outputs; what is larger goes through in pieces.
pub(super) const TRANSFER_BYTES: usize = 4 << 20;

/// Words at the beginning of that memory which kernels set where values do not suit.
pub(super) const FLAGS: usize = 256;

/// Workspace, stream and host memory of one lane.
pub(super) struct CudaLane {
    /// The workspace's memory, kept as long as the lane; the whole slab's, or its own.
    memory: Option<Arc<dyn Memory>>,
    pub(super) first: CUdeviceptr,
    pub(super) bytes: u64,
    /// Whether the workspace is as large as it will ever be.
    fixed: bool,
    // Recorded graphs go before the stream that they run in and the memory that they read.
    pub(super) graphs: Graphs,
    pub(super) stream: Stream,
    /// Flags, then inputs and outputs.
    pub(super) pinned: Pinned,
    pub(super) flags: CUdeviceptr,
    // The kernels go last.
    pub(super) shared: Arc<Shared>,
}

impl CudaLane {
    fn new(shared: &Arc<Shared>, memory: Option<Arc<dyn Memory>>, extent: Extent) -> Result<CudaLane, Error> {
        let context = &shared.context;
        let pinned = Pinned::new(context, FLAGS * 4 + TRANSFER_BYTES)?;
        Ok(CudaLane {
            shared: Arc::clone(shared),
            first: memory.as_ref().map_or(0, |memory| memory.at(extent) as CUdeviceptr),
            bytes: extent.bytes,
            fixed: memory.is_some(),
            memory,
            graphs: Graphs::new(context),
            stream: Stream::new(context)?,
            flags: pinned.on_device()?,
            pinned,
        })
    }

    /// A lane outside any slab, which grows to what is run in it.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn growing(shared: &Arc<Shared>) -> Result<CudaLane, Error> {
        CudaLane::new(shared, None, Extent { chunk: 0, offset_bytes: 0, bytes: 0 })
    }

    /// The steady and the burst lanes of a slab.
    ///
    /// # Errors
    /// The driver's, or the host's threads cannot be started.
    pub(super) fn all(
        shared: &Arc<Shared>,
        memory: &Arc<dyn Memory>,
        layout: Layout,
        threads: usize,
    ) -> Result<[Lanes; 2], Error> {
        // The layout, which is used up here, gives every lane an extent of its own, and none to weights.
        let of = |extents: &[Extent]| -> Result<Lanes, Error> {
            let lanes = extents.iter().map(|extent| {
                let lane = CudaLane::new(shared, Some(Arc::clone(memory)), *extent)?;
                Ok((extent.bytes, Workspace::of(Box::new(lane), threads)?))
            });
            lanes.collect()
        };
        Ok([of(layout.steady())?, of(layout.burst())?])
    }
}

impl Lane for CudaLane {
    fn at_least(&mut self, bytes: usize) -> Result<(), Error> {
        if self.bytes >= bytes as u64 {
            return Ok(());
        }
        if self.fixed {
            let lane_bytes = self.bytes as usize;
            return Err(Error::Workspace { shapes: "of this run".into(), needed_bytes: bytes, lane_bytes });
        }
        // Nothing that was recorded for the old workspace fits the new one; each run has waited for its end.
        self.graphs.clear();
        (self.memory, self.bytes) = (None, 0);
        let Shared { context, upload, .. } = &*self.shared;
        let taken = DeviceMemory::take(context, upload, bytes as u64).map_err(|_| Error::Memory { bytes })?;
        self.first = taken.at(Extent { chunk: 0, offset_bytes: 0, bytes: bytes as u64 }) as CUdeviceptr;
        self.memory = Some(Arc::new(taken));
        self.bytes = bytes as u64;
        Ok(())
    }
}

impl Drop for CudaLane {
    fn drop(&mut self) {
        // A run that broke off may have left work behind.
        if self.shared.context.enter().is_ok() {
            let _ = self.stream.wait();
        }
    }
}
