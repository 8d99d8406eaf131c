//! The scheduler on a virtual clock: the desk that serves real requests decides over imagined ones, in microseconds.
//!
//! Arrivals come at given times, runs take what a function says of them and of how many lanes are busy, and nothing else
//! takes time. A request that is still running at its deadline counts as expired, as it does for a client.

mod fate;
mod runs;

pub(crate) use fate::{Arrival, Fate, Played, Ran};
use runs::{Running, Runs};

use super::class::Class;
use super::desk::{Bucket, Desk, Entered, LaneSize, Needs, Next, Place, Start};
use super::services::Services;
use plimsoll_engine::lane::Want;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A model of a simulation.
pub(crate) struct Imagined {
    /// As the scheduler sees it; what its runs take is learned as they are done.
    pub(crate) class: Arc<Class>,
    /// What is known of its runs' times.
    pub(crate) services: Arc<Services>,
    /// The runs in which its requests can be together, fewest rows first.
    pub(crate) buckets: Arc<[Bucket]>,
    /// The runs of requests that are run alone: those whose rows are just these.
    pub(crate) alone: Vec<Bucket>,
    /// What a run takes.
    pub(crate) takes: Box<dyn Fn(Run) -> Duration>,
}

/// A run under way, as far as its time depends on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Run {
    /// Rows that it has room for.
    pub(crate) rows: usize,
    /// Lanes that are busy, its own included.
    pub(crate) busy: usize,
    /// The part of all such runs, 0 to 1, that take less time.
    pub(crate) luck: f64,
    /// Whether its lane was idle before, and not at work until it began.
    pub(crate) woken: bool,
}

/// A request in the simulated queue.
#[derive(Debug)]
struct Request {
    number: usize,
    rows: usize,
    group: Option<u64>,
    services: Arc<Services>,
    buckets: Arc<[Bucket]>,
    deadline: Instant,
}

impl Needs for Request {
    fn want(&self) -> Want {
        Want::BurstToo
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn group(&self) -> Option<u64> {
        self.group
    }

    fn services(&self) -> &Arc<Services> {
        &self.services
    }

    fn bucket(&self, at: usize) -> Option<Bucket> {
        self.buckets.get(at).copied()
    }
}

/// What happens next on the clock; of several at once, in this order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// A lane's run is done, if it is still this many changes of pace old.
    Done(usize, u64),
    Deadline(Place, usize),
    Look,
}

/// A simulation under way.
struct World<'a> {
    models: &'a [Imagined],
    arrivals: &'a [Arrival],
    luck: &'a mut dyn FnMut() -> f64,
    desk: Desk<Request>,
    runs: Runs,
    clock: BinaryHeap<Reverse<(Instant, Happening)>>,
    start: Instant,
    fates: Vec<Option<Fate>>,
    ran: Vec<Ran>,
}

/// What becomes of each arrival; they must be in the order of their times. A request whose rows its model has no run for
/// is unfit. `luck` draws a number from 0 to 1 for each run.
pub(crate) fn simulate(
    lanes: Vec<LaneSize>,
    models: &[Imagined],
    arrivals: &[Arrival],
    luck: &mut dyn FnMut() -> f64,
) -> Played {
    let runs = Runs::new(lanes.len());
    let (desk, clock, start) = (Desk::new(lanes), BinaryHeap::new(), Instant::now());
    let fates = vec![None; arrivals.len()];
    let mut world = World { models, arrivals, luck, desk, runs, clock, start, fates, ran: vec![] };
    for (number, arrival) in arrivals.iter().enumerate() {
        let now = start + arrival.at;
        world.until(now);
        world.arrive(number, arrival, now);
        world.look(now);
    }
    // What waits for no lane that will ever be has its deadline.
    while let Some(Reverse((now, happening))) = world.clock.pop() {
        world.happen(now, happening);
    }
    let fates = world.fates.into_iter().map(|fate| fate.unwrap_or(Fate::Expired { begun: false }));
    Played { fates: fates.collect(), runs: world.ran }
}

