//! Who runs next, with whom, and where: the decisions alone, on a clock that the caller brings.
//!
//! It holds jobs and knows lanes as numbers, so that the same code decides in the server (under the lock of
//! [`super::hall`]) and in a simulation (on a virtual clock). Nothing here waits, and nothing runs.

mod forecast;
mod form;
mod lanes;
mod line;

pub(crate) use lanes::LaneSize;
use lanes::{Busy, LaneStates};
use line::{Line, Waiting};

use super::class::{Admission, Class};
use super::services::{Service, Services};
use super::spell::Spell;
use plimsoll_engine::lane::Want;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A run that takes less than this is not worth a thread of its own: to wake one, and to be woken by it, takes
/// tens of microseconds each, and an async thread may well be busy for as long as that.
const SHORT: Duration = Duration::from_micros(200);

/// So long after a refusal the server counts as shedding.
const SHEDDING: Duration = Duration::from_secs(1);

/// What can wait for a lane.
pub(crate) trait Needs {
    /// The lanes that it may have.
    fn want(&self) -> Want;

    /// Rows that it brings.
    fn rows(&self) -> usize;

    /// Jobs with the same number can run together; a job without one runs alone.
    fn group(&self) -> Option<u64>;

    /// How long runs of its shapes take.
    fn services(&self) -> &Arc<Services>;

    /// The runs that will do, by the rows that they have room for, smallest first; the first with room for the job's own
    /// rows is what it needs alone.
    fn bucket(&self, at: usize) -> Option<Bucket>;
}

/// A run with room for so many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Rows that it has room for.
    pub(crate) rows: usize,
    /// Bytes of workspace that it needs.
    pub(crate) bytes: u64,
}

/// Where a job waits: its model, and its number.
pub(crate) type Place = (u64, u64);

/// A job that was let in.
#[derive(Debug)]
pub(crate) enum Entered<J> {
    /// It is short and a lane is idle: whoever brings it runs it now.
    Now(Start<J>),
    /// It waits.
    Waits(Place),
}

/// Jobs that begin together.
#[derive(Debug)]
pub(crate) struct Start<J> {
    /// The lane that is theirs now, until [`Desk::done`].
    pub(crate) lane: usize,
    /// The jobs, in the order in which they came.
    pub(crate) jobs: Vec<J>,
    /// Which of the first job's buckets.
    pub(crate) bucket: usize,
    /// Whether a burst begins with them.
    pub(crate) begins_burst: bool,
}

/// What is to be done now.
#[derive(Debug)]
pub(crate) enum Next<J> {
    /// These jobs begin.
    Start(Start<J>),
    /// Nothing, until something comes or is done; or until this moment, when a job will have waited long enough for a
    /// burst lane.
    Wait(Option<Instant>),
}

/// How hard the server is pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    /// Steady lanes do.
    Steady,
    /// Burst lanes are in use.
    Burst,
    /// Requests are refused.
    Shedding,
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Why.
    pub(crate) why: Admission,
    /// Whether a time of refusals begins with it.
    pub(crate) begins_shedding: bool,
}

/// What a run of so many rows is expected to take, by its own shapes or else by any of the model's.
fn expected(services: &Services, class: &Class, rows: usize) -> Service {
    let own = services.of(rows);
    if own.mean.is_zero() { class.services.of(rows) } else { own }
}

/// The queues and the lanes' state.
#[derive(Debug)]
pub(crate) struct Desk<J> {
    lines: BTreeMap<u64, Line<J>>,
    lanes: LaneStates,
    waiting: usize,
    next: u64,
    bursts: Spell,
    refusals: Spell,
}

impl<J: Needs> Desk<J> {
    /// Nothing waits and all lanes are idle; they are counted from 0 in this order.
    pub(crate) fn new(lanes: Vec<LaneSize>) -> Desk<J> {
        let (bursts, refusals) = (Spell::default(), Spell::default());
        Desk { lines: BTreeMap::new(), lanes: LaneStates::new(lanes), waiting: 0, next: 0, bursts, refusals }
    }

    /// Jobs that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether a lane is idle.
    pub(crate) fn has_idle_lane(&self) -> bool {
        self.lanes.has_idle()
    }

    /// How hard the server is pressed.
    pub(crate) fn pressure(&self, now: Instant) -> Pressure {
        if self.refusals.is_on(now, SHEDDING) {
            Pressure::Shedding
        } else if self.bursts.is_on(now, Duration::ZERO) {
            Pressure::Burst
        } else {
            Pressure::Steady
        }
    }

    /// Lets a job in, or says at once why not.
    ///
    /// # Errors
    /// The model's queue is full, or the deadline cannot be met.
    pub(crate) fn enter(
        &mut self,
        job: J,
        class: &Arc<Class>,
        now: Instant,
        deadline: Instant,
    ) -> Result<Entered<J>, Refused> {
        if self.waiting == 0
            && let Some((lane, bucket)) = self.at_once(&job)
        {
            let services = Arc::clone(job.services());
            let begins_burst = self.begin(class, services, lane, bucket.1, now);
            return Ok(Entered::Now(Start { lane, jobs: vec![job], bucket: bucket.0, begins_burst }));
        }
        let foreseen = match self.admit(&job, class, now, deadline) {
            Ok(wait) => wait,
            Err(why) => return Err(Refused { why, begins_shedding: self.refusals.flash(now) }),
        };
        let number = self.next;
        self.next += 1;
        self.waiting += 1;
        let takes = form::own(&job).map_or(0, |(_, own)| own.rows);
        let takes = expected(job.services(), class, takes).mean;
        let line = self.line(class, now);
        let stretch = line.stretch;
        line.push(number, Waiting { job, entered: now, deadline, takes, foreseen, stretch });
        Ok(Entered::Waits((class.model, number)))
    }

