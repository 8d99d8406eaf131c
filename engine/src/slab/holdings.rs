//! The slab in use: who holds which extent of the weights' region, and who may be asked to move or to leave.

mod fit;
mod moving;
mod report;

use super::compact::Move;
use super::events::{Event, Events, What};
use super::extents::{Extent, Extents};
use super::refusal::{Bound, DoesNotFit, Remedy, Unloading};
use super::regions::{Layout, check_extents};
use super::used::Use;
pub use fit::Fit;
pub use moving::{CannotMove, Moving};
pub use report::{HeldExtent, Region, Snapshot};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How an owner is treated when others need room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Larger is more important; an owner is evicted for askers of at least its own priority. Default 0.
    pub priority: u8,
    /// Neither evicted nor moved. Default false.
    pub pinned: bool,
    /// Bytes that it may hold in all, of the slab and of host memory, which the arena sees to. Default `None`: the
    /// slab alone bounds it.
    pub cap_bytes: Option<u64>,
}

/// Where the bytes of a holding lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The extent, in the weights' region.
    pub extent: Extent,
    /// How often it has moved. What was built for an address (a captured graph) is good as long as this is the same.
    pub moves: u64,
}

/// The slab: its layout, and who holds what of the weights' region. Shared by all who load models.
#[derive(Debug)]
pub struct Slab {
    layout: Layout,
    ceiling_bytes: u64,
    state: Mutex<State>,
    /// Told whenever a move has ended.
    settled: Condvar,
    events: Mutex<Events>,
}

#[derive(Clone, Debug)]
struct State {
    extents: Extents,
    entries: BTreeMap<u64, Entry>,
    /// By owner, the latest last.
    terms: BTreeMap<String, Vec<Agreed>>,
    next: u64,
    newest_use: u64,
    peak_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Agreed {
    id: u64,
    terms: Terms,
    /// What the owner held when this was agreed.
    before_bytes: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    owner: String,
    placement: Placement,
    users: u32,
    last_use: u64,
    /// While it moves: the bytes claimed for it beside its extent.
    moving: Option<Extent>,
    /// Its holding was dropped while it moved; it goes when the move has ended.
    leaving: bool,
}

impl Slab {
    /// A slab of this layout with all of the weights' region free. `ceiling_bytes` is said in refusals.
    pub fn new(layout: Layout, ceiling_bytes: u64) -> Arc<Slab> {
        let state = State {
            extents: layout.weights(),
            entries: BTreeMap::new(),
            terms: BTreeMap::new(),
            next: 0,
            newest_use: 0,
            peak_bytes: 0,
        };
        let (state, settled, events) = (Mutex::new(state), Condvar::new(), Mutex::default());
        Arc::new(Slab { layout, ceiling_bytes, state, settled, events })
    }

    /// How the slab is divided.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Treats `owner` on these terms as long as the agreement lives; of several the latest counts, as where a model
    /// that has changed is loaded while it still serves as it was. `before_bytes` is what the owner holds now.
    pub fn agree(self: &Arc<Slab>, owner: &str, terms: Terms, before_bytes: u64) -> Agreement {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.terms.entry(owner.into()).or_default().push(Agreed { id, terms, before_bytes });
        Agreement { slab: Arc::clone(self), owner: owner.into(), id }
    }

    /// How `owner` is treated.
    pub fn terms(&self, owner: &str) -> Terms {
        self.state().terms(owner)
    }

    /// Bytes that `owner` holds.
    pub fn held_bytes(&self, owner: &str) -> u64 {
        self.state().held(owner)
    }

    /// Bytes that `owner` held when its latest terms were agreed on, as long as those before them live too: its
    /// predecessor's, which leave with it.
    pub fn before_bytes(&self, owner: &str) -> u64 {
        let state = self.state();
        let agreed = state.terms.get(owner).map_or(&[][..], Vec::as_slice);
        agreed.last().filter(|_| agreed.len() > 1).map_or(0, |agreed| agreed.before_bytes)
    }

    /// Takes an extent of `bytes` for `owner`, before they are used, until the holding is dropped. Moves and evicts
    /// nothing: [`Slab::plan_fit`] says what would have to be.
    ///
    /// # Errors
    /// No free extent is large enough; the slab is as it was.
    pub fn reserve(self: &Arc<Slab>, owner: &str, bytes: u64) -> Result<Holding, DoesNotFit> {
        let mut state = self.state();
        let Some(extent) = state.extents.place(bytes) else {
            let seen = state.clone();
            drop(state);
            return Err(seen.refusal(owner, bytes, self.ceiling_bytes));
        };
        let id = state.next;
        state.next += 1;
        // New weights count as used just now, else they would be the first to be evicted.
        let (placement, last_use) = (Placement { extent, moves: 0 }, state.newest_use);
        let owner = owner.into();
        state
            .entries
            .insert(id, Entry { owner, placement, users: 0, last_use, moving: None, leaving: false });
        self.changed(&mut state);
        Ok(Holding { slab: Arc::clone(self), id, bytes: extent.bytes })
    }