impl World<'_> {
    fn until(&mut self, now: Instant) {
        while self.clock.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((at, happening))) = self.clock.pop() else { return };
            self.happen(at, happening);
        }
    }

    fn happen(&mut self, now: Instant, happening: Happening) {
        match happening {
            Happening::Done(lane, pace) => match self.runs.end(lane, pace, now) {
                Some(run) => self.done(lane, run, now),
                None => return,
            },
            Happening::Deadline(place, number) => {
                if self.desk.withdraw(place, now).is_some() {
                    self.settle(number, Fate::Expired { begun: false });
                }
            }
            Happening::Look => {}
        }
        self.look(now);
    }

    fn arrive(&mut self, number: usize, arrival: &Arrival, now: Instant) {
        let Some(model) = self.models.get(arrival.model) else { return };
        let together = model.buckets.last().is_some_and(|bucket| bucket.rows >= arrival.rows);
        let alone = || model.alone.iter().find(|bucket| bucket.rows == arrival.rows);
        let (group, buckets) = match (together, alone()) {
            (true, _) => (Some(model.class.model), Arc::clone(&model.buckets)),
            (false, Some(alone)) => (None, [*alone].into()),
            (false, None) => return self.settle(number, Fate::Unfit),
        };
        let deadline = now + arrival.timeout;
        let services = Arc::clone(&model.services);
        let job = Request { number, rows: arrival.rows, group, services, buckets, deadline };
        match self.desk.enter(job, &model.class, now, deadline) {
            Ok(Entered::Now(start)) => self.begin(start, now),
            Ok(Entered::Waits(place)) => {
                self.clock.push(Reverse((deadline, Happening::Deadline(place, number))));
            }
            Err(refused) => self.settle(number, Fate::Refused(refused.why)),
        }
    }

    /// Lets everything begin that can.
    fn look(&mut self, now: Instant) {
        loop {
            match self.desk.next(now) {
                Next::Start(start) => self.begin(start, now),
                Next::Wait(None) => return,
                Next::Wait(Some(at)) => {
                    self.clock.push(Reverse((at.max(now + Duration::from_nanos(1)), Happening::Look)));
                    return;
                }
            }
        }
    }

    fn begin(&mut self, start: Start<Request>, now: Instant) {
        let Start { lane, jobs, bucket, .. } = start;
        let first = jobs.first().and_then(|job| Some((self.arrivals.get(job.number)?, job.bucket(bucket)?)));
        let Some((arrival, bucket)) = first else { return };
        let (model, rows, luck) = (arrival.model, bucket.rows, (self.luck)());
        let woken = self.runs.is_woken(lane, now);
        self.runs.begin(lane, Running { model, rows, luck, woken, jobs, begun: now });
        self.pace(now);
    }

    fn done(&mut self, lane: usize, run: Running, now: Instant) {
        self.desk.done(lane, now, Some(now - run.begun));
        let (begun, done, together) = (run.begun - self.start, now - self.start, run.jobs.len());
        for job in &run.jobs {
            let fate = match now <= job.deadline {
                true => Fate::Answered { begun, done, lane, together },
                false => Fate::Expired { begun: run.begun < job.deadline },
            };
            self.settle(job.number, fate);
        }
        let rows = run.jobs.iter().map(|job| job.rows).sum();
        self.ran.push(Ran { model: run.model, lane, rows, begun, done });
        self.pace(now);
    }

    /// Runs go slower or faster when others begin or are done.
    fn pace(&mut self, now: Instant) {
        let takes =
            |model: usize, run| self.models.get(model).map_or(Duration::ZERO, |model| (model.takes)(run));
        for (lane, pace, done) in self.runs.pace(now, takes) {
            self.clock.push(Reverse((done, Happening::Done(lane, pace))));
        }
    }

    fn settle(&mut self, number: usize, fate: Fate) {
        if let Some(place) = self.fates.get_mut(number) {
            *place = Some(fate);
        }
    }
}
