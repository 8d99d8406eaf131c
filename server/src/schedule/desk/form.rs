//! Forming a run: which of a model's waiting jobs, in which lane, with whom.

use super::forecast::taken;
use super::line::{Line, Waiting};
use super::{Bucket, Desk, Needs, expected};
use plimsoll_engine::lane::Want;
use std::time::{Duration, Instant};

/// A run to be begun: a lane, jobs by number, and which bucket of the first of them.
#[derive(Debug)]
pub(super) struct Formed {
    pub(super) lane: usize,
    pub(super) numbers: Vec<u64>,
    pub(super) bucket: (usize, Bucket),
}

/// Every bucket of a job with its position.
fn buckets<J: Needs>(job: &J) -> impl Iterator<Item = (usize, Bucket)> {
    (0..).map_while(|at| Some((at, job.bucket(at)?)))
}

/// What a job needs alone.
pub(super) fn own<J: Needs>(job: &J) -> Option<(usize, Bucket)> {
    buckets(job).find(|(_, bucket)| bucket.rows >= job.rows())
}

/// The bucket of a job for a lane of so many bytes in which a row takes the least time, of equals the larger. Larger ones
/// that were never measured are tried, the largest first, and one that was found slow is tried again after some seconds.
/// Where rows together take longer than apart, as some models' do on a CPU whose caches one row fills, it is the smallest.
pub(super) fn best<J: Needs>(job: &J, lane_bytes: u64, now: Instant) -> Option<Bucket> {
    /// One size may be a little slow by itself and the next one fast. Beyond this, larger ones are not tried again.
    const SLOW: f64 = 1.1;
    let services = job.services();
    let mut fitting = buckets(job).map(|(_, bucket)| bucket).filter(|bucket| bucket.bytes <= lane_bytes);
    let mut best = fitting.next()?;
    let mut least = services.ns_per_row(best.rows).unwrap_or(f64::INFINITY);
    let (mut untried, mut again, mut slow) = (None, None, false);
    for larger in fitting {
        match services.ns_per_row(larger.rows) {
            None => untried = Some(larger),
            Some(ns) if ns <= least => {
                (best, least) = (larger, ns);
                (untried, again, slow) = (None, None, false);
            }
            Some(_) if again.is_none() && !slow && !services.knows_lately(larger.rows, now) => {
                again = Some(larger);
            }
            Some(ns) => slow |= ns > least * SLOW,
        }
    }
    Some(untried.or(again).unwrap_or(best))
}

/// The smallest bucket of a job with room for so many rows, else the largest.
fn covering<J: Needs>(job: &J, rows: usize) -> Option<(usize, Bucket)> {
    let mut last = None;
    for bucket in buckets(job) {
        last = Some(bucket);
        if bucket.1.rows >= rows {
            break;
        }
    }
    last
}

/// How many jobs go together, of which the first few have so many rows, and their bucket: as many as make a row take the least
/// time. Three in a bucket of four may take longer than two of them in one of two.
fn filled<J: Needs>(job: &J, rows: &[usize]) -> Option<(usize, (usize, Bucket))> {
    let all = (rows.len(), covering(job, *rows.last()?)?);
    let ns_per_row = |rows: usize, bucket: Bucket| {
        job.services().ns_per_row(bucket.rows).map(|ns| ns * bucket.rows as f64 / rows.max(1) as f64)
    };
    let fewer = rows.iter().enumerate().filter_map(|(at, rows)| {
        let bucket = covering(job, *rows)?;
        Some((ns_per_row(*rows, bucket.1)?, (at + 1, bucket)))
    });
    let Some(of_all) = ns_per_row(*rows.last()?, all.1.1) else { return Some(all) };
    let best = fewer.filter(|(ns, _)| *ns < of_all).min_by(|(one, _), (other, _)| one.total_cmp(other));
    Some(best.map_or(all, |(_, best)| best))
}

/// Rows of the jobs that could run with `job`, its own included; counted up to `most`.
fn together<J: Needs>(line: &Line<J>, job: &J, most: usize) -> usize {
    let Some(group) = job.group() else { return job.rows() };
    let mut rows = 0;
    for waiting in line.jobs.values().filter(|waiting| waiting.job.group() == Some(group)) {
        rows += waiting.job.rows();
        if rows >= most {
            return most;
        }
    }
    rows
}

impl<J: Needs> Desk<J> {
    /// The first run that can begin among a model's waiting jobs; else when to look again, where time alone would change
    /// that. A job may pass one before it that needs more workspace than is idle: it takes no lane that the other
    /// could use.
    /// With `in_time` those are passed over that could not be answered by their deadlines any more.
    pub(super) fn startable(
        &self,
        line: &Line<J>,
        now: Instant,
        in_time: bool,
    ) -> Result<Formed, Option<Instant>> {
        let mut wake: Option<Instant> = None;
        let mut seen: Vec<u64> = vec![];
        for (number, waiting) in &line.jobs {
            // Nobody waits for it any more.
            if waiting.deadline <= now {
                continue;
            }
            // A job's group fares as its first; those that run alone differ in what they need.
            let group = waiting.job.group();
            if group.is_some_and(|group| seen.contains(&group)) || in_time && self.is_late(line, waiting, now)
            {
                continue;
            }
            seen.extend(group);
            match self.lane_for(line, waiting, now) {
                Ok(lane) => {
                    if let Some(formed) = self.form(line, *number, waiting, lane, now) {
                        return Ok(formed);
                    }
                }
                Err(later) => wake = [wake, later].into_iter().flatten().min(),
            }
        }
        Err(wake)
    }

