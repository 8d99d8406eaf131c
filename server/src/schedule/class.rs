//! What the scheduler knows of a model, and why it may refuse a request.

use super::services::Services;
use std::time::{Duration, Instant};

/// How much earlier than others a request is served: 9 is first, 0 is last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Priority(u8);

impl Priority {
    /// Every step down the ladder counts as having come this much later, so that nothing waits for ever.
    const STEP: Duration = Duration::from_millis(100);

    /// The first place of the ladder.
    const HIGHEST: u8 = 9;

    /// The priority `level`, at most 9.
    pub(crate) fn new(level: u8) -> Priority {
        Priority(level.min(Priority::HIGHEST))
    }

    /// When a request that came at `entered` is due, as against others.
    pub(super) fn due(self, entered: Instant) -> Instant {
        entered + Priority::STEP * u32::from(Priority::HIGHEST - self.0)
    }
}

/// A model as the scheduler sees it.
#[derive(Debug)]
pub(crate) struct Class {
    /// Unlike any other model's: jobs with the same number share a queue.
    pub(crate) model: u64,
    /// Jobs that may wait at once.
    pub(crate) queue_limit: usize,
    /// Its place on the ladder.
    pub(crate) priority: Priority,
    /// The part of the steady lanes' time, 0 to 1, that it gets before others as long as it has work for it.
    pub(crate) share: f64,
    /// How long a job may wait for a steady lane before a burst lane will do.
    pub(crate) max_delay: Duration,
    /// How long its runs take, whatever their shapes; each job knows more of its own ([`super::desk::Needs::services`]).
    pub(crate) services: Services,
}

/// Why a job may not enter the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The model's queue is full.
    Full {
        /// Jobs that it may hold.
        limit: usize,
        /// When those that wait now are expected to have begun.
        retry_after: Duration,
    },
    /// Those before it will take longer than it may wait.
    TooLate {
        /// When it would be done.
        expected: Duration,
        /// What is left until its deadline.
        left: Duration,
    },
    /// No lane that it may have is large enough.
    NoLane,
    /// The server is stopping.
    Closed,
}
