//! The queue: who may enter, and who is next.

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

/// What the queue needs to know of a job's model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    /// Which model: jobs with the same number share a queue limit.
    pub(crate) model: u64,
    /// Jobs of the model that may wait at once.
    pub(crate) queue_limit: usize,
    /// Its place on the ladder.
    pub(crate) priority: Priority,
    /// How long a run of it took lately; zero where that is not known.
    pub(crate) service: Duration,
}

/// Waiting jobs in the order of their places.
pub(super) struct Queue<J> {
    jobs: BTreeMap<Place, (Class, J)>,
    waiting: HashMap<u64, usize>,
    next: u64,
    /// Sum of the service times expected of all that wait.
    expected: Duration,
}

/// Where a job waits: when it is due, and its number among those due at once.
pub(super) type Place = (Instant, u64);

/// The lanes as the queue sees them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes {
    /// How many there are.
    pub(super) count: u32,
    /// Whether each of them is running a job.
    pub(super) busy: bool,
}

impl<J> Queue<J> {
    pub(super) fn new() -> Queue<J> {
        Queue { jobs: BTreeMap::new(), waiting: HashMap::new(), next: 0, expected: Duration::ZERO }
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Puts a job in its place, or says why not.
    pub(super) fn push(
        &mut self,
        job: J,
        class: Class,
        now: Instant,
        deadline: Instant,
        lanes: Lanes,
    ) -> Result<Place, Admission> {
        let waiting = self.waiting.get(&class.model).copied().unwrap_or(0);
        // What waits is shared by all lanes; a busy lane is taken to be half way through its job.
        let running = if lanes.busy { class.service / 2 } else { Duration::ZERO };
        let before = self.expected / lanes.count.max(1) + running;
        if waiting >= class.queue_limit {
            return Err(Admission::Full { limit: class.queue_limit, retry_after: before });
        }
        let expected = before + class.service;
        let left = deadline.saturating_duration_since(now);
        // An idle server tries: its estimate may be of another shape, and a try costs nobody anything.
        if expected > left && (lanes.busy || !self.jobs.is_empty()) {
            return Err(Admission::TooLate { expected, left });
        }
        let place = (class.priority.place(now), self.next);
        self.next += 1;
        *self.waiting.entry(class.model).or_default() += 1;
        self.expected += class.service;
        self.jobs.insert(place, (class, job));
        Ok(place)
    }

    /// Takes the first job out for which there is what it needs, and gives both.
    pub(super) fn pop_with<L>(&mut self, mut need: impl FnMut(&J) -> Option<L>) -> Option<(L, J)> {
        let (place, found) = self.jobs.iter().find_map(|(place, (_, job))| Some((*place, need(job)?)))?;
        Some((found, self.remove(place)?))
    }

    /// Takes the job at `place` out, if it still waits.
    pub(super) fn remove(&mut self, place: Place) -> Option<J> {
        let (class, job) = self.jobs.remove(&place)?;
        self.leave(class);
        Some(job)
    }

    fn leave(&mut self, class: Class) {
        self.expected = self.expected.saturating_sub(class.service);
        if let Some(waiting) = self.waiting.get_mut(&class.model) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.remove(&class.model);
            }
        }
    }
}
