//! How the slab is divided: slab = weights + steady lanes + reserve, drawn once at start.

use super::extents::{Extent, Extents, rounded};
use crate::error::size;

/// Burst lanes at most: each has a stream or threads of its own, so a large reserve beside small lanes becomes
/// larger lanes instead.
const BURST_LANES: usize = 64;

/// The lanes that every request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSizes {
    /// How many.
    pub steady: usize,
    /// Bytes of workspace that each has.
    pub workspace_bytes: u64,
}

/// Lanes and reserve that the slab has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{steady} lanes of {} and a reserve of {} do not fit in the slab of {}, whose largest chunk has {}; lower \
     lanes.steady, lanes.workspace or memory.reserve, or raise memory.ceiling",
    size(*.workspace_bytes), size(*.reserve_bytes), size(*.slab_bytes), size(*.largest_chunk_bytes)
)]
pub struct LanesDoNotFit {
    /// Steady lanes asked for.
    pub steady: usize,
    /// Bytes of workspace for each.
    pub workspace_bytes: u64,
    /// Bytes of the reserve.
    pub reserve_bytes: u64,
    /// Bytes of all chunks.
    pub slab_bytes: u64,
    /// Bytes of the largest chunk.
    pub largest_chunk_bytes: u64,
}

/// The regions of the slab. Lanes lie at the ends of the chunks, so that each chunk's beginning is one piece for
/// weights; an [`Extents`] over those beginnings cannot reach a lane or the reserve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    alignment: u64,
    chunks: Vec<u64>,
    weights: Vec<u64>,
    steady: Vec<Extent>,
    burst: Vec<Extent>,
}

impl Layout {
    /// Divides `chunks` (bytes of each). The reserve becomes as many burst lanes of at least a steady lane's
    /// workspace as fit (64 at most), what is over making one of them larger; a reserve smaller than a steady lane is one lane.
    ///
    /// # Errors
    /// The chunks have no room for the lanes and the reserve.
    pub fn new(
        chunks: &[u64],
        lanes: LaneSizes,
        reserve_bytes: u64,
        alignment: u64,
    ) -> Result<Layout, LanesDoNotFit> {
        let alignment = alignment.max(1);
        let slab_bytes = chunks.iter().try_fold(0u64, |sum, bytes| sum.checked_add(*bytes));
        let refusal = LanesDoNotFit {
            steady: lanes.steady,
            workspace_bytes: lanes.workspace_bytes,
            reserve_bytes,
            slab_bytes: slab_bytes.unwrap_or(u64::MAX),
            largest_chunk_bytes: chunks.iter().copied().max().unwrap_or(0),
        };
        slab_bytes.ok_or(refusal)?;
        let mut carver = Carver::new(chunks, alignment);
        let carved = carver.carve(lanes, reserve_bytes, alignment).ok_or(refusal)?;
        let (steady, burst) = carver.extents(carved);
        Ok(Layout { alignment, chunks: chunks.to_vec(), weights: carver.room, steady, burst })
    }

    /// What offsets and sizes are multiples of, in bytes.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Bytes of each chunk, as given.
    pub fn chunks(&self) -> &[u64] {
        &self.chunks
    }

    /// Bytes of all chunks.
    pub fn slab_bytes(&self) -> u64 {
        self.chunks.iter().sum()
    }

    /// Bytes that weights may take.
    pub fn weights_bytes(&self) -> u64 {
        self.weights.iter().sum()
    }

    /// Bytes of the steady lanes.
    pub fn lanes_bytes(&self) -> u64 {
        self.steady.iter().map(|lane| lane.bytes).sum()
    }

    /// Bytes of the reserve, rounded up to the alignment.
    pub fn reserve_bytes(&self) -> u64 {
        self.burst.iter().map(|lane| lane.bytes).sum()
    }

    /// Bytes at the ends of chunks that are no multiple of the alignment; nobody's.
    pub fn tail_bytes(&self) -> u64 {
        self.chunks.iter().map(|bytes| bytes % self.alignment).sum()
    }

    /// The workspace of each steady lane.
    pub fn steady(&self) -> &[Extent] {
        &self.steady
    }

    /// The workspace of each burst lane; together they are the reserve.
    pub fn burst(&self) -> &[Extent] {
        &self.burst
    }

    /// The weights' region, all of it free.
    pub fn weights(&self) -> Extents {
        Extents::new(&self.weights, self.alignment)
    }

