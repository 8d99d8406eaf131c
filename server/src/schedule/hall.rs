//! The hall where jobs wait for lanes: who gets which, and who wakes whom.
//!
//! It does not know what a job or a workspace is, so that a model checker can take it in: `tests/loom` runs it in every
//! interleaving of a few threads. Whoever waits in [`Hall::next`] is a worker; there is one for each lane at least.

use super::bursts::Bursts;
use super::queue::{Admission, Class, Lanes, Place, Queue};
use super::sync::{Condvar, Mutex, MutexGuard};
use plimsoll_engine::lane::{Lane, Pool, Want};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// A run that takes less than this is not worth a thread of its own: to wake one, and to be woken by it, takes
/// tens of microseconds each, and an async thread may well be busy for as long as that.
const SHORT: Duration = Duration::from_micros(200);

/// What can wait.
pub(crate) trait Needs {
    /// Bytes of workspace that it needs.
    fn need_bytes(&self) -> u64;

    /// The lanes that it may have.
    fn want(&self) -> Want;
}

/// The queue and the lanes.
pub(crate) struct Hall<J, T> {
    state: Mutex<State<J>>,
    /// There is a job and a lane for it, or the end has come.
    work: Condvar,
    /// Lanes are handed out and given back, never made for a request.
    lanes: Pool<T>,
}

struct State<J> {
    queue: Queue<J>,
    bursts: Bursts,
    closed: bool,
}

/// A job that was let in.
pub(crate) enum Entered<J, T> {
    /// It is short and a lane is idle: whoever brings it runs it, and gives the lane back.
    Now(Lane<T>, J),
    /// A worker will run it.
    Waits(Place),
}

/// What a worker has to do: run the job, and give the lane back.
pub(crate) struct Turn<J, T> {
    pub(crate) lane: Lane<T>,
    pub(crate) job: J,
    /// Whether a burst begins with it.
    pub(crate) begins_burst: bool,
}

impl<J: Needs, T> Hall<J, T> {
    /// An empty hall with these lanes.
    pub(crate) fn new(lanes: Pool<T>) -> Hall<J, T> {
        let state = State { queue: Queue::new(), bursts: Bursts::default(), closed: false };
        Hall { state: Mutex::new(state), work: Condvar::new(), lanes }
    }

    /// Lets a job in, or says at once why not.
    ///
    /// # Errors
    /// The model's queue is full, the deadline cannot be met, or the end has come.
    pub(crate) fn enter(
        &self,
        job: J,
        class: Class,
        now: Instant,
        deadline: Instant,
    ) -> Result<Entered<J, T>, Admission> {
        let mut state = self.state();
        if state.closed {
            return Err(Admission::Closed);
        }
        let short = !class.service.is_zero() && class.service < SHORT;
        if short
            && state.queue.len() == 0
            && let Some(lane) = self.lanes.take(job.need_bytes(), Want::Steady)
        {
            return Ok(Entered::Now(lane, job));
        }
        let steady = self.lanes.counters().steady;
        let count = u32::try_from(steady.lanes).unwrap_or(u32::MAX);
        let lanes = Lanes { count, busy: steady.busy == steady.lanes };
        let place = state.queue.push(job, class, now, deadline, lanes)?;
        drop(state);
        self.work.notify_one();
        Ok(Entered::Waits(place))
    }

    /// The first job for which there is a lane, or `None` when the end has come and nothing waits. A job may pass one
    /// before it that needs more workspace: it takes no lane that the other could use.
    pub(crate) fn next(&self) -> Option<Turn<J, T>> {
        let mut state = self.state();
        loop {
            let lane = |job: &J| self.lanes.take(job.need_bytes(), job.want());
            if let Some((lane, job)) = state.queue.pop_with(lane) {
                let begins_burst = lane.is_burst() && state.bursts.taken(Instant::now());
                return Some(Turn { lane, job, begins_burst });
            }
            if state.closed && state.queue.len() == 0 {
                // A lane that comes back wakes one, and more may wait than lanes are still to come back.
                self.work.notify_all();
                return None;
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes a lane back, and wakes a worker where there may be something to do.
    pub(crate) fn give_back(&self, lane: Lane<T>) {
        let burst = lane.is_burst();
        // Before the lock: a worker that finds no lane under the lock waits before this can look at the queue.
        drop(lane);
        let mut state = self.state();
        if burst {
            state.bursts.given_back(Instant::now());
        }
        let more = state.queue.len() > 0 || state.closed;
        drop(state);
        if more {
            self.work.notify_one();
        }
    }

    /// Takes a job out, if it still waits.
    pub(crate) fn withdraw(&self, place: Place) -> Option<J> {
        self.state().queue.remove(place)
    }

    /// Bytes of the largest lane that will do.
    pub(crate) fn largest_bytes(&self, want: Want) -> u64 {
        self.lanes.largest_bytes(want)
    }

    /// Jobs that wait.
    pub(crate) fn queued(&self) -> usize {
        self.state().queue.len()
    }

    /// Lets no further job in; workers end once those that wait are done.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.work.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State<J>> {
        // No code under this lock can panic half way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
