//! Extents: which bytes of the chunks are free, and where the next ones go. Offsets only.

use std::collections::BTreeMap;

/// A range of bytes within one chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// Which chunk of the slab, from 0.
    pub chunk: u32,
    /// Where it begins, in bytes from the chunk's start.
    pub offset_bytes: u64,
    /// How long it is, in bytes; a multiple of the alignment.
    pub bytes: u64,
}

impl Extent {
    /// Where it ends, in bytes from the chunk's start; the byte there is no longer its own.
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(self.bytes)
    }

    /// Whether a byte belongs to both.
    pub fn overlaps(&self, other: &Extent) -> bool {
        self.chunk == other.chunk
            && self.offset_bytes < other.end_bytes()
            && other.offset_bytes < self.end_bytes()
    }
}

/// An extent that was not where the caller believed it; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    /// The extent to claim is not free from end to end, or not aligned.
    #[error("{0:?} is not free")]
    NotFree(Extent),
    /// The extent to free is free already in part, lies outside the chunks, or is not aligned.
    #[error("{0:?} is not placed")]
    NotPlaced(Extent),
}

/// The free bytes of one or more chunks. An extent never straddles two chunks, and what is freed merges with its
/// free neighbours at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extents {
    alignment: u64,
    chunks: Vec<u64>,
    /// Length of each free extent under its chunk and offset.
    free: BTreeMap<(u32, u64), u64>,
    free_bytes: u64,
}

impl Extents {
    /// All of `chunks` free. Sizes in bytes, rounded down to `alignment` (in bytes; 0 counts as 1).
    pub fn new(chunks: &[u64], alignment: u64) -> Extents {
        let alignment = alignment.max(1);
        let chunks: Vec<u64> = chunks.iter().map(|bytes| bytes - bytes % alignment).collect();
        let whole = chunks.iter().zip(0u32..).filter(|(bytes, _)| **bytes > 0);
        let free: BTreeMap<_, _> = whole.map(|(bytes, chunk)| ((chunk, 0), *bytes)).collect();
        let free_bytes = free.values().sum();
        Extents { alignment, chunks, free, free_bytes }
    }

    /// Takes the smallest free extent that is large enough, of several the first, and leaves what is over free.
    /// `bytes` are rounded up to the alignment, 0 to one unit of it, so that every extent has a place of its own.
    pub fn place(&mut self, bytes: u64) -> Option<Extent> {
        let bytes = rounded(bytes, self.alignment)?;
        let fitting = self.free.iter().filter(|(_, free)| **free >= bytes);
        let (&(chunk, offset_bytes), _) = fitting.min_by_key(|&(at, &free)| (free, *at))?;
        let extent = Extent { chunk, offset_bytes, bytes };
        self.claim(extent).is_ok().then_some(extent)
    }

    /// Takes just this extent.
    ///
    /// # Errors
    /// A byte of it is not free, or it is not aligned; nothing was changed.
    pub fn claim(&mut self, extent: Extent) -> Result<(), Misplaced> {
        let refused = Misplaced::NotFree(extent);
        let before = self.free.range(..=(extent.chunk, extent.offset_bytes)).next_back();
        let (&(chunk, start), &free) = before.ok_or(refused)?;
        let end = start + free;
        if chunk != extent.chunk || extent.end_bytes() > end || !self.is_aligned(&extent) {
            return Err(refused);
        }
        self.free.remove(&(chunk, start));
        if start < extent.offset_bytes {
            self.free.insert((chunk, start), extent.offset_bytes - start);
        }
        if extent.end_bytes() < end {
            self.free.insert((chunk, extent.end_bytes()), end - extent.end_bytes());
        }
        self.free_bytes -= extent.bytes;
        Ok(())
    }

    /// Gives an extent back and merges it with its free neighbours.
    ///
    /// # Errors
    /// A byte of it is free already or lies outside the chunks, or it is not aligned; nothing was changed.
    pub fn free(&mut self, extent: Extent) -> Result<(), Misplaced> {
        let chunk = extent.chunk;
        let chunk_bytes = self.chunks.get(chunk as usize).copied().unwrap_or(0);
        let before = self.free.range(..(chunk, extent.end_bytes())).next_back();
        let before = before.map(|(&(at, start), &bytes)| Extent { chunk: at, offset_bytes: start, bytes });
        let overlaps = before.is_some_and(|before| before.overlaps(&extent));
        if overlaps || extent.end_bytes() > chunk_bytes || !self.is_aligned(&extent) {
            return Err(Misplaced::NotPlaced(extent));
        }
        let mut merged = extent;
        if let Some(before) = before
            && before.chunk == chunk
            && before.end_bytes() == extent.offset_bytes
        {
            merged.offset_bytes = before.offset_bytes;
            merged.bytes += before.bytes;
        }
        if let Some(after) = self.free.remove(&(chunk, extent.end_bytes())) {
            merged.bytes += after;
        }
        self.free.insert((chunk, merged.offset_bytes), merged.bytes);
        self.free_bytes += extent.bytes;
        Ok(())
    }

    /// Sum of what is free, in bytes.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// The largest extent that can be placed now, in bytes.
    pub fn largest_free(&self) -> u64 {
        self.free.values().copied().max().unwrap_or(0)
    }

    /// Every free extent, by chunk and offset.
    pub fn iter_free(&self) -> impl Iterator<Item = Extent> {
        self.free.iter().map(|(&(chunk, offset_bytes), &bytes)| Extent { chunk, offset_bytes, bytes })
    }

    /// Bytes of each chunk, rounded down to the alignment.
    pub fn chunks(&self) -> &[u64] {
        &self.chunks
    }

    /// What offsets and sizes are multiples of, in bytes.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    fn is_aligned(&self, extent: &Extent) -> bool {
        extent.bytes > 0
            && extent.offset_bytes.is_multiple_of(self.alignment)
            && extent.bytes.is_multiple_of(self.alignment)
    }
}

/// `bytes` as an extent holds them; `None` where that passes what 64 bits count.
pub(super) fn rounded(bytes: u64, alignment: u64) -> Option<u64> {
    bytes.max(1).checked_next_multiple_of(alignment)
}

#[cfg(test)]
mod tests;
