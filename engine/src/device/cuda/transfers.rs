//! Inputs and outputs between the caller and the workspace, through a lane's host memory.

use super::context::failure;
use super::lane::FLAGS_BYTES;
use super::pinned::Stream;
use super::staging::Staging;
use crate::error::Error;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{CUdeviceptr, CUstream};

/// Bytes of the workspace that a caller brings or gets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    /// From which byte of the workspace on.
    pub(super) offset: usize,
    /// How many.
    pub(super) bytes: usize,
    /// From which byte of the host memory on, where all inputs and outputs have their places there.
    pub(super) staged: usize,
}

/// Bytes that places in host memory are a multiple of.
const ALIGNMENT: usize = 64;

/// Gives every transfer its place in host memory of so many bytes; whether there is room for all.
pub(super) fn place<'a>(transfers: impl Iterator<Item = &'a mut Transfer>, bytes: usize) -> bool {
    let mut end = FLAGS_BYTES;
    for transfer in transfers {
        transfer.staged = end;
        end += transfer.bytes.next_multiple_of(ALIGNMENT);
    }
    end <= bytes
}

impl Transfer {
    /// Puts the copy from its place in host memory to the workspace into the stream.
    pub(super) fn to_device(
        self,
        staging: &mut Staging,
        workspace: CUdeviceptr,
        stream: CUstream,
    ) -> Result<(), DriverError> {
        if self.bytes == 0 {
            return Ok(());
        }
        let staged = &staging.bytes()[self.staged..self.staged + self.bytes];
        // SAFETY: the plan placed it in the workspace, and the place in host memory is this transfer's alone.
        unsafe { result::memcpy_htod_async(workspace + self.offset as u64, staged, stream) }
    }

    /// The way back.
    pub(super) fn to_host(
        self,
        staging: &mut Staging,
        workspace: CUdeviceptr,
        stream: CUstream,
    ) -> Result<(), DriverError> {
        if self.bytes == 0 {
            return Ok(());
        }
        let staged = &mut staging.bytes()[self.staged..self.staged + self.bytes];
        // SAFETY: as above.
        unsafe { result::memcpy_dtoh_async(staged, workspace + self.offset as u64, stream) }
    }
}

/// Copies bytes to an address in pieces, and waits for the last.
///
/// # Errors
/// The driver's.
pub(super) fn bring(
    bytes: &[u8],
    to: CUdeviceptr,
    staging: &mut Staging,
    stream: &Stream,
) -> Result<(), Error> {
    let half = (staging.len() - FLAGS_BYTES) / 2;
    for (at, part) in bytes.chunks(half.max(1)).enumerate() {
        if at >= 2 {
            stream.wait()?;
        }
        let staged = &mut staging.bytes()[FLAGS_BYTES + at % 2 * half..][..part.len()];
        staged.copy_from_slice(part);
        // SAFETY: the caller's address has room, and the half is not written again before the stream is waited for.
        unsafe { result::memcpy_htod_async(to + (at * half) as u64, staged, stream.raw()) }
            .map_err(failure)?;
    }
    stream.wait()
}

/// Copies so many bytes from an address in pieces, which `take` gets in order: each while the next one is on its way.
///
/// # Errors
/// The driver's, and what went wrong in the stream before.
pub(super) fn fetch(
    from: CUdeviceptr,
    bytes: usize,
    staging: &mut Staging,
    stream: &Stream,
    mut take: impl FnMut(&[u8]),
) -> Result<(), Error> {
    let half = ((staging.len() - FLAGS_BYTES) / 2).max(1);
    let (mut ready, mut at) = (0..0, 0);
    for first in (0..bytes).step_by(half) {
        let len = half.min(bytes - first);
        let staged = FLAGS_BYTES + at * half..FLAGS_BYTES + at * half + len;
        let place = &mut staging.bytes()[staged.clone()];
        // SAFETY: the caller's address has so many bytes, and the half is not read before the stream is waited for.
        unsafe { result::memcpy_dtoh_async(place, from + first as u64, stream.raw()) }.map_err(failure)?;
        take(&staging.bytes()[ready]);
        stream.wait()?;
        (ready, at) = (staged, 1 - at);
    }
    take(&staging.bytes()[ready]);
    Ok(())
}