    /// What has to happen before `bytes` can be reserved for `owner`; nothing is changed. Between this and the
    /// reservation others may take the room: then reserve fails, and the caller plans again.
    pub fn plan_fit(&self, owner: &str, bytes: u64, priority: u8) -> Fit {
        // On a copy: a plan over several chunks can take milliseconds, and what runs must not wait for it.
        let seen = self.state().clone();
        seen.plan_fit(owner, bytes, priority, self.ceiling_bytes)
    }

    /// Adds to the history of events; `at_ms` is on the caller's clock.
    pub fn record(&self, what: What, owner: &str, bytes: u64, at_ms: u64) {
        self.history().push(what, owner, bytes, at_ms);
    }

    /// The last 256 events, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.history().iter().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code under this lock can panic half way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn history(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After each change: marks the high water, and in debug builds holds the invariants.
    fn changed(&self, state: &mut State) {
        state.peak_bytes = state.peak_bytes.max(self.layout.weights_bytes() - state.extents.free_bytes());
        debug_assert_eq!(self.check_state(state), Ok(()));
    }
}

impl State {
    fn terms(&self, owner: &str) -> Terms {
        let agreed = self.terms.get(owner).and_then(|agreed| agreed.last());
        agreed.map(|agreed| agreed.terms).unwrap_or_default()
    }

    /// Bytes that an owner holds.
    fn held(&self, owner: &str) -> u64 {
        let own = self.entries.values().filter(|entry| entry.owner == owner);
        own.map(|entry| entry.placement.extent.bytes).sum()
    }

    fn may_move(&self, entry: &Entry) -> bool {
        entry.is_idle() && !self.terms(&entry.owner).pinned
    }

    fn remove(&mut self, id: u64) {
        let Some(entry) = self.entries.remove(&id) else { return };
        for extent in entry.extents() {
            let freed = self.extents.free(extent);
            debug_assert_eq!(freed, Ok(()));
        }
    }

    fn is_moving(&self, id: u64) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.moving.is_some())
    }
}

impl Entry {
    /// Nobody runs on it and it is not under way.
    fn is_idle(&self) -> bool {
        self.users == 0 && self.moving.is_none()
    }

    /// All that is claimed for it.
    fn extents(&self) -> impl Iterator<Item = Extent> {
        [self.placement.extent].into_iter().chain(self.moving)
    }
}

/// Terms on which an owner is treated as long as this lives.
#[derive(Debug)]
#[must_use = "terms are forgotten when their agreement is dropped"]
pub struct Agreement {
    slab: Arc<Slab>,
    owner: String,
    id: u64,
}

impl Drop for Agreement {
    fn drop(&mut self) {
        let mut state = self.slab.state();
        if let Some(agreed) = state.terms.get_mut(&self.owner) {
            agreed.retain(|agreed| agreed.id != self.id);
            if agreed.is_empty() {
                state.terms.remove(&self.owner);
            }
        }
    }
}

/// An extent held in a [`Slab`]; dropping it gives the bytes back.
#[derive(Debug)]
pub struct Holding {
    slab: Arc<Slab>,
    id: u64,
    bytes: u64,
}

impl Holding {
    /// Bytes held: those asked for, rounded up to the slab's alignment.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where the bytes lie now; unless in use they may move the next moment.
    pub fn placement(&self) -> Placement {
        self.slab.state().entries.get(&self.id).map(|entry| entry.placement).unwrap_or_default()
    }

    /// Marks the bytes as used until the guard is dropped: they are neither moved nor evicted meanwhile. `now` is a
    /// counter of the caller's that goes up with time; the least recently used leave first. Allocates nothing. Where
    /// the bytes are under way it waits for the move's end, so whoever moves them must not call it.
    pub fn use_at(&self, now: u64) -> InUse<'_> {
        let wait = self.slab.settled.wait_while(self.slab.state(), |state| state.is_moving(self.id));
        let mut state = wait.unwrap_or_else(PoisonError::into_inner);
        state.newest_use = state.newest_use.max(now);
        let mut placement = Placement::default();
        if let Some(entry) = state.entries.get_mut(&self.id) {
            entry.users += 1;
            entry.last_use = entry.last_use.max(now);
            placement = entry.placement;
        }
        InUse { holding: self, placement }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut state = self.slab.state();
        match state.entries.get_mut(&self.id) {
            // A copy is writing there: the bytes are nobody else's before it has ended.
            Some(entry) if entry.moving.is_some() => entry.leaving = true,
            _ => state.remove(self.id),
        }
        self.slab.changed(&mut state);
    }
}

/// A [`Holding`] in use: its bytes stay where they are as long as this lives.
#[derive(Debug)]
pub struct InUse<'a> {
    holding: &'a Holding,
    placement: Placement,
}

impl InUse<'_> {
    /// Where the bytes lie.
    pub fn placement(&self) -> Placement {
        self.placement
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.holding.slab.state().entries.get_mut(&self.holding.id) {
            entry.users -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
