//! What comes into a simulation, and what comes out of it.

use crate::schedule::class::Admission;
use std::time::Duration;

/// A request that comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arrival {
    /// Since the start.
    pub(crate) at: Duration,
    /// Which of the models.
    pub(crate) model: usize,
    /// Rows that it brings.
    pub(crate) rows: usize,
    /// How long it may take.
    pub(crate) timeout: Duration,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    /// Its model has no run for its rows, or no lane is large enough.
    Unfit,
    /// It was refused at once.
    Refused(Admission),
    /// Its deadline passed.
    Expired {
        /// Whether it was running by then.
        begun: bool,
    },
    /// It was answered.
    Answered {
        /// When it began, since the start.
        begun: Duration,
        /// When it was done.
        done: Duration,
        /// The lane.
        lane: usize,
        /// Requests that ran with it, itself included.
        together: usize,
    },
}

/// A run that was done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ran {
    /// Which of the models.
    pub(crate) model: usize,
    /// The lane.
    pub(crate) lane: usize,
    /// Rows of its requests.
    pub(crate) rows: usize,
    /// When it began, since the start.
    pub(crate) begun: Duration,
    /// When it was done.
    pub(crate) done: Duration,
}

/// A simulation that is over.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Played {
    /// Of each arrival, in their order.
    pub(crate) fates: Vec<Fate>,
    /// In the order in which they were done.
    pub(crate) runs: Vec<Ran>,
}
