//! The hall where jobs wait for lanes: who takes which, and who wakes whom. What runs next is the desk's to say.
//!
//! It does not know what a job or a workspace is, so that a model checker can take it in: `tests/loom` runs it in every
//! interleaving of a few threads. Whoever waits in [`Hall::next`] is a worker; there is one for each lane at least.

use super::class::{Admission, Class};
use super::desk::{Desk, LaneSize, Needs, Next, Place, Pressure, Refused, Start};
use super::sync::{Condvar, Mutex, MutexGuard};
use plimsoll_engine::lane::{Lane, Pool};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// The queues and the lanes.
pub(crate) struct Hall<J, T> {
    state: Mutex<State<J>>,
    /// There is a job and a lane for it, or the end has come.
    work: Condvar,
    /// Lanes are handed out and given back, never made for a request.
    lanes: Pool<T>,
}

struct State<J> {
    desk: Desk<J>,
    closed: bool,
}

/// A job that was let in.
pub(crate) enum Entered<J, T> {
    /// It is short and a lane is idle: whoever brings it runs it, and gives the lane back.
    Now(Turn<J, T>),
    /// A worker will run it.
    Waits(Place),
}

/// Jobs to be run together, and the lane to run them in, which has to be given back.
pub(crate) struct Turn<J, T> {
    pub(crate) lane: Lane<T>,
    /// In the order in which they came; one at least.
    pub(crate) jobs: Vec<J>,
    /// Which of the first job's buckets.
    pub(crate) bucket: usize,
    /// Whether a burst begins with them.
    pub(crate) begins_burst: bool,
}

impl<J: Needs, T> Hall<J, T> {
    /// An empty hall with these lanes, which nobody else may take.
    pub(crate) fn new(lanes: Pool<T>) -> Hall<J, T> {
        let sizes = lanes.sizes().map(|(bytes, burst)| LaneSize { bytes, burst }).collect();
        let state = State { desk: Desk::new(sizes), closed: false };
        Hall { state: Mutex::new(state), work: Condvar::new(), lanes }
    }

    /// Lets a job in, or says at once why not.
    ///
    /// # Errors
    /// The model's queue is full, the deadline cannot be met, or the end has come.
    pub(crate) fn enter(
        &self,
        job: J,
        class: &Arc<Class>,
        now: Instant,
        deadline: Instant,
    ) -> Result<Entered<J, T>, Refused> {
        let mut state = self.state();
        if state.closed {
            return Err(Refused { why: Admission::Closed, begins_shedding: false });
        }
        match state.desk.enter(job, class, now, deadline)? {
            super::desk::Entered::Now(start) => {
                let turn = self.turn(start);
                turn.map(Entered::Now).ok_or(Refused { why: Admission::Closed, begins_shedding: false })
            }
            super::desk::Entered::Waits(place) => {
                let worth_a_look = state.desk.has_idle_lane();
                drop(state);
                if worth_a_look {
                    self.work.notify_one();
                }
                Ok(Entered::Waits(place))
            }
        }
    }

    /// Says whether a job that needs this would be let in.
    ///
    /// # Errors
    /// As [`Hall::enter`].
    pub(crate) fn foresee(
        &self,
        needs: &impl Needs,
        class: &Arc<Class>,
        now: Instant,
        deadline: Instant,
    ) -> Result<(), Refused> {
        self.state().desk.foresee(needs, class, now, deadline)
    }

    /// The first jobs for which there is a lane, or `None` when the end has come and nothing waits.
    pub(crate) fn next(&self) -> Option<Turn<J, T>> {
        let mut state = self.state();
        loop {
            let wake = match state.desk.next(Instant::now()) {
                Next::Start(start) => {
                    let more = state.desk.waiting() > 0 && state.desk.has_idle_lane();
                    drop(state);
                    if more {
                        self.work.notify_one();
                    }
                    return self.turn(start);
                }
                Next::Wait(wake) => wake,
            };
            if state.closed && state.desk.waiting() == 0 {
                // A lane that comes back wakes one, and more may wait than lanes are still to come back.
                self.work.notify_all();
                return None;
            }
            state = match wake {
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Takes a lane back. `ran` says how long the run took where that is worth remembering.
    pub(crate) fn give_back(&self, lane: Lane<T>, ran: Option<Duration>) {
        let mut state = self.state();
        self.back(&mut state, lane, ran);
        let more = state.desk.waiting() > 0 || state.closed;
        drop(state);
        if more {
            self.work.notify_one();
        }
    }

    /// Takes a lane back from a worker, and gives it what is next where something can begin at once.
    pub(crate) fn exchange(&self, lane: Lane<T>, ran: Option<Duration>) -> Option<Turn<J, T>> {
        let mut state = self.state();
        self.back(&mut state, lane, ran);
        let next = state.desk.next(Instant::now());
        let more = state.desk.waiting() > 0 && state.desk.has_idle_lane();
        let woken = more || state.closed;
        drop(state);
        if woken {
            self.work.notify_one();
        }
        match next {
            Next::Start(start) => self.turn(start),
            Next::Wait(_) => None,
        }
    }

    fn back(&self, state: &mut State<J>, lane: Lane<T>, ran: Option<Duration>) {
        let index = lane.index();
        // To the pool first: what the desk calls idle can be taken.
        drop(lane);
        state.desk.done(index, Instant::now(), ran);
    }

    /// The lane itself. The desk gave it to this caller alone, so it is there.
    fn turn(&self, start: Start<J>) -> Option<Turn<J, T>> {
        let Start { lane, jobs, bucket, begins_burst } = start;
        let lane = self.lanes.take(lane)?;
        Some(Turn { lane, jobs, bucket, begins_burst })
    }

    /// Takes a job out, if it still waits.
    pub(crate) fn withdraw(&self, place: Place) -> Option<J> {
        let mut state = self.state();
        let job = state.desk.withdraw(place, Instant::now());
        let (left, idle, closed) = (state.desk.waiting(), state.desk.has_idle_lane(), state.closed);
        drop(state);
        if closed && left == 0 {
            self.work.notify_all();
        } else if left > 0 && idle {
            // It may have been the one that others could not pass.
            self.work.notify_one();
        }
        job
    }

    /// Jobs that wait.
    pub(crate) fn queued(&self) -> usize {
        self.state().desk.waiting()
    }

    /// How hard the server is pressed.
    pub(crate) fn pressure(&self) -> Pressure {
        self.state().desk.pressure(Instant::now())
    }

    /// The lanes.
    pub(crate) fn lanes(&self) -> &Pool<T> {
        &self.lanes
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