    /// Says whether a job that needs this would be let in.
    ///
    /// # Errors
    /// As [`Desk::enter`].
    pub(crate) fn foresee(
        &mut self,
        needs: &impl Needs,
        class: &Arc<Class>,
        now: Instant,
        deadline: Instant,
    ) -> Result<(), Refused> {
        let admitted = self.admit(needs, class, now, deadline);
        admitted.map(drop).map_err(|why| Refused { why, begins_shedding: self.refusals.flash(now) })
    }

    /// The model's line. Where there is none yet, those are forgotten that nothing is to be remembered of.
    fn line(&mut self, class: &Arc<Class>, now: Instant) -> &mut Line<J> {
        if !self.lines.contains_key(&class.model) {
            self.lines.retain(|_, line| !line.is_idle() || line.used(now) > 0.01);
        }
        self.lines.entry(class.model).or_insert_with(|| Line::new(class))
    }

    /// The idle steady lane for a job so short that whoever brings it may as well run it, and its bucket.
    fn at_once(&self, job: &J) -> Option<(usize, (usize, Bucket))> {
        let bucket = form::own(job)?;
        // A guess is not enough to keep an async thread.
        let services = job.services();
        let short = services.knows(bucket.1.rows) && services.of(bucket.1.rows).mean < SHORT;
        let lane = short.then(|| self.lanes.idle(false, bucket.1.bytes, bucket.1.bytes))??;
        Some((lane, bucket))
    }

    /// Takes a job out, if it still waits.
    pub(crate) fn withdraw(&mut self, (model, number): Place, now: Instant) -> Option<J> {
        let line = self.lines.get_mut(&model)?;
        let waiting = line.remove(number)?;
        if waiting.deadline <= now {
            // It would have waited longer still.
            line.waited(&waiting, now);
        }
        self.waiting -= 1;
        self.sweep(model);
        Some(waiting.job)
    }

    /// What is to be done now. To be called until it says [`Next::Wait`].
    pub(crate) fn next(&mut self, now: Instant) -> Next<J> {
        let mut wake: Option<Instant> = None;
        if self.waiting == 0 || !self.lanes.has_idle() {
            return Next::Wait(None);
        }
        let order = self.order(now);
        // Those that can be answered in time first; who knows whether the others could not be after all.
        for in_time in [true, false] {
            for &model in &order {
                let Some(line) = self.lines.get(&model) else { continue };
                match self.startable(line, now, in_time) {
                    Ok(formed) => {
                        let Some(start) = self.take(model, formed, now) else { continue };
                        return Next::Start(start);
                    }
                    Err(later) => wake = [wake, later].into_iter().flatten().min(),
                }
            }
        }
        Next::Wait(wake)
    }

    /// Models with waiting jobs, those that have had less than their share first, then by when their first is due.
    fn order(&self, now: Instant) -> Vec<u64> {
        let mut order: Vec<_> = self
            .lines
            .iter()
            .filter_map(|(model, line)| Some((!self.below_share(line, now), line.due()?, *model)))
            .collect();
        order.sort_unstable();
        order.into_iter().map(|(.., model)| model).collect()
    }

    fn below_share(&self, line: &Line<J>, now: Instant) -> bool {
        let share = line.class.share;
        share > 0.0
            && line.used(now) + self.lanes.busy_with(line.class.model) < share * self.lanes.steady() as f64
    }

    /// Takes out what was formed and gives it its lane.
    fn take(&mut self, model: u64, formed: form::Formed, now: Instant) -> Option<Start<J>> {
        let form::Formed { lane, numbers, bucket } = formed;
        let line = self.lines.get_mut(&model)?;
        let class = Arc::clone(&line.class);
        let mut jobs = vec![];
        for number in numbers {
            let Some(waiting) = line.remove(number) else { continue };
            line.waited(&waiting, now);
            jobs.push(waiting.job);
        }
        self.waiting -= jobs.len();
        let services = Arc::clone(jobs.first()?.services());
        let begins_burst = self.begin(&class, services, lane, bucket.1, now);
        Some(Start { lane, jobs, bucket: bucket.0, begins_burst })
    }

    /// Marks a lane as busy; whether that begins a burst.
    fn begin(
        &mut self,
        class: &Arc<Class>,
        services: Arc<Services>,
        lane: usize,
        bucket: Bucket,
        now: Instant,
    ) -> bool {
        let expected = expected(&services, class, bucket.rows).mean;
        self.line(class, now).running += 1;
        self.lanes
            .begin(lane, Busy { model: class.model, services, rows: bucket.rows, since: now, expected });
        self.lanes.is_burst(lane) && self.bursts.begin(now)
    }

    /// The run in a lane is over: the lane is idle again. `ran` says how long it took where that is worth remembering.
    pub(crate) fn done(&mut self, lane: usize, now: Instant, ran: Option<Duration>) {
        let Some(busy) = self.lanes.end(lane) else { return };
        if self.lanes.is_burst(lane) {
            self.bursts.end(now);
        }
        if let Some(line) = self.lines.get_mut(&busy.model) {
            line.running -= 1;
            line.use_up(now, now.saturating_duration_since(busy.since));
            if let Some(ran) = ran {
                busy.services.record(busy.rows, ran, now);
                line.class.services.record(busy.rows, ran, now);
            }
        }
        self.sweep(busy.model);
    }

    /// Forgets a line once it is empty; what a model with a share has had of the lanes is remembered.
    fn sweep(&mut self, model: u64) {
        if self.lines.get(&model).is_some_and(|line| line.is_idle() && line.class.share == 0.0) {
            self.lines.remove(&model);
        }
    }
}
