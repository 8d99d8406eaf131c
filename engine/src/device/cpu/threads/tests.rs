use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Threads;

fn counts(threads: &Threads, tasks: usize) -> Vec<usize> {
    let counts: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    threads.for_each(tasks, &|task| {
        counts[task].fetch_add(1, Ordering::Relaxed);
    });
    counts.into_iter().map(AtomicUsize::into_inner).collect()
}

#[test]
fn every_task_runs_once() {
    for count in [0, 1, 2, 3, 5] {
        let threads = Threads::new(count).unwrap();
        assert_eq!(threads.count(), count.max(1));
        for tasks in [0, 1, 2, 3, 7, 100] {
            assert_eq!(counts(&threads, tasks), vec![1; tasks]);
        }
    }
}

#[test]
fn thousands_of_rounds_with_and_without_pauses() {
    let threads = Threads::new(3).unwrap();
    let sum = AtomicUsize::new(0);
    for round in 0..5000 {
        threads.for_each(4, &|task| {
            sum.fetch_add(task, Ordering::Relaxed);
        });
        assert_eq!(sum.load(Ordering::Relaxed), (round + 1) * 6);
        if round % 500 == 0 {
            // Long enough for the helpers to park.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn the_caller_waits_for_a_slow_helper() {
    let threads = Threads::new(2).unwrap();
    for _ in 0..20 {
        let done = AtomicUsize::new(0);
        threads.for_each(2, &|task| {
            std::thread::sleep(Duration::from_micros(200 * task as u64 + 10));
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 2);
    }
}

#[test]
fn a_panic_comes_back_after_the_others_are_done_and_leaves_the_group_usable() {
    let threads = Threads::new(2).unwrap();
    for _ in 0..50 {
        let done = AtomicUsize::new(0);
        let failed = catch_unwind(AssertUnwindSafe(|| {
            threads.for_each(8, &|task| {
                if task == 3 {
                    panic!("task 3");
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }));
        assert_eq!(failed.unwrap_err().downcast_ref::<&str>(), Some(&"task 3"));
        assert_eq!(done.into_inner(), 7);
        assert_eq!(counts(&threads, 8), vec![1; 8]);
    }
}

#[test]
fn a_task_that_forks_again_runs_its_tasks_itself() {
    let threads = Threads::new(2).unwrap();
    let inner = AtomicUsize::new(0);
    threads.for_each(4, &|_| {
        threads.for_each(5, &|_| {
            inner.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(inner.into_inner(), 20);
}

#[test]
fn two_callers_at_once_are_both_served() {
    let threads = Threads::new(2).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..1000).for_each(|_| assert_eq!(counts(&threads, 5), vec![1; 5])));
        }
    });
}

#[test]
fn workers_that_run_at_once_have_different_numbers() {
    let threads = Threads::new(3).unwrap();
    let inside: Vec<_> = (0..3).map(|_| AtomicUsize::new(0)).collect();
    for _ in 0..200 {
        threads.for_each_worker(9, &|_, worker| {
            assert_eq!(inside[worker].fetch_add(1, Ordering::SeqCst), 0);
            std::hint::spin_loop();
            inside[worker].fetch_sub(1, Ordering::SeqCst);
        });
    }
}
