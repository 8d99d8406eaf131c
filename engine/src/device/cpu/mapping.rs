//! The slab's memory: mapped and touched once, at start.

use crate::device::{Memory, allocated};
use crate::slab::{Extent, Moving};
use memmap2::{Advice, MmapMut, MmapOptions};
use std::io;

/// Anonymous memory of the process, all of it resident.
pub(super) struct Mapping {
    map: MmapMut,
    first: *mut u8,
}

// SAFETY: plain memory; who may touch which part is decided by the slab's account of extents.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps and touches `bytes`, so that no later access can find the system without memory.
    ///
    /// # Errors
    /// The system does not give them.
    pub(super) fn new(bytes: usize) -> io::Result<Mapping> {
        const PAGE: usize = 4096;
        let mut map = MmapOptions::new().len(bytes.max(1)).map_anon()?;
        // Large pages make the first touch several times cheaper; where there are none, small ones do.
        let _ = map.advise(Advice::HugePage);
        map.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
        let first = map.as_mut_ptr();
        allocated();
        Ok(Mapping { map, first })
    }

    /// Bytes mapped.
    fn len(&self) -> usize {
        self.map.len()
    }
}

impl Memory for Mapping {
    // The slab is one chunk.
    fn at(&self, extent: Extent) -> *mut u8 {
        let end = extent.end_bytes() as usize;
        assert!(extent.chunk == 0 && end <= self.len(), "an extent outside the slab");
        // SAFETY: inside the mapping, as was just checked.
        unsafe { self.first.add(extent.offset_bytes as usize) }
    }

    fn carry(&self, moving: Moving) {
        let (from, to) = (moving.step().from, moving.step().to);
        let bytes = from.bytes.min(to.bytes) as usize;
        // SAFETY: both lie inside the mapping (`at` checks); the slab has claimed them for this move, and whoever
        // holds the bytes waits for its end before it uses them.
        unsafe { std::ptr::copy(self.at(from), self.at(to), bytes) };
        moving.finish();
    }
}
