//! When a job would begin and be done, from what waits, what runs and how long runs take.

use super::super::class::{Admission, Class};
use super::super::services::Service;
use super::line::Line;
use super::{Desk, Needs, form};
use plimsoll_engine::lane::Want;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many runs of the same length.
pub(super) type Runs = (usize, Duration);

/// When each lane becomes free, in some order, that has so much left of its run and takes its part of these runs: the
/// next one always by the lane that is free first.
pub(super) fn taken(mut left: Vec<Duration>, runs: impl IntoIterator<Item = Runs>) -> Vec<Duration> {
    let lanes = left.len().max(1);
    for (count, takes) in runs {
        let rounds = u32::try_from(count / lanes).unwrap_or(u32::MAX);
        for lane in &mut left {
            *lane = lane.saturating_add(takes.saturating_mul(rounds));
        }
        for _ in 0..count % lanes {
            if let Some(first) = left.iter_mut().min() {
                *first = first.saturating_add(takes);
            }
        }
    }
    left
}

/// By how much the end of a run may be later than foreseen, all but about one time in a hundred: runs one after the other
/// that differ by themselves differ together as the root of their number.
fn tolerance(wait: Duration, service: Service) -> Duration {
    // Of the normal distribution: 2.33 standard deviations, each of which is 1.25 mean deviations.
    const DEVIATIONS: f64 = 2.33 * 1.25;
    let runs = 1.0 + wait.as_secs_f64() / service.mean.as_secs_f64().max(1e-9);
    service.deviation.mul_f64(DEVIATIONS * runs.sqrt())
}

impl<J: Needs> Desk<J> {
    /// Whether there is a place, and time; how long the job is expected to wait.
    pub(super) fn admit(
        &self,
        job: &J,
        class: &Arc<Class>,
        now: Instant,
        deadline: Instant,
    ) -> Result<Duration, Admission> {
        let line = self.lines.get(&class.model);
        let (wait, service, tolerance) = self.forecast(job, class, now);
        let waiting = line.map_or(0, |line| line.jobs.len());
        if waiting >= class.queue_limit {
            return Err(Admission::Full { limit: class.queue_limit, retry_after: wait });
        }
        let left = deadline.saturating_duration_since(now);
        let expected = wait + service + tolerance;
        // An idle server tries: its estimate may be of another shape, and a try costs nobody anything.
        if expected > left && !(wait.is_zero() && waiting == 0) {
            return Err(Admission::TooLate { expected, left });
        }
        Ok(wait)
    }

    /// How long the job would wait, how long its run would take, and by how much that may be wrong.
    fn forecast(&self, job: &J, class: &Arc<Class>, now: Instant) -> (Duration, Duration, Duration) {
        let Some((_, own)) = form::own(job) else { return Default::default() };
        let steady_rows = self.most_rows(job, own.rows);
        let mine = self.lines.get(&class.model);
        let first = mine.is_some_and(|line| self.below_share(line, now));
        let others = self.lines.values().filter(|line| line.class.model != class.model);
        let ahead = others
            .filter(|line| !first || self.below_share(line, now))
            .flat_map(|line| self.runs(line, self.ahead(line, class, now)));
        let mut runs: Vec<Runs> = ahead.collect();
        // Of the job's own model all that wait go before it, but for those that go with it.
        runs.extend(mine.map(Line::runs_alone));
        let (rows_before, mut run_rows) = (mine.map_or(0, |line| line.rows), own.rows);
        if job.group().is_some() {
            runs.push((rows_before / steady_rows, class.services.of(steady_rows).mean));
            run_rows = (rows_before % steady_rows + job.rows()).min(steady_rows).max(own.rows);
        }
        let on = |burst: bool| {
            let left = self.lanes.left(burst, own.bytes, now).collect();
            taken(left, runs.iter().copied()).into_iter().min().unwrap_or_default()
        };
        let steady = if self.lanes.largest(false) >= own.bytes { on(false) } else { Duration::MAX };
        let wait = match job.want() {
            Want::BurstToo if steady > class.max_delay => on(true).max(class.max_delay).min(steady),
            _ => steady,
        };
        // What nobody can foresee, those that will come and go first, has made others wait longer by this much.
        let wait = wait.mul_f64(mine.map_or(1.0, |line| line.stretch));
        let service = class.services.of(run_rows);
        (wait, service.mean, tolerance(wait, service))
    }

    /// How many of another model's waiting jobs go before one that comes now.
    fn ahead(&self, line: &Line<J>, class: &Class, now: Instant) -> usize {
        if line.class.priority >= class.priority || self.below_share(line, now) {
            return line.jobs.len();
        }
        let due = class.priority.due(now);
        line.jobs.values().take_while(|waiting| line.class.priority.due(waiting.entered) <= due).count()
    }

    /// The runs that the first of a line's jobs will be.
    fn runs(&self, line: &Line<J>, jobs: usize) -> [Runs; 3] {
        let none = (0, Duration::ZERO);
        let Some((_, first)) = line.jobs.first_key_value().filter(|_| jobs > 0) else { return [none; 3] };
        let part = jobs as f64 / line.jobs.len() as f64;
        let own = form::own(&first.job).map_or(1, |(_, bucket)| bucket.rows);
        let (most, rows) = (self.most_rows(&first.job, own), (line.rows as f64 * part).ceil() as usize);
        let (alone, takes) = line.runs_alone();
        let service = |rows| line.class.services.of(rows).mean;
        let rest = if rows % most > 0 { (1, service(rows % most)) } else { none };
        [((alone as f64 * part).ceil() as usize, takes), (rows / most, service(most)), rest]
    }

    /// Rows that run together at most in a steady lane; its own where that is no lane for the job.
    fn most_rows(&self, job: &J, own: usize) -> usize {
        form::largest(job, self.lanes.largest(false)).map_or(own, |most| most.rows.max(own)).max(1)
    }
}
