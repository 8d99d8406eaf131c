//! The pool of lanes: steady lanes for everyone, burst lanes for when those do not do.

use super::sync::{Arc, Condvar, Mutex, MutexGuard};
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

/// Why a wait ended without a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLane {
    /// No lane that would do is so large; waiting does not help.
    #[error("{need_bytes} bytes of workspace are needed, the largest lane has {largest_bytes}")]
    TooLarge {
        /// Bytes asked for.
        need_bytes: u64,
        /// Bytes of the largest lane that would do.
        largest_bytes: u64,
    },
    /// The caller no longer wanted one.
    #[error("given up while waiting for a lane")]
    GivenUp,
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
    /// How many wait for a lane now.
    pub waiting: usize,
    /// The most that waited at once.
    pub waiting_peak: usize,
    /// How many have had to wait.
    pub waits: u64,
    /// The largest workspace that was asked for, in bytes.
    pub need_peak_bytes: u64,
}

/// The lanes made at start, each with a workspace handle `T`. Clones share the lanes.
pub struct Pool<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    lanes: Vec<Arc<Slot<T>>>,
    /// Bytes of the largest steady lane.
    steady_bytes: u64,
    state: Mutex<State>,
    returned: Condvar,
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
    /// Waiting needs that only a burst lane can hold.
    large_waiting: usize,
}

impl<T> Pool<T> {
    /// A pool of these lanes, each with its bytes of workspace and its handle.
    pub fn new(steady: Vec<(u64, T)>, burst: Vec<(u64, T)>) -> Pool<T> {
        let steady_bytes = steady.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0);
        let mut counters = Counters::default();
        (counters.steady.lanes, counters.burst.lanes) = (steady.len(), burst.len());
        let slot = |burst| {
            move |(bytes, workspace)| Arc::new(Slot { bytes, burst, workspace: Mutex::new(workspace) })
        };
        let mut lanes: Vec<Arc<Slot<T>>> = steady.into_iter().map(slot(false)).collect();
        lanes.extend(burst.into_iter().map(slot(true)));
        let state = Mutex::new(State { busy: vec![false; lanes.len()], counters, large_waiting: 0 });
        Pool { shared: Arc::new(Shared { lanes, steady_bytes, state, returned: Condvar::new() }) }
    }

    /// An idle lane with at least `need_bytes` of workspace, the smallest that will do; `None` at once where there is
    /// none now. Burst lanes are handed out only where no idle steady lane is large enough, and those larger than
    /// every steady lane not to a need that a steady lane can hold while a larger one waits.
    pub fn take(&self, need_bytes: u64, want: Want) -> Option<Lane<T>> {
        let mut state = self.shared.state();
        state.counters.need_peak_bytes = state.counters.need_peak_bytes.max(need_bytes);
        self.take_locked(&mut state, need_bytes, want)
    }

    /// The same, but waits for a lane to come back as long as `still_wanted` says so. It is asked before each wait:
    /// whenever a lane has come back, and after [`Pool::wake`]. It runs under the pool's lock: it must not use the
    /// pool.
    ///
    /// # Errors
    /// No lane is large enough, or `still_wanted` said no.
    pub fn take_wait(
        &self,
        need_bytes: u64,
        want: Want,
        mut still_wanted: impl FnMut() -> bool,
    ) -> Result<Lane<T>, NoLane> {
        let mut state = self.shared.state();
        state.counters.need_peak_bytes = state.counters.need_peak_bytes.max(need_bytes);
        let largest_bytes = self.largest_bytes(want);
        if need_bytes > largest_bytes {
            return Err(NoLane::TooLarge { need_bytes, largest_bytes });
        }
        if let Some(lane) = self.take_locked(&mut state, need_bytes, want) {
            return Ok(lane);
        }
        drop(state);
        // The count goes down again whatever becomes of the wait, a panic of `still_wanted` included.
        let _waiting = Waiting::new(&self.shared, need_bytes > self.shared.steady_bytes);
        let mut state = self.shared.state();
        loop {
            if let Some(lane) = self.take_locked(&mut state, need_bytes, want) {
                return Ok(lane);
            }
            if !still_wanted() {
                return Err(NoLane::GivenUp);
            }
            state = self.shared.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has all who wait ask again whether they are still wanted.
    pub fn wake(&self) {
        // Under the lock, so that it falls before or in a wait and never between the question and the wait.
        let _state = self.shared.state();
        self.shared.returned.notify_all();
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

    fn take_locked(&self, state: &mut State, need_bytes: u64, want: Want) -> Option<Lane<T>> {
        let lanes = self.shared.lanes.iter().zip(&state.busy).enumerate();
        let idle = lanes.filter(|(_, (lane, busy))| !**busy && lane.bytes >= need_bytes);
        // Those lanes are kept for whoever can run nowhere else; small work waits for a steady lane meanwhile.
        let kept = state.large_waiting > 0 && need_bytes <= self.shared.steady_bytes;
        let allowed = idle.filter(|(_, (lane, _))| {
            !lane.burst || want == Want::BurstToo && !(kept && lane.bytes > self.shared.steady_bytes)
        });
        let (index, (slot, _)) = allowed.min_by_key(|(_, (lane, _))| (lane.burst, lane.bytes))?;
        *state.busy.get_mut(index)? = true;
        let used = state.counters.of(slot.burst);
        used.busy += 1;
        used.busy_peak = used.busy_peak.max(used.busy);
        used.bytes.used_bytes += slot.bytes;
        used.bytes.peak_bytes = used.bytes.peak_bytes.max(used.bytes.used_bytes);
        used.taken += 1;
        Some(Lane { shared: Arc::clone(&self.shared), slot: Arc::clone(slot), index })
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
        // What is guarded is whole between statements; `still_wanted` is asked between them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counters {
    fn of(&mut self, burst: bool) -> &mut LaneUse {
        if burst { &mut self.burst } else { &mut self.steady }
    }
}

/// One who waits, counted as long as this lives.
struct Waiting<'a, T> {
    shared: &'a Shared<T>,
    large: bool,
}

impl<'a, T> Waiting<'a, T> {
    fn new(shared: &'a Shared<T>, large: bool) -> Self {
        let mut state = shared.state();
        state.large_waiting += usize::from(large);
        let counters = &mut state.counters;
        counters.waits += 1;
        counters.waiting += 1;
        counters.waiting_peak = counters.waiting_peak.max(counters.waiting);
        Waiting { shared, large }
    }
}

impl<T> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.counters.waiting -= 1;
        state.large_waiting -= usize::from(self.large);
        if self.large && state.large_waiting == 0 {
            // Lanes were kept for this one; they are for everyone again.
            self.shared.returned.notify_all();
        }
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
        // All who wait, as they need not all have use for this lane: one alone might be the wrong one.
        self.shared.returned.notify_all();
    }
}

impl<T> fmt::Debug for Lane<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Slot { bytes, burst, .. } = &*self.slot;
        let mut lane = f.debug_struct("Lane");
        lane.field("index", &self.index).field("bytes", bytes).field("burst", burst).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
