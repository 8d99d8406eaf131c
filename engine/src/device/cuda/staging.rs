//! Host memory that copies from and to the GPU go through: pinned where the driver gives that, else ordinary memory.
//!
//! The driver copies ordinary memory once more on its way, which is slower. It may read or write it at once or as late
//! as any copy in the stream; so whoever copies waits for the stream before touching the memory again, as with pinned
//! memory. Such a copy is never recorded: what is replayed would be up to the driver.

use super::context::Context;
use super::pinned::Pinned;
use crate::error::Error;
use cudarc::driver::sys::CUdeviceptr;
use std::sync::Arc;

/// Host memory for copies from and to the GPU.
pub(super) enum Staging {
    /// The GPU reaches it.
    Pinned(Pinned),
    /// It does not.
    Pageable(Box<[u8]>),
}

impl Staging {
    /// `len` zeroed bytes. Where the driver does not pin them, that is counted in the context.
    ///
    /// # Errors
    /// The context cannot be entered, or the system has no such memory either.
    pub(super) fn new(context: &Arc<Context>, len: usize) -> Result<Staging, Error> {
        context.enter()?;
        if let Ok(pinned) = Pinned::new(context, len) {
            return Ok(Staging::Pinned(pinned));
        }
        context.refused_pinned(len as u64);
        Staging::pageable(len)
    }

    /// `len` zeroed bytes of ordinary memory.
    ///
    /// # Errors
    /// The system does not have them.
    pub(super) fn pageable(len: usize) -> Result<Staging, Error> {
        let mut bytes = vec![];
        bytes.try_reserve_exact(len).map_err(|_| Error::Memory { bytes: len })?;
        bytes.resize(len, 0);
        Ok(Staging::Pageable(bytes.into_boxed_slice()))
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Staging::Pinned(pinned) => pinned.len(),
            Staging::Pageable(bytes) => bytes.len(),
        }
    }

    /// All bytes. The caller sees to it that the GPU is done with them.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Staging::Pinned(pinned) => pinned.bytes(),
            Staging::Pageable(bytes) => bytes,
        }
    }

    /// The address of the first byte as the GPU counts; `None` where it does not reach the memory.
    pub(super) fn on_device(&self) -> Option<CUdeviceptr> {
        match self {
            Staging::Pinned(pinned) => Some(pinned.on_device()),
            Staging::Pageable(_) => None,
        }
    }

    /// Whether copies of it may be recorded.
    pub(super) fn is_pinned(&self) -> bool {
        matches!(self, Staging::Pinned(_))
    }
}
