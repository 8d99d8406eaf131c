//! Where each buffer lies in a plan's workspace: the fewest bytes in which no two live buffers meet.
//!
//! The problem (dynamic storage allocation with lifetimes known beforehand) is NP-hard, and no workspace is smaller
//! than the live peak, the most bytes alive at one step. Several greedy orders are tried, those of Pisarchyk and Lee,
//! "Efficient Memory Management for Deep Neural Net Inference" (arXiv:2001.03288, 2020), among them; on most nets one
//! of them meets the live peak, which ends the work. Otherwise all of them are repaired by a bounded local search, and the lowest is taken. What
//! MiniMalloc (Moffitt, ASPLOS 2023, doi:10.1145/3623278.3624752) finds by exhaustive search for accelerators whose
//! memory is nearly full, is not always found here.
//!
//! The same buffers always get the same offsets: there is no clock, and the search's random numbers start from a
//! constant. Effort is bounded by counted work, so that planning is short on any machine.

mod greedy;
#[cfg(test)]
mod nets;
mod repair;
#[cfg(test)]
mod tests;

/// A run of bytes that is needed for some steps of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer {
    /// Its size in bytes; may be 0, which takes no room at all.
    pub bytes: u64,
    /// The first step, counted from 0, at which it is alive: the one that writes it.
    pub first_step: usize,
    /// The last step at which it is alive, inclusive; one before `first_step` counts as `first_step`.
    pub last_step: usize,
}

/// Where the buffers lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offsets {
    /// For each buffer, in the order given, its first byte's distance from the workspace's start, in bytes.
    pub offset_bytes: Vec<u64>,
    /// Size of the workspace in bytes, a multiple of the alignment.
    pub workspace_bytes: u64,
}

/// A buffer that has bytes, counted in units of the alignment: offsets in units are aligned by construction.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Which of the caller's buffers.
    index: usize,
    units: u64,
    first: usize,
    last: usize,
}

impl Block {
    fn meets(&self, other: &Block) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Gives each buffer an offset that is a multiple of `alignment` (bytes; 0 counts as 1), such that buffers which are
/// alive at the same step do not overlap. Sizes are rounded up to `alignment`; their sum must be below 2⁶⁴.
pub(super) fn assign(buffers: &[Buffer], alignment: u64) -> Offsets {
    let alignment = alignment.max(1);
    let blocks = blocks(buffers, alignment);
    let live = live_units(&blocks);
    let peak = live.iter().copied().max().unwrap_or(0);
    let mut layouts = greedy::layouts(&blocks, &live, peak);
    if layouts.iter().all(|layout| layout.top > peak) {
        repair::repair(&blocks, &mut layouts, peak);
    }
    let layout = layouts.into_iter().min_by_key(|layout| layout.top).unwrap_or_default();
    let mut offset_bytes = vec![0; buffers.len()];
    for (block, at) in blocks.iter().zip(&layout.at) {
        offset_bytes[block.index] = at * alignment;
    }
    Offsets { offset_bytes, workspace_bytes: layout.top * alignment }
}

/// The most bytes alive at one step, sizes rounded up to `alignment` (bytes): no workspace is smaller.
pub(super) fn live_peak_bytes(buffers: &[Buffer], alignment: u64) -> u64 {
    let alignment = alignment.max(1);
    live_units(&blocks(buffers, alignment)).into_iter().max().unwrap_or(0) * alignment
}

/// The first step at which [`live_peak_bytes`] are alive; none if no buffer has bytes.
pub(super) fn peak_step(buffers: &[Buffer], alignment: u64) -> Option<usize> {
    let blocks = blocks(buffers, alignment.max(1));
    let live = live_units(&blocks);
    let peak = live.iter().copied().max()?;
    live.iter().position(|&units| units == peak).map(|i| blocks[i].first)
}

/// The buffers that have bytes, earliest first.
fn blocks(buffers: &[Buffer], alignment: u64) -> Vec<Block> {
    let with_bytes = buffers.iter().enumerate().filter(|(_, buffer)| buffer.bytes > 0);
    let mut blocks: Vec<Block> = with_bytes
        .map(|(index, buffer)| Block {
            index,
            units: buffer.bytes.div_ceil(alignment),
            first: buffer.first_step,
            last: buffer.last_step.max(buffer.first_step),
        })
        .collect();
    blocks.sort_by_key(|block| (block.first, block.index));
    blocks
}

/// For each block, the units alive at its first step. The live sum only grows where a block begins, so that the
/// largest of these is the peak.
fn live_units(blocks: &[Block]) -> Vec<u64> {
    let mut ends: Vec<(usize, u64)> = blocks.iter().map(|block| (block.last, block.units)).collect();
    ends.sort_unstable();
    let (mut begun, mut ended, mut alive) = (0, 0, 0);
    blocks
        .iter()
        .map(|block| {
            while let Some(next) = blocks.get(begun).filter(|next| next.first <= block.first) {
                alive += next.units;
                begun += 1;
            }
            while let Some(&(_, units)) = ends.get(ended).filter(|(last, _)| *last < block.first) {
                alive -= units;
                ended += 1;
            }
            alive
        })
        .collect()
}
