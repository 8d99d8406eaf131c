//! One model's waiting jobs, in the order in which they came.

use super::super::class::Class;
use super::Needs;
use super::forecast::Runs;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A job and its times.
#[derive(Debug)]
pub(super) struct Waiting<J> {
    pub(super) job: J,
    pub(super) entered: Instant,
    pub(super) deadline: Instant,
    /// What its run was expected to take, where it runs alone.
    pub(super) takes: Duration,
    /// How long it was expected to wait, and how much of that was experience: [`Line::stretch`] as it was.
    pub(super) foreseen: Duration,
    pub(super) stretch: f64,
}

/// The waiting jobs of one model, and how much of the lanes it has had lately.
#[derive(Debug)]
pub(super) struct Line<J> {
    pub(super) class: Arc<Class>,
    /// By number, which counts up with time.
    pub(super) jobs: BTreeMap<u64, Waiting<J>>,
    /// Rows that wait and can run with others, by group.
    pub(super) rows: BTreeMap<u64, usize>,
    /// Expected time of those that run alone, and how many they are.
    alone: (Duration, usize),
    /// How many times as long as was foreseen jobs waited lately.
    pub(super) stretch: f64,
    /// Runs under way.
    pub(super) running: usize,
    /// Seconds of lanes, what is longer ago counting less, at the time beside.
    used: f64,
    used_at: Option<Instant>,
}

/// What is so long ago counts a third in a model's use of the lanes.
const MEMORY: Duration = Duration::from_secs(1);

impl<J: Needs> Line<J> {
    pub(super) fn new(class: &Arc<Class>) -> Line<J> {
        Line {
            class: Arc::clone(class),
            jobs: BTreeMap::new(),
            rows: BTreeMap::new(),
            alone: (Duration::ZERO, 0),
            stretch: 1.0,
            running: 0,
            used: 0.0,
            used_at: None,
        }
    }

    pub(super) fn push(&mut self, number: u64, waiting: Waiting<J>) {
        match waiting.job.group() {
            Some(group) => *self.rows.entry(group).or_default() += waiting.job.rows(),
            None => self.alone = (self.alone.0.saturating_add(waiting.takes), self.alone.1 + 1),
        }
        self.jobs.insert(number, waiting);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Waiting<J>> {
        let waiting = self.jobs.remove(&number)?;
        match waiting.job.group() {
            Some(group) => {
                if let Some(rows) = self.rows.get_mut(&group) {
                    *rows -= waiting.job.rows();
                    if *rows == 0 {
                        self.rows.remove(&group);
                    }
                }
            }
            // Just what was added when it came, whatever was measured since.
            None => self.alone = (self.alone.0.saturating_sub(waiting.takes), self.alone.1 - 1),
        }
        Some(waiting)
    }

    /// Those that run alone, as runs of one length.
    pub(super) fn runs_alone(&self) -> Runs {
        let (all, count) = self.alone;
        (count, all.checked_div(count as u32).unwrap_or_default())
    }

    /// Notes how long a job waited of which another time was foreseen.
    pub(super) fn waited(&mut self, waiting: &Waiting<J>, now: Instant) {
        // Less is told by the clock's grain, and by who happened to be awake.
        const LEAST: f64 = 1e-3;
        let foreseen = waiting.foreseen.as_secs_f64();
        if foreseen > LEAST {
            let waited = now.saturating_duration_since(waiting.entered).as_secs_f64();
            let seen = (waited / foreseen * waiting.stretch).clamp(1.0, 16.0);
            self.stretch += (seen - self.stretch) / 8.0;
        }
        if self.jobs.is_empty() {
            // The queue is drained: whoever comes next is kept waiting by nobody.
            self.stretch = 1.0;
        }
    }

    /// When the first of them is due, as against other models' jobs.
    pub(super) fn due(&self) -> Option<Instant> {
        Some(self.class.priority.due(self.jobs.first_key_value()?.1.entered))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.running == 0
    }

    /// Notes that a run of the model has had a lane for so long.
    pub(super) fn use_up(&mut self, now: Instant, took: Duration) {
        // A run that is longer than the memory was there for all of it.
        let took = took.as_secs_f64().min(MEMORY.as_secs_f64());
        self.used = self.used_now(now) + took;
        self.used_at = Some(now);
    }

    /// How many lanes the model has had lately, on average.
    pub(super) fn used(&self, now: Instant) -> f64 {
        self.used_now(now) / MEMORY.as_secs_f64()
    }

    fn used_now(&self, now: Instant) -> f64 {
        let since = self.used_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.used * (-since.as_secs_f64() / MEMORY.as_secs_f64()).exp()
    }
}
