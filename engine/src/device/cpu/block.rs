//! Aligned memory: of its own, or an extent of the slab.

use super::ALIGNMENT;
use crate::device::{Memory, allocated};
use crate::error::Error;
use crate::slab::Extent;
use memmap2::MmapMut;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes that start at a multiple of [`ALIGNMENT`].
pub(crate) struct Block {
    first: NonNull<u8>,
    len: usize,
    origin: Origin,
}

enum Origin {
    Nothing,
    Heap(Layout),
    /// Given back to the system as soon as the block goes, which an allocator puts off.
    Mapped(#[allow(dead_code)] MmapMut),
    /// Kept alive as long as the block.
    Slab(#[allow(dead_code)] Arc<dyn Memory>),
}

// SAFETY: a block is plain memory that its holder owns.
unsafe impl Send for Block {}
// SAFETY: shared, it is only read (through `as_ptr`, whose users promise so).
unsafe impl Sync for Block {}

impl Block {
    /// `bytes` zeroed bytes outside the slab for a workspace.
    ///
    /// # Errors
    /// The system does not give them.
    pub(crate) fn new(bytes: usize) -> Result<Block, Error> {
        if bytes > 0 {
            allocated();
        }
        Block::staging(bytes)
    }

    /// `bytes` zeroed bytes of host memory, for a moment: what is put together there goes elsewhere.
    ///
    /// # Errors
    /// The system does not give them.
    pub(crate) fn staging(bytes: usize) -> Result<Block, Error> {
        if bytes == 0 {
            return Ok(Block { first: NonNull::dangling(), len: 0, origin: Origin::Nothing });
        }
        const LARGE: usize = 1 << 20;
        if bytes >= LARGE {
            let mut map = MmapMut::map_anon(bytes).map_err(|_| Error::Memory { bytes })?;
            let first = NonNull::new(map.as_mut_ptr()).ok_or(Error::Memory { bytes })?;
            return Ok(Block { first, len: bytes, origin: Origin::Mapped(map) });
        }
        let layout =
            Layout::from_size_align(bytes, ALIGNMENT as usize).map_err(|_| Error::Memory { bytes })?;
        // SAFETY: the layout is not empty.
        let first = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Error::Memory { bytes })?;
        Ok(Block { first, len: bytes, origin: Origin::Heap(layout) })
    }

    /// An extent of the slab.
    ///
    /// # Safety
    /// Nobody else uses the extent as long as the block lives.
    pub(crate) unsafe fn in_slab(memory: &Arc<dyn Memory>, extent: Extent) -> Block {
        let first = NonNull::new(memory.at(extent)).unwrap_or(NonNull::dangling());
        Block { first, len: extent.bytes as usize, origin: Origin::Slab(Arc::clone(memory)) }
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The first byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.first.as_ptr()
    }

    /// All bytes, to write.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the block is valid for its length, and borrowed for writing as long as the slice is.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Origin::Heap(layout) = self.origin {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(self.first.as_ptr(), layout) };
        }
    }
}
