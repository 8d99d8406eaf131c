//! The pool of lanes: steady lanes for everyone, burst lanes for when those do not do.

use super::sync::{Arc, Mutex, MutexGuard};
use crate::slab::Use;
use std::fmt;
use std::ops::DerefMut;
use std::sync::PoisonError;

/// Which lanes will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Steady lanes alone, for work that can wait, such as warming up.
    Steady,
    /// A burst lane too, where no idle steady lane is large enough.
    BurstToo,
}

/// How one kind of lane is and was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneUse {
    /// How many there are.
    pub lanes: usize,
    /// How many are handed out.
    pub busy: usize,
    /// The most that were handed out at once.
    pub busy_peak: usize,
    /// The same in bytes of workspace.
    pub bytes: Use,
    /// How often one was handed out.
    pub taken: u64,
}

/// The pool at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The steady lanes.
    pub steady: LaneUse,
    /// The burst lanes.
    pub burst: LaneUse,
}

/// The lanes made at start, each with a workspace handle `T`. Clones share the lanes.
pub struct Pool<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    lanes: Vec<Arc<Slot<T>>>,
    state: Mutex<State>,
}

struct Slot<T> {
    bytes: u64,
    burst: bool,
    /// Locked by the lane's holder alone, so it is never waited for.
    workspace: Mutex<T>,
}

struct State {
    /// For each lane, whether it is handed out.
    busy: Vec<bool>,
    counters: Counters,
}

impl<T> Pool<T> {
    /// A pool of these lanes, each with its bytes of workspace and its handle.
    pub fn new(steady: Vec<(u64, T)>, burst: Vec<(u64, T)>) -> Pool<T> {
        let mut counters = Counters::default();
        (counters.steady.lanes, counters.burst.lanes) = (steady.len(), burst.len());
        let slot = |burst| {
            move |(bytes, workspace)| Arc::new(Slot { bytes, burst, workspace: Mutex::new(workspace) })
        };
        let mut lanes: Vec<Arc<Slot<T>>> = steady.into_iter().map(slot(false)).collect();
        lanes.extend(burst.into_iter().map(slot(true)));
        let state = Mutex::new(State { busy: vec![false; lanes.len()], counters });
        Pool { shared: Arc::new(Shared { lanes, state }) }
    }

    /// Counts a lane that is marked as busy.
    fn handed_out(&self, state: &mut State, slot: &Arc<Slot<T>>, index: usize) -> Lane<T> {
        let used = state.counters.of(slot.burst);
        used.busy += 1;
        used.busy_peak = used.busy_peak.max(used.busy);
        used.bytes.used_bytes += slot.bytes;
        used.bytes.peak_bytes = used.bytes.peak_bytes.max(used.bytes.used_bytes);
        used.taken += 1;
        Lane { shared: Arc::clone(&self.shared), slot: Arc::clone(slot), index }
    }

    /// This lane, if it is idle; `None` where it is handed out or there is none of that index. Never waits, and never
    /// chooses: who runs where is decided by whoever knows what waits.
    pub fn take(&self, index: usize) -> Option<Lane<T>> {
        let slot = self.shared.lanes.get(index)?;
        let mut state = self.shared.state();
        let busy = state.busy.get_mut(index).filter(|busy| !**busy)?;
        *busy = true;
        Some(self.handed_out(&mut state, slot, index))
    }

    /// Bytes of each lane, in the order of their indices, and whether it is a burst lane.
    pub fn sizes(&self) -> impl Iterator<Item = (u64, bool)> {
        self.shared.lanes.iter().map(|lane| (lane.bytes, lane.burst))
    }

    /// Bytes of the largest lane that will do; what needs more never runs.
    pub fn largest_bytes(&self, want: Want) -> u64 {
        let will_do = self.shared.lanes.iter().filter(|lane| !lane.burst || want == Want::BurstToo);
        will_do.map(|lane| lane.bytes).max().unwrap_or(0)
    }

    /// The pool as it stands.
    pub fn counters(&self) -> Counters {
        self.shared.state().counters
    }
}

impl<T> Clone for Pool<T> {
    fn clone(&self) -> Self {
        Pool { shared: Arc::clone(&self.shared) }
    }
}

impl<T> fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code under this lock can panic half way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counters {
    fn of(&mut self, burst: bool) -> &mut LaneUse {
        if burst { &mut self.burst } else { &mut self.steady }
    }
}

/// A lane, the holder's alone until it is dropped, a panic included.
pub struct Lane<T> {
    shared: Arc<Shared<T>>,
    slot: Arc<Slot<T>>,
    index: usize,
}

impl<T> Lane<T> {
    /// Which lane: steady ones from 0, burst ones after them.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Bytes of its workspace.
    pub fn bytes(&self) -> u64 {
        self.slot.bytes
    }

    /// Whether it is part of the reserve.
    pub fn is_burst(&self) -> bool {
        self.slot.burst
    }

    /// Its workspace.
    pub fn workspace(&mut self) -> impl DerefMut<Target = T> + '_ {
        // A run that panicked has left the workspace as any run does: with contents that the next one overwrites.
        self.slot.workspace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Lane<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if let Some(busy) = state.busy.get_mut(self.index) {
            *busy = false;
        }
        let used = state.counters.of(self.slot.burst);
        used.busy -= 1;
        used.bytes.used_bytes -= self.slot.bytes;
    }
}

impl<T> fmt::Debug for Lane<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Slot { bytes, burst, .. } = &*self.slot;
        let mut lane = f.debug_struct("Lane");
        lane.field("index", &self.index).field("bytes", bytes).field("burst", burst).finish()
    }
}

#[cfg(all(test, not(loom)))] // its threads are real ones, which loom does not know
mod tests;
