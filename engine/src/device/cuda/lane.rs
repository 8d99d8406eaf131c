//! A lane of the GPU: a workspace, a stream, host memory that the GPU reaches, and what was recorded for programs.

use super::Shared;
use super::context::failure;
use super::graphs::Graphs;
use super::memory::DeviceMemory;
use super::pinned::Stream;
use super::staging::Staging;
use crate::device::{Lane, Lanes, Memory, Workspace};
use crate::error::Error;
use crate::slab::{Extent, Layout};
use cudarc::driver::result;
use cudarc::driver::sys::CUdeviceptr;
use std::sync::Arc;

/// Bytes of host memory that a lane keeps for inputs and outputs; what is larger goes through in pieces.
pub(super) const TRANSFER_BYTES: usize = 4 << 20;

/// Words that kernels set where values do not suit. They are at the beginning of a lane's host memory, or where that is
/// not pinned at the beginning of its workspace.
pub(super) const FLAGS: usize = 256;

/// Bytes that they take.
pub(super) const FLAGS_BYTES: usize = FLAGS * 4;

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
    pub(super) staging: Staging,
    /// The flags' first word, as kernels reach it.
    pub(super) flags: CUdeviceptr,
    // The kernels go last.
    pub(super) shared: Arc<Shared>,
}

impl CudaLane {
    /// A lane with nothing to work in yet.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn new(shared: &Arc<Shared>, staging: Staging) -> Result<CudaLane, Error> {
        let context = &shared.context;
        Ok(CudaLane {
            shared: Arc::clone(shared),
            memory: None,
            first: 0,
            bytes: 0,
            fixed: false,
            graphs: Graphs::new(context),
            stream: Stream::new(context)?,
            flags: staging.on_device().unwrap_or(0),
            staging,
        })
    }

    /// The host memory of a lane.
    fn staging(shared: &Shared) -> Result<Staging, Error> {
        Staging::new(&shared.context, FLAGS_BYTES + TRANSFER_BYTES)
    }

    /// Bytes of a workspace that are the lane's own.
    fn own_bytes(&self) -> u64 {
        if self.staging.is_pinned() { 0 } else { FLAGS_BYTES as u64 }
    }

    /// Works in an extent from now on.
    fn settle(&mut self, memory: Arc<dyn Memory>, extent: Extent) -> Result<(), Error> {
        let (first, own) = (memory.at(extent) as CUdeviceptr, self.own_bytes());
        let bytes = extent.bytes.checked_sub(own).ok_or_else(|| Error::Setting {
            setting: "lanes.workspace, memory.reserve".into(),
            reason: format!(
                "without pinned memory a lane needs {own} bytes for itself, one would have {}",
                extent.bytes
            ),
        })?;
        (self.memory, self.first, self.bytes) = (Some(memory), first + own, bytes);
        if !self.staging.is_pinned() {
            self.flags = first;
            self.clear_flags()?;
        }
        Ok(())
    }

    /// Clears the flags that are in the workspace.
    fn clear_flags(&self) -> Result<(), Error> {
        self.shared.context.enter()?;
        // SAFETY: the beginning of the workspace is the lane's own and has room for them.
        unsafe { result::memset_d8_async(self.flags, 0, FLAGS_BYTES, self.stream.raw()) }.map_err(failure)?;
        self.stream.wait()
    }

    /// Which flag was set since the last time, the first if several were. The stream has been waited for.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn take_flag(&mut self) -> Result<Option<usize>, Error> {
        let pinned = self.staging.is_pinned();
        let flags = &mut self.staging.bytes()[..FLAGS_BYTES];
        if !pinned {
            // SAFETY: as many bytes as there are at the beginning of the workspace; the stream is waited for at once.
            unsafe { result::memcpy_dtoh_async(flags, self.flags, self.stream.raw()) }.map_err(failure)?;
            self.stream.wait()?;
        }
        let set = flags.chunks_exact(4).position(|word| word != [0; 4]);
        if set.is_some() {
            flags.fill(0);
            if !pinned {
                self.clear_flags()?;
            }
        }
        Ok(set)
    }

    /// A lane outside any slab, which grows to what is run in it.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn growing(shared: &Arc<Shared>) -> Result<CudaLane, Error> {
        CudaLane::new(shared, CudaLane::staging(shared)?)
    }

    /// A lane whose workspace is memory that the caller holds.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn borrowed(shared: &Arc<Shared>, first: CUdeviceptr, bytes: u64) -> Result<CudaLane, Error> {
        let mut lane = CudaLane::growing(shared)?;
        let own = lane.own_bytes();
        (lane.first, lane.bytes, lane.fixed) = (first + own, bytes.saturating_sub(own), true);
        if own > 0 {
            lane.flags = first;
            lane.clear_flags()?;
        }
        Ok(lane)
    }

    /// Bytes that a lane in borrowed memory needs for a workspace of so many.
    pub(super) fn borrowed_bytes(workspace: u64) -> u64 {
        workspace + FLAGS_BYTES as u64
    }

    /// The steady and the burst lanes of a slab.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn all(
        shared: &Arc<Shared>,
        memory: &Arc<dyn Memory>,
        layout: Layout,
    ) -> Result<[Lanes; 2], Error> {
        // The layout, which is used up here, gives every lane an extent of its own, and none to weights.
        let of = |extents: &[Extent]| -> Result<Lanes, Error> {
            let lanes = extents.iter().map(|extent| {
                let mut lane = CudaLane::growing(shared)?;
                lane.settle(Arc::clone(memory), *extent)?;
                lane.fixed = true;
                Ok((lane.bytes, Workspace::of(Box::new(lane))))
            });
            lanes.collect()
        };
        Ok([of(layout.steady())?, of(layout.burst())?])
    }
}

impl Lane for CudaLane {
    fn at_least(&mut self, bytes: usize) -> Result<(), Error> {
        if self.memory.is_some() && self.bytes >= bytes as u64 {
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
        let extent = Extent { chunk: 0, offset_bytes: 0, bytes: bytes as u64 + self.own_bytes() };
        let taken = DeviceMemory::take(context, upload, extent.bytes).map_err(|_| Error::Memory { bytes })?;
        self.settle(Arc::new(taken), extent)
    }

    fn fill(&mut self, byte: u8) -> Result<(), Error> {
        self.shared.context.enter()?;
        // SAFETY: the workspace is the lane's, behind what is its own, and no run is under way in it.
        let filled =
            unsafe { result::memset_d8_async(self.first, byte, self.bytes as usize, self.stream.raw()) };
        filled.map_err(failure)?;
        self.stream.wait()
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
