//! Room for weights: an extent of the slab, which may move between runs, or memory of its own.

use super::Memory;
use crate::slab::{Extent, Holding, InUse};
use std::sync::Arc;

/// Room for weights.
pub(crate) struct Room {
    memory: Arc<dyn Memory>,
    place: Place,
}

enum Place {
    /// All of the memory: for tools that work without a ceiling.
    Whole(Extent),
    /// An extent of the slab.
    Slab(Holding),
}

/// Room that stays where it is as long as this lives.
pub(crate) struct Held<'a> {
    /// The first byte.
    pub(crate) first: *mut u8,
    _in_use: Option<InUse<'a>>,
}

impl Room {
    /// An extent of the slab that lies in `memory`.
    pub(crate) fn in_slab(holding: Holding, memory: Arc<dyn Memory>) -> Room {
        Room { memory, place: Place::Slab(holding) }
    }

    /// All `bytes` of a memory of its own.
    pub(crate) fn own(memory: Arc<dyn Memory>, bytes: u64) -> Room {
        Room { memory, place: Place::Whole(Extent { chunk: 0, offset_bytes: 0, bytes }) }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        match &self.place {
            Place::Whole(extent) => extent.bytes as usize,
            Place::Slab(holding) => holding.bytes() as usize,
        }
    }

    /// Keeps the room where it is; `now` is a count that goes up with time.
    pub(crate) fn hold(&self, now: u64) -> Held<'_> {
        match &self.place {
            Place::Whole(extent) => Held { first: self.memory.at(*extent), _in_use: None },
            Place::Slab(holding) => {
                let in_use = holding.use_at(now);
                Held { first: self.memory.at(in_use.placement().extent), _in_use: Some(in_use) }
            }
        }
    }
}
