//! Host bytes to the GPU in bounded pieces: while one piece is under way the next is put together.

use super::context::{Context, failure};
use super::pinned::Stream;
use super::staging::Staging;
use crate::error::Error;
use cudarc::driver::result;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use std::sync::Arc;

/// Bytes of a piece.
const PART_BYTES: usize = 4 << 20;

/// Two pieces of host memory and the stream that empties them.
pub(super) struct Upload {
    context: Arc<Context>,
    stream: Stream,
    halves: [Staging; 2],
    /// Which one is filled next.
    next: usize,
    /// Whether a copy out of it may be under way.
    busy: [bool; 2],
}

impl Upload {
    /// For one GPU.
    ///
    /// # Errors
    /// The system does not have the memory, or the driver gives no stream.
    pub(super) fn new(context: &Arc<Context>) -> Result<Upload, Error> {
        Upload::with(context, [Staging::new(context, PART_BYTES)?, Staging::new(context, PART_BYTES)?])
    }

    /// With these halves, each of [`PART_BYTES`].
    ///
    /// # Errors
    /// The driver gives no stream.
    pub(super) fn with(context: &Arc<Context>, halves: [Staging; 2]) -> Result<Upload, Error> {
        let stream = Stream::new(context)?;
        Ok(Upload { context: Arc::clone(context), stream, halves, next: 0, busy: [false; 2] })
    }

    /// Bytes that go at a time.
    pub(super) fn part_bytes(&self) -> usize {
        PART_BYTES
    }

    /// The stream that the copies are in.
    pub(super) fn stream(&self) -> CUstream {
        self.stream.raw()
    }

    /// Copies bytes to an address. They may still be under way afterwards; the caller has entered the context.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn put(&mut self, to: CUdeviceptr, bytes: &[u8]) -> Result<(), Error> {
        for (at, part) in bytes.chunks(PART_BYTES).enumerate() {
            let half = self.next;
            self.next = 1 - half;
            if self.busy[half] {
                self.finish()?;
            }
            let staged = &mut self.halves[half].bytes()[..part.len()];
            staged.copy_from_slice(part);
            self.busy[half] = true;
            // SAFETY: the caller's address has room for the bytes, and the half stays as it is until the copy is done.
            unsafe { result::memcpy_htod_async(to + (at * PART_BYTES) as u64, staged, self.stream.raw()) }
                .map_err(failure)?;
        }
        Ok(())
    }

    /// Copies at most [`Upload::part_bytes`] from one address to another by way of the host, so that they may overlap.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn bounce(&mut self, from: CUdeviceptr, to: CUdeviceptr, bytes: usize) -> Result<(), Error> {
        self.finish()?;
        let staged = &mut self.halves[0].bytes()[..bytes];
        // SAFETY: the caller's address has so many bytes, and the stream is waited for at once.
        unsafe { result::memcpy_dtoh_async(staged, from, self.stream.raw()) }.map_err(failure)?;
        // Memory that is not pinned may be read when the next copy is asked for, and not only when its turn comes.
        self.stream.wait()?;
        // SAFETY: as above, and the half stays as it is until the copy is done.
        unsafe { result::memcpy_htod_async(to, staged, self.stream.raw()) }.map_err(failure)?;
        self.busy[0] = true;
        Ok(())
    }

    /// Waits until every copy is done.
    ///
    /// # Errors
    /// What went wrong with one.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        self.busy = [false; 2];
        self.stream.wait()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // What broke off may have left copies behind that still read the halves.
        if self.context.enter().is_ok() {
            let _ = self.stream.wait();
        }
    }
}
