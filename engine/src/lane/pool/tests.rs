use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Two steady lanes of 100 and 200 bytes, burst lanes of 150 and 400; a handle is the lane's number.
fn pool() -> Pool<usize> {
    Pool::new(vec![(100, 0), (200, 1)], vec![(400, 2), (150, 3)])
}

fn taken(pool: &Pool<usize>, need_bytes: u64, want: Want) -> Option<usize> {
    pool.take(need_bytes, want).map(|mut lane| *lane.workspace())
}

#[test]
fn the_smallest_steady_lane_that_is_large_enough_is_handed_out() {
    let pool = pool();
    assert_eq!(taken(&pool, 50, Want::BurstToo), Some(0));
    assert_eq!(taken(&pool, 101, Want::BurstToo), Some(1));
    let _first = pool.take(50, Want::BurstToo);
    assert_eq!(taken(&pool, 50, Want::BurstToo), Some(1));
}

#[test]
fn burst_lanes_are_for_when_no_steady_lane_will_do() {
    let pool = pool();
    let _steady = (pool.take(50, Want::Steady).unwrap(), pool.take(50, Want::Steady).unwrap());
    assert_eq!(taken(&pool, 50, Want::Steady), None);
    assert_eq!(taken(&pool, 50, Want::BurstToo), Some(3));
    assert_eq!(taken(&pool, 151, Want::BurstToo), Some(2));
    drop(_steady);
    assert_eq!(taken(&pool, 201, Want::BurstToo), Some(2), "larger than any steady lane");
    assert_eq!(taken(&pool, 201, Want::Steady), None);
    assert_eq!(taken(&pool, 401, Want::BurstToo), None);
}

#[test]
fn a_lane_whose_run_panicked_comes_back() {
    let pool = Pool::new(vec![(100, 0)], vec![]);
    let run = std::panic::AssertUnwindSafe(|| {
        let mut lane = pool.take(1, Want::Steady).unwrap();
        let mut workspace = lane.workspace();
        *workspace += 1;
        panic!("a bug in a kernel");
    });
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!(taken(&pool, 1, Want::Steady), Some(1));
    assert_eq!(pool.counters().steady.busy, 0);
}

#[test]
fn counters_say_what_is_and_was_used() {
    let pool = pool();
    let lanes = [50, 50, 50].map(|need| pool.take(need, Want::BurstToo).unwrap());
    drop(lanes);
    let _one = pool.take(150, Want::BurstToo);
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
        for thread in 0..6u64 {
            let (pool, held) = (pool.clone(), &held);
            scope.spawn(move || {
                for run in 0..500 {
                    let need = if (run + thread) % 5 == 0 { 150 } else { 80 };
                    let mut lane = loop {
                        match pool.take(need, Want::BurstToo) {
                            Some(lane) => break lane,
                            None => std::thread::yield_now(),
                        }
                    };
                    assert!(lane.bytes() >= need);
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

proptest! {
    #[test]
    fn a_lane_handed_out_is_the_first_that_the_rules_name(
        steady in proptest::collection::vec(1u64..20, 0..4), burst in proptest::collection::vec(1u64..40, 0..4),
        steps in proptest::collection::vec((0u64..45, any::<bool>(), any::<bool>()), 1..40),
    ) {
        let handle = |bytes: &u64| (*bytes, ());
        let pool = Pool::new(steady.iter().map(handle).collect(), burst.iter().map(handle).collect());
        let mut held: Vec<Lane<()>> = vec![];
        for (need, steady_alone, give_back) in steps {
            if give_back && !held.is_empty() {
                held.swap_remove(need as usize % held.len());
                continue;
            }
            let idle = |index: usize| !held.iter().any(|lane| lane.index() == index);
            let least = |lanes: &[u64], first: usize| {
                let fitting = lanes.iter().enumerate().filter(|(at, bytes)| idle(first + at) && **bytes >= need);
                fitting.map(|(_, bytes)| *bytes).min()
            };
            let from_steady = least(&steady, 0);
            let from_burst = if steady_alone { None } else { least(&burst, steady.len()) };
            let want = if steady_alone { Want::Steady } else { Want::BurstToo };
            let lane = pool.take(need, want);
            prop_assert_eq!(lane.as_ref().map(Lane::bytes), from_steady.or(from_burst));
            prop_assert_eq!(lane.as_ref().map(Lane::is_burst), from_steady.map(|_| false).or(from_burst.map(|_| true)));
            prop_assert!(lane.as_ref().is_none_or(|lane| idle(lane.index())));
            held.extend(lane);
            let counters = pool.counters();
            prop_assert_eq!(counters.steady.busy + counters.burst.busy, held.len());
        }
    }
}
