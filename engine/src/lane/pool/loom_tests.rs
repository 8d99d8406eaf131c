//! Every interleaving of a few threads at a small pool: no lane has two holders, and nobody waits for ever (which loom
//! reports as a deadlock).
//!
//! The flag `--cfg loom` changes other crates too, so they run in a crate that takes in `slab` and `lane` alone.

use super::*;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

/// Runs `test` in every interleaving with at most three preemptions, which is where such errors show.
fn model(test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// Fails where a lane is held by two.
struct Holders(Vec<AtomicBool>);

impl Holders {
    fn new(lanes: usize) -> Arc<Holders> {
        Arc::new(Holders((0..lanes).map(|_| AtomicBool::new(false)).collect()))
    }

    fn hold(&self, lane: Lane<()>) {
        assert!(!self.0[lane.index()].swap(true, Ordering::SeqCst), "handed to two");
        self.0[lane.index()].store(false, Ordering::SeqCst);
    }
}

/// A thread that waits for a lane and uses it.
fn waiter(pool: &Pool<()>, holders: &Arc<Holders>, need_bytes: u64, want: Want) -> Waiter {
    let (pool, holders) = (pool.clone(), Arc::clone(holders));
    thread::spawn(move || pool.take_wait(need_bytes, want, || true).map(|lane| holders.hold(lane)))
}

type Waiter = thread::JoinHandle<Result<(), NoLane>>;

#[test]
fn three_at_one_lane_each_get_it_alone() {
    model(|| {
        let (pool, holders) = (Pool::new(vec![(100, ())], vec![]), Holders::new(1));
        let others = [waiter(&pool, &holders, 50, Want::Steady), waiter(&pool, &holders, 100, Want::Steady)];
        holders.hold(pool.take_wait(1, Want::Steady, || true).unwrap());
        for other in others {
            other.join().unwrap().unwrap();
        }
        let counters = pool.counters();
        assert_eq!((counters.steady.busy, counters.waiting, counters.steady.taken), (0, 0, 3));
    });
}

#[test]
fn a_lane_is_taken_by_one_of_those_who_do_not_wait() {
    model(|| {
        let (pool, holders) = (Pool::new(vec![(100, ())], vec![(100, ())]), Holders::new(2));
        let takers = [(); 2].map(|()| {
            let (pool, holders) = (pool.clone(), Arc::clone(&holders));
            thread::spawn(move || holders.hold(pool.take(50, Want::BurstToo).unwrap()))
        });
        for taker in takers {
            taker.join().unwrap();
        }
        assert_eq!(pool.counters().steady.busy_peak, 1);
    });
}

#[test]
fn small_and_large_needs_at_a_steady_and_a_burst_lane_are_all_served() {
    model(|| {
        let (pool, holders) = (Pool::new(vec![(100, ())], vec![(200, ())]), Holders::new(2));
        let others =
            [waiter(&pool, &holders, 150, Want::BurstToo), waiter(&pool, &holders, 200, Want::BurstToo)];
        holders.hold(pool.take_wait(50, Want::BurstToo, || true).unwrap());
        for other in others {
            other.join().unwrap().unwrap();
        }
        assert_eq!(pool.counters().waiting, 0);
    });
}

#[test]
fn a_lane_that_comes_back_reaches_the_one_who_has_use_for_it() {
    model(|| {
        let (pool, holders) = (Pool::new(vec![(100, ())], vec![(200, ())]), Holders::new(2));
        let steady = pool.take(1, Want::Steady).unwrap();
        let burst = pool.take(150, Want::BurstToo).unwrap();
        let large = waiter(&pool, &holders, 150, Want::BurstToo);
        let small = waiter(&pool, &holders, 50, Want::Steady);
        drop(burst);
        large.join().unwrap().unwrap();
        drop(steady);
        small.join().unwrap().unwrap();
    });
}

#[test]
fn when_who_a_lane_was_kept_for_gives_up_the_others_get_it() {
    model(|| {
        let (pool, holders) = (Pool::new(vec![(100, ())], vec![(200, ())]), Holders::new(2));
        let steady = pool.take(1, Want::Steady).unwrap();
        let burst = pool.take(150, Want::BurstToo).unwrap();
        let wanted = Arc::new(AtomicBool::new(true));
        let large = {
            let (pool, wanted) = (pool.clone(), Arc::clone(&wanted));
            thread::spawn(move || {
                let lane = pool.take_wait(150, Want::BurstToo, || wanted.load(Ordering::SeqCst));
                drop(lane);
            })
        };
        let small = waiter(&pool, &holders, 50, Want::BurstToo);
        wanted.store(false, Ordering::SeqCst);
        pool.wake();
        drop(burst);
        // The steady lane does not come back before the small one has run on the burst lane.
        small.join().unwrap().unwrap();
        drop(steady);
        large.join().unwrap();
    });
}

#[test]
fn who_gives_up_is_never_left_waiting() {
    model(|| {
        let pool = Pool::new(vec![(100, ())], vec![]);
        let _lane = pool.take(1, Want::Steady).unwrap();
        let wanted = Arc::new(AtomicBool::new(true));
        let waits = {
            let (pool, wanted) = (pool.clone(), Arc::clone(&wanted));
            thread::spawn(move || {
                pool.take_wait(1, Want::Steady, || wanted.load(Ordering::SeqCst)).map(|_| ())
            })
        };
        wanted.store(false, Ordering::SeqCst);
        pool.wake();
        assert_eq!(waits.join().unwrap(), Err(NoLane::GivenUp));
    });
}
