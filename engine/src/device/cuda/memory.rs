//! The slab on the GPU: one allocation, and addresses in it.

use super::context::{Context, failure, text};
use super::upload::Upload;
use crate::device::{Memory, allocated};
use crate::error::{Error, size};
use crate::slab::{Extent, Moving};
use cudarc::driver::result;
use cudarc::driver::sys::CUdeviceptr;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory of the GPU, all of it taken at once.
pub(super) struct DeviceMemory {
    context: Arc<Context>,
    upload: Arc<Mutex<Upload>>,
    first: CUdeviceptr,
    bytes: u64,
}

impl DeviceMemory {
    /// Takes so many bytes.
    ///
    /// # Errors
    /// The driver does not give them; its words, and what it has.
    pub(super) fn take(
        context: &Arc<Context>,
        upload: &Arc<Mutex<Upload>>,
        bytes: u64,
    ) -> io::Result<DeviceMemory> {
        context.enter().map_err(io::Error::other)?;
        // SAFETY: nothing is read before it is written: weights are brought, and a plan writes what it reads.
        let first = unsafe { result::malloc_sync(bytes.max(1) as usize) };
        let first = first.map_err(|error| {
            let words = text(error);
            io::Error::other(match result::mem_get_info() {
                Ok((free, total)) => {
                    format!("{words}; {} of the GPU's {} are free", size(free as u64), size(total as u64))
                }
                Err(_) => words,
            })
        })?;
        allocated();
        Ok(DeviceMemory { context: Arc::clone(context), upload: Arc::clone(upload), first, bytes })
    }

    /// The address of an extent.
    fn address(&self, extent: Extent) -> CUdeviceptr {
        // The slab is one chunk.
        assert!(extent.chunk == 0 && extent.end_bytes() <= self.bytes, "an extent outside the slab");
        self.first + extent.offset_bytes
    }

    /// Copies `bytes` from one place to another, which may overlap it.
    fn copy(&self, from: CUdeviceptr, to: CUdeviceptr, bytes: u64) -> Result<(), Error> {
        self.context.enter()?;
        let mut upload = self.upload.lock().unwrap_or_else(PoisonError::into_inner);
        for Part { from, to, bytes, apart } in parts(from, to, bytes, upload.part_bytes() as u64) {
            match apart {
                // SAFETY: both lie inside the memory and do not overlap; the stream does one copy after the other.
                true => unsafe {
                    result::memcpy_dtod_async(to, from, bytes as usize, upload.stream()).map_err(failure)?;
                },
                false => upload.bounce(from, to, bytes as usize)?,
            }
        }
        upload.finish()
    }
}

impl Memory for DeviceMemory {
    fn at(&self, extent: Extent) -> *mut u8 {
        self.address(extent) as *mut u8
    }

    fn carry(&self, moving: Moving) {
        let (from, to) = (moving.step().from, moving.step().to);
        let bytes = from.bytes.min(to.bytes);
        // A move that is not finished did not happen, and its owner is unloaded where the two ends overlap.
        if self.copy(self.address(from), self.address(to), bytes).is_ok() {
            moving.finish();
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: taken in `take`, and given back once; runs have ended, for each waits for its own end.
            let _ = unsafe { result::free_sync(self.first) };
        }
    }
}

/// A part of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    from: u64,
    to: u64,
    bytes: u64,
    /// Whether the two ends do not overlap.
    apart: bool,
}

/// Copies of neighbours as parts, in an order in which none overwrites what another still reads. Where the two ends
/// lie closer than `least`, parts of that size go by way of the host.
fn parts(from: u64, to: u64, bytes: u64, least: u64) -> impl Iterator<Item = Part> {
    let distance = from.abs_diff(to);
    let size = if distance >= bytes.min(least) { distance.min(bytes) } else { least }.max(1);
    let (apart, upwards) = (distance >= size.min(bytes), to > from);
    let count = if distance == 0 { 0 } else { bytes.div_ceil(size) };
    (0..count).map(move |at| {
        let start = if upwards { count - 1 - at } else { at } * size;
        Part { from: from + start, to: to + start, bytes: size.min(bytes - start), apart }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_copy_in_parts_is_the_copy(from in 0..100u64, to in 0..100u64, bytes in 1..100u64, least in 1..40u64) {
            let mut memory: Vec<u64> = (0..200).collect();
            for part in parts(from, to, bytes, least) {
                let range = part.from as usize..(part.from + part.bytes) as usize;
                prop_assert!(!part.apart || part.from.abs_diff(part.to) >= part.bytes);
                prop_assert!(part.apart || part.bytes <= least);
                let read = memory[range].to_vec();
                memory[part.to as usize..][..read.len()].copy_from_slice(&read);
            }
            let wanted: Vec<u64> = (from..from + bytes).collect();
            prop_assert_eq!(&memory[to as usize..(to + bytes) as usize], &wanted[..]);
        }
    }
}
