//! Host bytes to the GPU in bounded pieces: while one piece is under way the next is put together.

use super::context::{Context, failure};
use super::pinned::{Pinned, Stream};
use crate::error::Error;
use cudarc::driver::result;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use std::sync::Arc;

/// Bytes of a piece.
const PART_BYTES: usize = 4 << 20;

/// Two pieces of host memory and the stream that empties them.
pub(super) struct Upload {
    stream: Stream,
    halves: [Pinned; 2],
    /// Which one is filled next.
    next: usize,
    /// Whether a copy out of it may be under way.
    busy: [bool; 2],
}

impl Upload {
    /// For one GPU.
    ///
    /// # Errors
    /// The driver does not give the memory.
    pub(super) fn new(context: &Arc<Context>) -> Result<Upload, Error> {
        let halves = [Pinned::new(context, PART_BYTES)?, Pinned::new(context, PART_BYTES)?];
        Ok(Upload { stream: Stream::new(context)?, halves, next: 0, busy: [false; 2] })
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
        // SAFETY: the caller's addresses have so many bytes; the stream does the second copy after the first.
        unsafe {
            result::memcpy_dtoh_async(staged, from, self.stream.raw()).map_err(failure)?;
            result::memcpy_htod_async(to, staged, self.stream.raw()).map_err(failure)?;
        }
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
