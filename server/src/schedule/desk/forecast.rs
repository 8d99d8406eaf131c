//! When a job would begin and be done, from what waits, what runs and how long runs take.

use super::super::class::{Admission, Class};
use super::super::services::Service;
use super::line::Line;
use super::{Desk, Needs, expected, form};
use plimsoll_engine::lane::Want;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A model of which no run was measured for so long is given a try.
const STALE: Duration = Duration::from_secs(1);

/// Nobody waits for longer, so that it can be calculated with.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a job would wait, how long its run would take, and by how much that may be wrong.
struct Forecast {
    wait: Duration,
    service: Duration,
    tolerance: Duration,
}

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
    service.deviation.min(LONGEST).mul_f64(DEVIATIONS * runs.min(1e9).sqrt())
}

impl<J: Needs> Desk<J> {
    /// Whether there is a place, and time; how long the job is expected to wait.
    pub(super) fn admit(
        &self,
        job: &impl Needs,
        class: &Arc<Class>,
        now: Instant,
        deadline: Instant,
    ) -> Result<Duration, Admission> {
        let line = self.lines.get(&class.model);
        let Forecast { wait, service, tolerance } = self.forecast(job, class, now)?;
        let waiting = line.map_or(0, |line| line.jobs.len());
        if waiting >= class.queue_limit {
            return Err(Admission::Full { limit: class.queue_limit, retry_after: wait });
        }
        let left = deadline.saturating_duration_since(now);
        let expected = wait.saturating_add(service).saturating_add(tolerance);
        // An idle server tries: its estimate may be of another time, and a try costs nobody anything. One try now and
        // then is allowed a model that would else be judged for ever by what it once took.
        let tries = waiting == 0 && (wait.is_zero() || self.is_worth_a_try(line, job, now) && wait <= left);
        if expected > left && !tries {
            return Err(Admission::TooLate { expected, left });
        }
        Ok(wait)
    }

    fn is_worth_a_try(&self, line: Option<&Line<J>>, job: &impl Needs, now: Instant) -> bool {
        line.is_none_or(Line::is_idle) && job.services().is_stale(now, STALE)
    }

    /// How long the job would wait and run.
    fn forecast(&self, job: &impl Needs, class: &Arc<Class>, now: Instant) -> Result<Forecast, Admission> {
        let (_, own) = form::own(job).ok_or(Admission::NoLane)?;
        let fits = |burst| self.lanes.largest(burst) >= own.bytes;
        if self.lanes.has_any() && !fits(false) && (job.want() == Want::Steady || !fits(true)) {
            return Err(Admission::NoLane);
        }
        let steady_rows = self.most_rows(job, own.rows, now);
        let mine = self.lines.get(&class.model);
        // A model that has no line has had nothing lately.
        let first = class.share > 0.0 && mine.is_none_or(|line| self.below_share(line, now));
        let others = self.lines.values().filter(|line| line.class.model != class.model);
        let mut runs: Vec<Runs> = vec![];
        for line in others.filter(|line| !first || self.below_share(line, now)) {
            self.runs(line, self.ahead(line, class, now), None, now, &mut runs);
        }
        // Of the job's own model all that wait go before it, but for those that go with it.
        let (mut run_rows, service_of) = (own.rows, |rows| expected(job.services(), class, rows));
        if let Some(line) = mine {
            self.runs(line, line.jobs.len(), job.group(), now, &mut runs);
            if let Some(rows) = job.group().and_then(|group| line.rows.get(&group)) {
                runs.push((rows / steady_rows, service_of(steady_rows).mean));
                run_rows = (rows % steady_rows + job.rows()).min(steady_rows).max(own.rows);
            }
        }
        let on = |burst: bool| {
            let left = self.lanes.left(burst, own.bytes, now).collect();
            taken(left, runs.iter().copied()).into_iter().min().unwrap_or_default()
        };
        let steady = if fits(false) || !self.lanes.has_any() { on(false) } else { Duration::MAX };
        let wait = match job.want() {
            Want::BurstToo if steady > class.max_delay => {
                // A burst lane is kept back only while a steady one is expected in time.
                let soon =
                    self.lanes.left(false, own.bytes, now).min().is_some_and(|left| left <= class.max_delay);
                on(true).max(if soon { class.max_delay } else { Duration::ZERO }).min(steady)
            }
            _ => steady,
        };
        // What nobody can foresee, those that will come and go first, has made others wait longer by this much.
        let wait = wait.min(LONGEST).mul_f64(mine.map_or(1.0, |line| line.stretch));
        let service = service_of(run_rows);
        Ok(Forecast { wait, service: service.mean, tolerance: tolerance(wait, service) })
    }

    /// How many of another model's waiting jobs go before one that comes now.
    fn ahead(&self, line: &Line<J>, class: &Class, now: Instant) -> usize {
        if line.class.priority >= class.priority || self.below_share(line, now) {
            return line.jobs.len();
        }
        let due = class.priority.due(now);
        line.jobs.values().take_while(|waiting| line.class.priority.due(waiting.entered) <= due).count()
    }

    /// The runs that the first of a line's jobs will be, but for those of one group.
    fn runs(&self, line: &Line<J>, jobs: usize, but: Option<u64>, now: Instant, runs: &mut Vec<Runs>) {
        let Some((_, first)) = line.jobs.first_key_value().filter(|_| jobs > 0) else { return };
        let part = jobs as f64 / line.jobs.len() as f64;
        let of = |count: usize| (count as f64 * part).ceil() as usize;
        let (alone, takes) = line.runs_alone();
        runs.push((of(alone), takes));
        let own = form::own(&first.job).map_or(1, |(_, bucket)| bucket.rows);
        let most = self.most_rows(&first.job, own, now);
        let service = |rows| expected(first.job.services(), &line.class, rows).mean;
        for (_, rows) in line.rows.iter().filter(|(group, _)| Some(**group) != but) {
            let rows = of(*rows);
            runs.push((rows / most, service(most)));
            if rows % most > 0 {
                runs.push((1, service(rows % most)));
            }
        }
    }

    /// Rows that run together in a steady lane where many wait; its own where that is no lane for the job.
    fn most_rows(&self, job: &impl Needs, own: usize, now: Instant) -> usize {
        form::best(job, self.lanes.largest(false), now).map_or(own, |most| most.rows.max(own)).max(1)
    }
}
