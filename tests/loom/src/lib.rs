//! The pool of lanes and the hall where jobs wait for them, in every interleaving of a few threads: no lane has two
//! holders, every job is done, and nobody waits for ever (which loom reports as a deadlock).
//!
//! The flag `--cfg loom` changes other crates too, so the few files that matter are taken in here by their paths;
//! `tests/run` says how this is run.

#![cfg(all(test, loom))]

// The server's files name the engine.
extern crate self as plimsoll_engine;

#[path = "../../../engine/src/lane/mod.rs"]
pub mod lane;

#[allow(dead_code)]
mod schedule;

pub mod slab;

use lane::{Lane, Pool, Want};
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use schedule::{Bucket, Class, Entered, Hall, Needs, Priority, Services, Turn};
use std::time::{Duration, Instant};

/// Runs `test` in every interleaving with so many preemptions at most: few are enough for such errors to show.
fn model(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

/// Fails where a lane is held by two.
struct Holders(Vec<AtomicBool>);

impl Holders {
    fn new(lanes: usize) -> Holders {
        Holders((0..lanes).map(|_| AtomicBool::new(false)).collect())
    }

    fn hold(&self, lane: &Lane<()>) {
        assert!(!self.0[lane.index()].swap(true, Ordering::SeqCst), "handed to two");
        self.0[lane.index()].store(false, Ordering::SeqCst);
    }
}

#[test]
fn a_lane_is_handed_to_one_at_a_time() {
    model(3, || {
        let pool = Pool::new(vec![(100, ())], vec![]);
        let holders = Arc::new(Holders::new(1));
        let takers = [(); 2].map(|()| {
            let (pool, holders) = (pool.clone(), Arc::clone(&holders));
            thread::spawn(move || pool.take(0).iter().for_each(|lane| holders.hold(lane)))
        });
        for taker in takers {
            taker.join().unwrap();
        }
        assert_eq!(pool.counters().steady.busy, 0);
        assert!(pool.take(0).is_some());
    });
}

/// A job that is nothing but its need.
struct Job(u64, std::sync::Arc<Services>);

impl Needs for Job {
    fn want(&self) -> Want {
        Want::BurstToo
    }

    fn rows(&self) -> usize {
        1
    }

    fn group(&self) -> Option<u64> {
        None
    }

    fn services(&self) -> &std::sync::Arc<Services> {
        &self.1
    }

    fn bucket(&self, at: usize) -> Option<Bucket> {
        (at == 0).then_some(Bucket { rows: 1, bytes: self.0 })
    }
}

/// How many jobs have been done.
#[derive(Default)]
struct Done {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Done {
    fn add(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    fn wait(&self, jobs: usize) {
        let mut count = self.count.lock().unwrap();
        while *count < jobs {
            count = self.changed.wait(count).unwrap();
        }
    }
}

/// A hall with lanes of these bytes, and a worker for each.
struct World {
    hall: Arc<Hall<Job, ()>>,
    done: Arc<Done>,
    workers: Vec<thread::JoinHandle<()>>,
}

fn class() -> std::sync::Arc<Class> {
    let (services, max_delay) = (Services::default(), Duration::ZERO);
    std::sync::Arc::new(Class {
        model: 1,
        queue_limit: 9,
        priority: Priority::new(5),
        share: 0.0,
        max_delay,
        services,
    })
}

fn enter(hall: &Hall<Job, ()>, need_bytes: u64, service: Duration) -> Entered<Job, ()> {
    let (now, hour) = (Instant::now(), Duration::from_secs(3600));
    let services = std::sync::Arc::new(Services::default());
    if !service.is_zero() {
        services.reset(1, service);
    }
    hall.enter(Job(need_bytes, services), &class(), now, now + hour).ok().unwrap()
}

impl World {
    fn new(steady: &[u64], burst: &[u64]) -> World {
        let lanes = |bytes: &[u64]| bytes.iter().map(|bytes| (*bytes, ())).collect();
        let count = steady.len() + burst.len();
        let hall = Arc::new(Hall::<Job, ()>::new(Pool::new(lanes(steady), lanes(burst))));
        let (done, holders) = (Arc::new(Done::default()), Arc::new(Holders::new(count)));
        let workers = (0..count).map(|_| {
            let (hall, done, holders) = (Arc::clone(&hall), Arc::clone(&done), Arc::clone(&holders));
            thread::spawn(move || {
                let mut next = hall.next();
                while let Some(Turn { lane, jobs, .. }) = next {
                    assert!(jobs.iter().all(|job| lane.bytes() >= job.0));
                    holders.hold(&lane);
                    next = hall.exchange(lane, None);
                    done.add();
                    next = next.or_else(|| hall.next());
                }
            })
        });
        let workers = workers.collect();
        World { hall, done, workers }
    }

    fn enter(&self, need_bytes: u64, service: Duration) -> Entered<Job, ()> {
        enter(&self.hall, need_bytes, service)
    }

    /// Brings a job, and runs it here where it is to be run at once.
    fn bring(&self, need_bytes: u64, service: Duration) {
        if let Entered::Now(turn) = self.enter(need_bytes, service) {
            self.hall.give_back(turn.lane, None);
            self.done.add();
        }
    }

    /// Waits until so many jobs have been done, which nobody but those who brought and did them helps along.
    fn done(self, jobs: usize) -> World {
        self.done.wait(jobs);
        self
    }

    /// Closes the hall, and waits for the workers.
    fn end(self, jobs: usize) {
        self.hall.close();
        self.ended(jobs);
    }

    /// Waits for the workers of a closed hall; as many jobs must have been done.
    fn ended(self, jobs: usize) {
        for worker in self.workers {
            worker.join().unwrap();
        }
        assert_eq!((*self.done.count.lock().unwrap(), self.hall.queued()), (jobs, 0));
    }
}

const LONG: Duration = Duration::ZERO;
const SHORT: Duration = Duration::from_micros(1);

#[test]
fn every_job_is_done_and_every_worker_ends() {
    model(2, || {
        let world = World::new(&[100, 100], &[]);
        world.bring(50, LONG);
        world.bring(50, LONG);
        world.done(2).end(2);
    });
}

#[test]
fn what_still_waits_at_the_end_is_done_too() {
    model(2, || {
        let world = World::new(&[100, 100], &[]);
        world.bring(50, LONG);
        world.bring(50, LONG);
        world.end(2);
    });
}

#[test]
fn small_and_large_jobs_are_all_done_on_a_steady_and_a_burst_lane() {
    model(2, || {
        let world = World::new(&[100], &[200]);
        for need_bytes in [200, 50, 150] {
            world.bring(need_bytes, LONG);
        }
        world.done(3).end(3);
    });
}

#[test]
fn workers_that_can_use_no_lane_end_too() {
    model(2, || {
        let world = World::new(&[100, 1, 1], &[]);
        let Entered::Now(Turn { lane, .. }) = world.enter(100, SHORT) else { panic!("a lane is idle") };
        world.bring(100, LONG);
        world.hall.close();
        // All workers have seen the end by now, or some, and what waits can be done only after this.
        world.hall.give_back(lane, None);
        world.ended(1);
    });
}

#[test]
fn a_lane_that_a_short_run_gives_back_reaches_who_waits_for_it() {
    model(3, || {
        let world = World::new(&[100], &[]);
        let hall = Arc::clone(&world.hall);
        let other = thread::spawn(move || assert!(matches!(enter(&hall, 100, LONG), Entered::Waits(_))));
        world.bring(100, SHORT);
        other.join().unwrap();
        world.done(2).end(2);
    });
}

#[test]
fn a_job_that_is_withdrawn_keeps_nobody_from_the_end() {
    model(3, || {
        let world = World::new(&[100], &[]);
        world.bring(100, LONG);
        let Entered::Waits(place) = world.enter(100, LONG) else { panic!("long runs wait for a worker") };
        let hall = Arc::clone(&world.hall);
        let withdrawn = thread::spawn(move || usize::from(hall.withdraw(place).is_some()));
        world.hall.close();
        let withdrawn = withdrawn.join().unwrap();
        world.ended(2 - withdrawn);
    });
}