    /// Whether the regions are whole: they sum to the slab, lie within it, are aligned, and do not overlap.
    ///
    /// # Errors
    /// The first thing that is not so, in words.
    pub fn check(&self) -> Result<(), String> {
        let sum = self.weights_bytes() + self.lanes_bytes() + self.reserve_bytes() + self.tail_bytes();
        if sum != self.slab_bytes() {
            return Err(format!("the regions sum to {sum} bytes, the slab has {}", self.slab_bytes()));
        }
        let weights = self.weights().iter_free().collect::<Vec<_>>();
        let extents: Vec<&Extent> = weights.iter().chain(&self.steady).chain(&self.burst).collect();
        check_extents(extents, &self.chunks, self.alignment)
    }
}

/// Whether extents lie within the chunks, are aligned, and do not overlap.
pub(super) fn check_extents(mut extents: Vec<&Extent>, chunks: &[u64], alignment: u64) -> Result<(), String> {
    extents.sort();
    for extent in &extents {
        if chunks.get(extent.chunk as usize).is_none_or(|bytes| extent.end_bytes() > *bytes) {
            return Err(format!("{extent:?} lies outside the chunks"));
        }
        if !extent.offset_bytes.is_multiple_of(alignment) || !extent.bytes.is_multiple_of(alignment) {
            return Err(format!("{extent:?} is not aligned to {alignment} bytes"));
        }
    }
    match extents.windows(2).find(|pair| matches!(pair, [one, next] if one.overlaps(next))) {
        Some(pair) => Err(format!("{pair:?} overlap")),
        None => Ok(()),
    }
}

/// What is left of each chunk in the course of the division.
struct Carver {
    usable: Vec<u64>,
    room: Vec<u64>,
}

/// A lane before it has an offset: its chunk and bytes.
type Piece = (usize, u64);

impl Carver {
    fn new(chunks: &[u64], alignment: u64) -> Carver {
        let usable: Vec<u64> = chunks.iter().map(|bytes| bytes - bytes % alignment).collect();
        Carver { room: usable.clone(), usable }
    }

    fn carve(&mut self, lanes: LaneSizes, reserve: u64, alignment: u64) -> Option<(Vec<Piece>, Vec<Piece>)> {
        let workspace = rounded(lanes.workspace_bytes, alignment)?;
        let mut steady = vec![];
        for _ in 0..lanes.steady {
            steady.push(self.take(workspace)?);
        }
        if reserve == 0 {
            return Some((steady, vec![]));
        }
        let reserve = rounded(reserve, alignment)?;
        if reserve < workspace || lanes.steady == 0 {
            return Some((steady, vec![self.take(reserve)?]));
        }
        // Pieces of one size: whichever chunks they go to, as many fit.
        let mut burst = vec![];
        let mut left = reserve;
        while left >= workspace
            && burst.len() < BURST_LANES
            && let Some(piece) = self.take(workspace)
        {
            burst.push(piece);
            left -= workspace;
        }
        while left > 0 {
            left -= self.grow(&mut burst, left)?;
        }
        Some((steady, burst))
    }

    /// Takes a piece from the chunk with the least room for it, which leaves the long chunks to large weights.
    fn take(&mut self, bytes: u64) -> Option<Piece> {
        let roomy = self.room.iter_mut().enumerate().filter(|(_, room)| **room >= bytes);
        let (chunk, room) = roomy.min_by_key(|(_, room)| **room)?;
        *room -= bytes;
        Some((chunk, bytes))
    }

    /// Makes one burst lane larger, by all of `bytes` where its chunk has the room; gives by how many.
    fn grow(&mut self, burst: &mut [Piece], bytes: u64) -> Option<u64> {
        let room = |piece: &Piece| self.room.get(piece.0).copied().unwrap_or(0);
        let wide = burst.iter().position(|piece| room(piece) >= bytes);
        let widest = || (0..burst.len()).max_by_key(|at| burst.get(*at).map(room));
        let (chunk, lane_bytes) = burst.get_mut(wide.or_else(widest)?)?;
        let room = self.room.get_mut(*chunk)?;
        let given = bytes.min(*room);
        *room -= given;
        *lane_bytes += given;
        (given > 0).then_some(given)
    }

    /// Gives each piece its offset: from the end of its chunk downwards, the steady lanes first.
    fn extents(&self, (steady, burst): (Vec<Piece>, Vec<Piece>)) -> (Vec<Extent>, Vec<Extent>) {
        let mut ends = self.usable.clone();
        let mut place = |(chunk, bytes): Piece| {
            let end = ends.get_mut(chunk)?;
            *end -= bytes;
            Some(Extent { chunk: u32::try_from(chunk).ok()?, offset_bytes: *end, bytes })
        };
        let steady = steady.into_iter().filter_map(&mut place).collect();
        (steady, burst.into_iter().filter_map(&mut place).collect())
    }
}

#[cfg(test)]
mod tests;
