//! A move under way: both ends are claimed while the device copies, without the slab's lock.

use super::{Extent, Move, Slab};
use std::sync::Arc;

/// A move that was refused; the slab is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot move {from:?} to {to:?}: {reason}")]
pub struct CannotMove {
    /// Where the bytes lie.
    pub from: Extent,
    /// Where they should have gone.
    pub to: Extent,
    /// What is in the way.
    pub reason: &'static str,
}

/// A move under way. [`Moving::finish`] after the copy; dropped before that, the bytes count as where they were.
#[derive(Debug)]
#[must_use = "a move that is not finished did not happen"]
pub struct Moving {
    slab: Arc<Slab>,
    id: u64,
    step: Move,
    finished: bool,
}

impl Slab {
    /// Begins one move of a plan: claims where the bytes go, and keeps everyone from using them. The caller copies
    /// and then finishes.
    ///
    /// # Errors
    /// Since the move was planned its bytes have gone, come into use or been pinned, or its target was taken.
    pub fn start_move(self: &Arc<Slab>, step: Move) -> Result<Moving, CannotMove> {
        let refused = |reason| CannotMove { from: step.from, to: step.to, reason };
        let mut state = self.state();
        let found = state.entries.iter().find(|(_, entry)| entry.placement.extent == step.from);
        let (&id, entry) = found.ok_or(refused("nobody holds it"))?;
        if !state.may_move(entry) {
            return Err(refused("it is in use or pinned"));
        }
        if step.to.bytes != step.from.bytes || step.to == step.from {
            return Err(refused("the two are not of one size, or the same"));
        }
        let claimed = apart(&step.to, &step.from);
        state.extents.claim(claimed).map_err(|_| refused("the target is not free"))?;
        if let Some(entry) = state.entries.get_mut(&id) {
            entry.moving = Some(claimed);
        }
        self.changed(&mut state);
        Ok(Moving { slab: Arc::clone(self), id, step, finished: false })
    }
}

impl Moving {
    /// What to copy.
    pub fn step(&self) -> Move {
        self.step
    }

    /// The copy is done: the bytes lie at the target from now on.
    pub fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Moving {
    /// Ends the move. Without [`Moving::finish`] it is as if it had not begun; but where the two ends overlap, a copy
    /// that began has spoiled the contents, and the caller has to unload the owner.
    fn drop(&mut self) {
        let mut state = self.slab.state();
        let Some(entry) = state.entries.get_mut(&self.id) else { return };
        let mut given_back = entry.moving.take();
        let leaving = entry.leaving;
        if self.finished {
            entry.placement.extent = self.step.to;
            entry.placement.moves += 1;
            given_back = Some(apart(&self.step.from, &self.step.to));
        }
        if let Some(extent) = given_back {
            let freed = state.extents.free(extent);
            debug_assert_eq!(freed, Ok(()));
        }
        if leaving {
            state.remove(self.id);
        }
        self.slab.changed(&mut state);
        drop(state);
        self.slab.settled.notify_all();
    }
}

/// The part of `one` that is not in `other`, which is as long: one piece, for neither holds the other.
fn apart(one: &Extent, other: &Extent) -> Extent {
    if !one.overlaps(other) {
        return *one;
    }
    let bytes = one.offset_bytes.abs_diff(other.offset_bytes);
    let above = one.offset_bytes > other.offset_bytes;
    let offset_bytes = if above { other.end_bytes() } else { one.offset_bytes };
    Extent { chunk: one.chunk, offset_bytes, bytes }
}
