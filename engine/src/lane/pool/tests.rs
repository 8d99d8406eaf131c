use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Two steady lanes of 100 and 200 bytes, burst lanes of 400 and 150; a handle is the lane's number.
fn pool() -> Pool<usize> {
    Pool::new(vec![(100, 0), (200, 1)], vec![(400, 2), (150, 3)])
}

#[test]
fn lanes_are_counted_steady_ones_first_and_each_has_one_holder() {
    let pool = pool();
    assert_eq!(pool.sizes().collect::<Vec<_>>(), [(100, false), (200, false), (400, true), (150, true)]);
    assert_eq!((pool.largest_bytes(Want::Steady), pool.largest_bytes(Want::BurstToo)), (200, 400));
    let mut lane = pool.take(2).unwrap();
    assert_eq!(*lane.workspace(), 2);
    assert_eq!((lane.bytes(), lane.is_burst(), lane.index()), (400, true, 2));
    assert!(pool.take(2).is_none() && pool.take(4).is_none(), "handed out, and not there");
    drop(lane);
    assert!(pool.take(2).is_some());
}

#[test]
fn a_lane_whose_run_panicked_comes_back() {
    let pool = Pool::new(vec![(100, 0)], vec![]);
    let run = std::panic::AssertUnwindSafe(|| {
        let mut lane = pool.take(0).unwrap();
        let mut workspace = lane.workspace();
        *workspace += 1;
        panic!("a bug in a kernel");
    });
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!(pool.take(0).map(|mut lane| *lane.workspace()), Some(1));
    assert_eq!(pool.counters().steady.busy, 0);
}

#[test]
fn counters_say_what_is_and_was_used() {
    let pool = pool();
    let lanes = [0, 1, 3].map(|lane| pool.take(lane).unwrap());
    drop(lanes);
    let _one = pool.take(1);
    let counters = pool.counters();
    let bytes = Use { used_bytes: 200, peak_bytes: 300 };
    assert_eq!(counters.steady, LaneUse { lanes: 2, busy: 1, busy_peak: 2, bytes, taken: 3 });
    let bytes = Use { used_bytes: 0, peak_bytes: 150 };
    assert_eq!(counters.burst, LaneUse { lanes: 2, busy: 0, busy_peak: 1, bytes, taken: 1 });
    assert!(format!("{pool:?} {_one:?}").contains("index: 1"));
}

#[test]
fn under_load_no_lane_is_handed_to_two() {
    let pool = Pool::new(vec![(100, 0u64), (100, 0)], vec![(200, 0)]);
    let held: Vec<AtomicBool> = (0..3).map(|_| AtomicBool::new(false)).collect();
    std::thread::scope(|scope| {
        for thread in 0..6usize {
            let (pool, held) = (pool.clone(), &held);
            scope.spawn(move || {
                for run in 0..500 {
                    let mut lane = loop {
                        match pool.take((run + thread) % 3) {
                            Some(lane) => break lane,
                            None => std::thread::yield_now(),
                        }
                    };
                    assert!(!held[lane.index()].swap(true, Ordering::SeqCst), "handed to two");
                    *lane.workspace() += 1;
                    held[lane.index()].store(false, Ordering::SeqCst);
                }
            });
        }
    });
    let counters = pool.counters();
    assert_eq!(counters.steady.taken + counters.burst.taken, 3000);
    assert_eq!((counters.steady.busy, counters.burst.busy), (0, 0));
}
