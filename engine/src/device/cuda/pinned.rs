//! Host memory that the GPU can reach, and streams.

use super::context::{Context, failure};
use crate::error::Error;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUdeviceptr, CUstream};
use std::sync::Arc;

/// Host memory that stays where it is, for copies from and to the GPU.
pub(super) struct Pinned {
    context: Arc<Context>,
    first: *mut u8,
    len: usize,
    /// The address of the first byte, as the GPU counts.
    on_device: CUdeviceptr,
}

// SAFETY: plain memory that its holder owns.
unsafe impl Send for Pinned {}

/// Usable in every context, and from the GPU.
const FLAGS: u32 = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;

impl Pinned {
    /// `len` zeroed bytes.
    ///
    /// # Errors
    /// The driver does not give them, or does not let the GPU reach them.
    pub(super) fn new(context: &Arc<Context>, len: usize) -> Result<Pinned, Error> {
        context.enter()?;
        // SAFETY: zeroed before anything else is done with it.
        let first = unsafe {
            let first: *mut u8 = result::malloc_host(len, FLAGS).map_err(failure)?.cast();
            first.write_bytes(0, len);
            first
        };
        let mut pinned = Pinned { context: Arc::clone(context), first, len, on_device: 0 };
        // SAFETY: allocated for that.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&mut pinned.on_device, first.cast(), 0) }
            .result()
            .map_err(failure)?;
        Ok(pinned)
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All bytes. The caller sees to it that the GPU is done with them.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: valid for its length and borrowed as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.len) }
    }

    /// The address of the first byte, as the GPU counts.
    pub(super) fn on_device(&self) -> CUdeviceptr {
        self.on_device
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: allocated in `new`, freed once, after its holder's last wait for the stream.
            let _ = unsafe { result::free_host(self.first.cast()) };
        }
    }
}

/// A stream of its own, which waits for no other.
pub(super) struct Stream {
    context: Arc<Context>,
    raw: CUstream,
}

// SAFETY: a handle of the driver's, which any thread may use that has entered the context.
unsafe impl Send for Stream {}

impl Stream {
    /// A new stream.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn new(context: &Arc<Context>) -> Result<Stream, Error> {
        context.enter()?;
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking).map_err(failure)?;
        Ok(Stream { context: Arc::clone(context), raw })
    }

    /// The driver's handle.
    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Waits until everything in it is done.
    ///
    /// # Errors
    /// What went wrong in it.
    pub(super) fn wait(&self) -> Result<(), Error> {
        // SAFETY: the stream lives as long as this.
        unsafe { result::stream::synchronize(self.raw) }.map_err(failure)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: created in `new`, destroyed once.
            let _ = unsafe { result::stream::destroy(self.raw) };
        }
    }
}
