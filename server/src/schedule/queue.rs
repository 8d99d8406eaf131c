//! The queue: who may enter, and who is next.

use super::worker::Job;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// How much earlier than others a request is served: 9 is first, 0 is last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    fn place(self, now: Instant) -> Instant {
        now + Priority::STEP * u32::from(Priority::HIGHEST - self.0)
    }
}

/// Why a job may not enter the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The model's queue is full.
    Full {
        /// Jobs that it may hold.
        limit: usize,
        /// When a place is expected to be free.
        retry_after: Duration,
    },
    /// Those before it will take longer than it may wait.
    TooLate {
        /// When it would be done.
        expected: Duration,
        /// What is left until its deadline.
        left: Duration,
    },
    /// The server is stopping.
    Closed,
}

/// Waiting jobs in the order of their places.
#[derive(Default)]
pub(super) struct Queue {
    jobs: BTreeMap<(Instant, u64), Job>,
    waiting: HashMap<u64, usize>,
    next: u64,
    /// Sum of the service times expected of all that wait.
    expected: Duration,
}

/// Where a job waits.
pub(super) type Place = (Instant, u64);

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Puts a job in its place, or gives it back with the reason why not.
    pub(super) fn push(
        &mut self,
        job: Job,
        now: Instant,
        lanes: u32,
        busy: bool,
    ) -> Result<Place, Admission> {
        let waiting = self.waiting.get(&job.class.model).copied().unwrap_or(0);
        // What waits is shared by all lanes; a busy lane is taken to be half way through its job.
        let running = if busy { job.class.service / 2 } else { Duration::ZERO };
        let before = self.expected / lanes.max(1) + running;
        if waiting >= job.class.queue_limit {
            return Err(Admission::Full { limit: job.class.queue_limit, retry_after: before });
        }
        let expected = before + job.class.service;
        let left = job.deadline.saturating_duration_since(now);
        // An idle server tries: its estimate may be of another shape, and a try costs nobody anything.
        if expected > left && (busy || !self.jobs.is_empty()) {
            return Err(Admission::TooLate { expected, left });
        }
        let place = (job.class.priority.place(now), self.next);
        self.next += 1;
        *self.waiting.entry(job.class.model).or_default() += 1;
        self.expected += job.class.service;
        self.jobs.insert(place, job);
        Ok(place)
    }

    /// Takes the first job out.
    pub(super) fn pop(&mut self) -> Option<Job> {
        let (_, job) = self.jobs.pop_first()?;
        self.leave(&job);
        Some(job)
    }

    /// Takes the job at `place` out, if it still waits.
    pub(super) fn remove(&mut self, place: Place) -> Option<Job> {
        let job = self.jobs.remove(&place)?;
        self.leave(&job);
        Some(job)
    }

    fn leave(&mut self, job: &Job) {
        self.expected = self.expected.saturating_sub(job.class.service);
        if let Some(waiting) = self.waiting.get_mut(&job.class.model) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.remove(&job.class.model);
            }
        }
    }
}
