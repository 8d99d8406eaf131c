//! The slab as it stands at one moment, for reports and for tests.

use super::{Extent, Placement, Slab, State, Terms, Use, check_extents};

/// One region of the slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its size, in bytes.
    pub bytes: u64,
    /// How much of it is and was in use.
    pub used: Use,
}

/// One extent of the weights' region with its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldExtent {
    /// A model's name and version.
    pub owner: String,
    /// Where it lies, and how often it has moved. What is on its way stands twice: where it is, and where it will be.
    pub placement: Placement,
    /// How its owner is treated.
    pub terms: Terms,
    /// Whether it is in use or under way.
    pub in_use: bool,
    /// The counter given at its last use.
    pub last_use: u64,
}

/// The slab at one moment: `slab_bytes` = weights + lanes + reserve + tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Bytes of all chunks.
    pub slab_bytes: u64,
    /// Bytes of each chunk.
    pub chunks: Vec<u64>,
    /// Where weights lie.
    pub weights: Region,
    /// The steady lanes.
    pub lanes: Region,
    /// The burst lanes.
    pub reserve: Region,
    /// Bytes at the ends of chunks, too few for anyone.
    pub tail_bytes: u64,
    /// Bytes that are free for weights.
    pub free_bytes: u64,
    /// Bytes of the largest piece of them.
    pub largest_free_bytes: u64,
    /// Who holds what of the weights' region, by chunk and offset.
    pub held: Vec<HeldExtent>,
    /// The workspace of each steady lane.
    pub steady: Vec<Extent>,
    /// The workspace of each burst lane.
    pub burst: Vec<Extent>,
}

impl Slab {
    /// The slab as it stands. What the lanes use is known to their pool, so the caller says it.
    pub fn snapshot(&self, lanes: Use, reserve: Use) -> Snapshot {
        let state = self.state();
        let layout = &self.layout;
        let weights_bytes = layout.weights_bytes();
        let free_bytes = state.extents.free_bytes();
        let used = Use { used_bytes: weights_bytes - free_bytes, peak_bytes: state.peak_bytes };
        let mut held: Vec<HeldExtent> =
            state.entries.values().flat_map(|entry| state.held_extents(entry)).collect();
        held.sort_by_key(|held| held.placement.extent);
        Snapshot {
            slab_bytes: layout.slab_bytes(),
            chunks: layout.chunks().to_vec(),
            weights: Region { bytes: weights_bytes, used },
            lanes: Region { bytes: layout.lanes_bytes(), used: lanes },
            reserve: Region { bytes: layout.reserve_bytes(), used: reserve },
            tail_bytes: layout.tail_bytes(),
            free_bytes,
            largest_free_bytes: state.extents.largest_free(),
            held,
            steady: layout.steady().to_vec(),
            burst: layout.burst().to_vec(),
        }
    }

    /// Whether the account is whole: the regions sum to the slab, and held and free extents tile the weights' region
    /// without overlap, aligned.
    ///
    /// # Errors
    /// The first thing that is not so, in words.
    pub fn check(&self) -> Result<(), String> {
        self.check_state(&self.state())
    }

    pub(super) fn check_state(&self, state: &State) -> Result<(), String> {
        self.layout.check()?;
        let held: Vec<Extent> = state.entries.values().flat_map(|entry| entry.extents()).collect();
        let free: Vec<Extent> = state.extents.iter_free().collect();
        let sum = |extents: &[Extent]| extents.iter().map(|extent| extent.bytes).sum::<u64>();
        if sum(&free) != state.extents.free_bytes() {
            return Err(format!("{} bytes count as free, {} are", state.extents.free_bytes(), sum(&free)));
        }
        if sum(&held) + sum(&free) != self.layout.weights_bytes() {
            let region = self.layout.weights_bytes();
            return Err(format!("{} bytes held and {} free are not the {region}", sum(&held), sum(&free)));
        }
        let all = held.iter().chain(&free).collect();
        check_extents(all, state.extents.chunks(), self.layout.alignment())
    }
}

impl State {
    fn held_extents(&self, entry: &super::Entry) -> impl Iterator<Item = HeldExtent> {
        entry.extents().map(|extent| HeldExtent {
            owner: entry.owner.clone(),
            placement: Placement { extent, ..entry.placement },
            terms: self.terms(&entry.owner),
            in_use: !entry.is_idle(),
            last_use: entry.last_use,
        })
    }
}
