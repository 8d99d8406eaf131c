//! The scheduler on a virtual clock: the desk that serves real requests decides over imagined ones, in microseconds.
//!
//! Arrivals come at given times, runs take what a function says, and nothing else takes time. A request that would still
//! be running at its deadline counts as expired, as it does for a client.

use super::class::{Admission, Class};
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
    /// The runs that it has, fewest rows first; more than one where requests can run together.
    pub(crate) buckets: Arc<[Bucket]>,
    /// What a run takes that has room for so many rows.
    pub(crate) takes: Box<dyn Fn(usize) -> Duration>,
}

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
    /// It was refused at once.
    Refused(Admission),
    /// Its deadline passed; whether it was running by then.
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
    Done(usize, Duration),
    Deadline(Place, usize),
    Look,
}

/// A simulation under way.
struct World<'a> {
    models: &'a [Imagined],
    desk: Desk<Request>,
    clock: BinaryHeap<Reverse<(Instant, Happening)>>,
    start: Instant,
    fates: Vec<Option<Fate>>,
    arrivals: &'a [Arrival],
}

/// What becomes of each arrival, in their order; they must be in the order of their times, and each of no more rows than
/// its model's largest run.
pub(crate) fn simulate(lanes: Vec<LaneSize>, models: &[Imagined], arrivals: &[Arrival]) -> Vec<Fate> {
    let (desk, clock, start) = (Desk::new(lanes), BinaryHeap::new(), Instant::now());
    let fates = vec![None; arrivals.len()];
    let mut world = World { models, desk, clock, start, fates, arrivals };
    for number in 0..arrivals.len() {
        let Some(now) = arrivals.get(number).map(|arrival| start + arrival.at) else { break };
        world.until(now);
        world.arrive(number, now);
        world.look(now);
    }
    // What waits for no lane that will ever be has its deadline.
    while let Some(Reverse((now, happening))) = world.clock.pop() {
        world.happen(now, happening);
    }
    world.fates.into_iter().map(|fate| fate.unwrap_or(Fate::Expired { begun: false })).collect()
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
            Happening::Done(lane, took) => self.desk.done(lane, now, Some(took)),
            Happening::Deadline(place, number) => {
                if self.desk.withdraw(place, now).is_some() {
                    self.settle(number, Fate::Expired { begun: false });
                }
            }
            Happening::Look => {}
        }
        self.look(now);
    }

    fn arrive(&mut self, number: usize, now: Instant) {
        let Some(arrival) = self.arrivals.get(number) else { return };
        let Some(model) = self.models.get(arrival.model) else { return };
        let deadline = now + arrival.timeout;
        let job = Request {
            number,
            rows: arrival.rows,
            group: (model.buckets.len() > 1).then_some(model.class.model),
            services: Arc::clone(&model.services),
            buckets: Arc::clone(&model.buckets),
            deadline,
        };
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
        let Some(model) = self.models.get(arrival.model) else { return };
        let took = (model.takes)(bucket.rows);
        let (done, together) = (now + took, jobs.len());
        for job in &jobs {
            let (begun, at) = (now - self.start, done - self.start);
            let fate = match done <= job.deadline {
                true => Fate::Answered { begun, done: at, lane, together },
                false => Fate::Expired { begun: now < job.deadline },
            };
            self.settle(job.number, fate);
        }
        self.clock.push(Reverse((done, Happening::Done(lane, took))));
    }

    fn settle(&mut self, number: usize, fate: Fate) {
        if let Some(place) = self.fates.get_mut(number) {
            *place = Some(fate);
        }
    }
}