    /// Whether a run of this job alone, begun now, is expected to end after its deadline.
    fn is_late(&self, line: &Line<J>, waiting: &Waiting<J>, now: Instant) -> bool {
        let rows = own(&waiting.job).map_or(0, |(_, bucket)| bucket.rows);
        now + expected(waiting.job.services(), &line.class, rows).mean > waiting.deadline
    }

    /// The lane in which a run of this job and those with it should begin now.
    fn lane_for(&self, line: &Line<J>, waiting: &Waiting<J>, now: Instant) -> Result<usize, Option<Instant>> {
        let job = &waiting.job;
        let Some((_, own)) = own(job) else { return Err(None) };
        let most = best(job, u64::MAX, now).map_or(own.rows, |most| most.rows.max(own.rows));
        let rows = together(line, job, most);
        let best = covering(job, rows).map_or(own.bytes, |(_, bucket)| bucket.bytes);
        let steady = self.lanes.idle(false, own.bytes, best);
        let burst = || match job.want() {
            Want::BurstToo => self.lanes.idle(true, own.bytes, best),
            Want::Steady => None,
        };
        if let Some(steady) = steady {
            let faster = burst().filter(|burst| self.drains_sooner(line, job, rows, [steady, *burst], now));
            return Ok(faster.unwrap_or(steady));
        }
        let burst = burst().ok_or(None)?;
        // No steady lane will ever do, or not soon enough.
        let (max_delay, waited) = (line.class.max_delay, now.saturating_duration_since(waiting.entered));
        let left = self.lanes.left(false, own.bytes, now).min();
        match left {
            Some(left) if waited + left <= max_delay && waited < max_delay => {
                Err(waiting.entered.checked_add(max_delay))
            }
            _ => Ok(burst),
        }
    }

    /// Whether a burst lane, in which more rows run at once, is done with those that wait before the steady lanes are.
    fn drains_sooner(&self, line: &Line<J>, job: &J, rows: usize, lanes: [usize; 2], now: Instant) -> bool {
        let [steady, burst] = lanes.map(|lane| best(job, self.lanes.bytes(lane), now));
        let (Some(steady), Some(burst)) = (steady, burst) else { return false };
        if rows <= steady.rows || burst.rows <= steady.rows {
            return false;
        }
        let service = |bucket: Bucket| expected(job.services(), &line.class, bucket.rows).mean;
        let runs = |bucket: Bucket| (rows.div_ceil(bucket.rows.max(1)), service(bucket));
        let done = |left, bucket| taken(left, [runs(bucket)]).into_iter().max().unwrap_or_default();
        let in_burst = done(vec![Duration::ZERO], burst);
        let in_steady = done(self.lanes.left(false, steady.bytes, now).collect(), steady);
        !in_burst.is_zero() && in_burst < in_steady
    }

    /// The first job and those of its group that go with it.
    fn form(
        &self,
        line: &Line<J>,
        first: u64,
        waiting: &Waiting<J>,
        lane: usize,
        now: Instant,
    ) -> Option<Formed> {
        let job = &waiting.job;
        let alone = own(job)?;
        let Some(group) = job.group() else {
            return Some(Formed { lane, numbers: vec![first], bucket: alone });
        };
        // As many as there is workspace for and as gain by it, and as are done before the deadline of each.
        let lane_bytes = self.lanes.bytes(lane);
        let done = |bucket: &Bucket| now + expected(job.services(), &line.class, bucket.rows).mean;
        let most = best(job, lane_bytes, now).map_or(alone.1.rows, |most| most.rows.max(alone.1.rows));
        // Idle lanes share what waits.
        let idle = self.lanes.count_idle(self.lanes.is_burst(lane), alone.1.bytes).max(1);
        let fair = together(line, job, most.saturating_mul(idle)).div_ceil(idle);
        let (mut numbers, mut rows, mut deadline) = (vec![first], vec![job.rows()], waiting.deadline);
        for (number, other) in line.jobs.range(first + 1..) {
            let so_far = rows.last().copied().unwrap_or_default();
            if so_far >= fair {
                break;
            }
            if other.job.group() != Some(group) || other.deadline <= now || self.is_late(line, other, now) {
                continue;
            }
            let (with, earliest) = (so_far + other.job.rows(), deadline.min(other.deadline));
            let in_time = covering(job, with).is_some_and(|(_, bucket)| done(&bucket) <= earliest);
            if with > most || !in_time {
                break;
            }
            deadline = earliest;
            rows.push(with);
            numbers.push(*number);
        }
        let (count, bucket) = filled(job, &rows)?;
        numbers.truncate(count);
        Some(Formed { lane, numbers, bucket })
    }
}
