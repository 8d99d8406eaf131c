//! What the desk decides, moment by moment.

use super::super::desk::{Bucket, Desk, Entered, LaneSize, Needs, Next, Place, Pressure, Refused, Start};
use super::*;
use crate::schedule::Admission;
use plimsoll_engine::lane::Want;
use std::time::Instant;

/// A job of the simplest kind.
#[derive(Clone, Debug)]
struct Job {
    name: &'static str,
    rows: usize,
    group: Option<u64>,
    buckets: Vec<Bucket>,
    services: Arc<Services>,
}

impl Needs for Job {
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

fn alone(name: &'static str) -> Job {
    Job { name, rows: 1, group: None, buckets: vec![Bucket { rows: 1, bytes: 10 }], services: Arc::default() }
}

/// Ten bytes of workspace a row, in runs of 1, 2, 4 and 8 rows.
fn of_group(name: &'static str, rows: usize) -> Job {
    let buckets = [1, 2, 4, 8].map(|rows| Bucket { rows, bytes: rows as u64 * 10 });
    Job { name, rows, group: Some(1), buckets: buckets.into(), services: Arc::default() }
}

fn desk(steady: &[u64], burst: &[u64]) -> Desk<Job> {
    let lane = |burst| move |bytes: &u64| LaneSize { bytes: *bytes, burst };
    Desk::new(steady.iter().map(lane(false)).chain(burst.iter().map(lane(true))).collect())
}

const LATER: Duration = Duration::from_secs(60);

fn enter(desk: &mut Desk<Job>, job: Job, class: &Arc<Class>, now: Instant) -> Result<Place, Refused> {
    match desk.enter(job, class, now, now + LATER)? {
        Entered::Waits(place) => Ok(place),
        Entered::Now(start) => panic!("{start:?} at once"),
    }
}

fn start(desk: &mut Desk<Job>, now: Instant) -> Option<Start<Job>> {
    match desk.next(now) {
        Next::Start(start) => Some(start),
        Next::Wait(_) => None,
    }
}

fn names(start: &Start<Job>) -> Vec<&'static str> {
    start.jobs.iter().map(|job| job.name).collect()
}

#[test]
fn a_full_queue_refuses_its_own_model_and_no_other() {
    let (mut desk, now) = (desk(&[10], &[]), Instant::now());
    let (one, two) = (shared(class(1, 5, MS)), shared(class(2, 5, MS)));
    for _ in 0..3 {
        enter(&mut desk, alone("one"), &one, now).unwrap();
    }
    let refused = enter(&mut desk, alone("one"), &one, now).unwrap_err();
    assert!(
        matches!(refused.why, Admission::Full { limit: 3, .. }) && refused.begins_shedding,
        "{refused:?}"
    );
    assert_eq!(desk.pressure(now), Pressure::Shedding);
    enter(&mut desk, alone("two"), &two, now).unwrap();
    assert_eq!(names(&start(&mut desk, now).unwrap()), ["one"]);
    enter(&mut desk, alone("one"), &one, now).unwrap();
    assert_eq!(desk.waiting(), 4);
}

#[test]
fn a_job_that_cannot_be_done_in_time_is_refused_with_the_figures() {
    let (mut desk, now) = (desk(&[10, 10], &[]), Instant::now());
    let slow = shared(Class { queue_limit: 9, ..class(1, 5, 100 * MS) });
    for _ in 0..4 {
        enter(&mut desk, alone("before"), &slow, now).unwrap();
    }
    assert!(
        start(&mut desk, now).is_some() && start(&mut desk, now).is_some() && start(&mut desk, now).is_none()
    );
    // Both lanes have 50 ms left, two jobs of 100 ms wait for them, and the run itself takes 100 ms.
    let now = now + 50 * MS;
    let refused = desk.enter(alone("late"), &slow, now, now + 249 * MS).unwrap_err();
    assert_eq!(refused.why, Admission::TooLate { expected: 250 * MS, left: 249 * MS });
    assert!(desk.enter(alone("in time"), &slow, now, now + 250 * MS).is_ok());
}

#[test]
fn jobs_that_wait_and_can_run_together_count_as_the_runs_that_they_are() {
    let (mut desk, now) = (desk(&[40], &[]), Instant::now());
    let class = shared(Class { queue_limit: 99, ..class(1, 5, 10 * MS) });
    class.services.reset(4, 20 * MS);
    for _ in 0..9 {
        enter(&mut desk, of_group("before", 1), &class, now).unwrap();
    }
    assert_eq!(start(&mut desk, now).unwrap().jobs.len(), 4);
    // A run of four for 20 ms, and then with the fifth that waits another of two, which nobody has measured: twice one.
    let refused = desk.enter(of_group("late", 1), &class, now, now + 59 * MS).unwrap_err();
    assert_eq!(refused.why, Admission::TooLate { expected: 60 * MS, left: 59 * MS });
    assert!(desk.enter(of_group("in time", 1), &class, now, now + 60 * MS).is_ok());
}

#[test]
fn an_idle_server_tries_even_what_took_longer_before() {
    let (mut desk, now) = (desk(&[10], &[]), Instant::now());
    assert!(desk.enter(alone("first"), &shared(class(1, 5, 100 * MS)), now, now + MS).is_ok());
}

#[test]
fn a_higher_priority_goes_first_until_the_other_has_waited_long_enough() {
    let (mut desk, now) = (desk(&[10], &[]), Instant::now());
    let (low, high) = (shared(class(1, 4, MS)), shared(class(2, 5, MS)));
    enter(&mut desk, alone("low"), &low, now).unwrap();
    enter(&mut desk, alone("high, soon after"), &high, now + 50 * MS).unwrap();
    enter(&mut desk, alone("high, much later"), &high, now + 150 * MS).unwrap();
    let mut order = vec![];
    while let Some(next) = start(&mut desk, now + 200 * MS) {
        order.extend(names(&next));
        desk.done(next.lane, now + 200 * MS, None);
    }
    assert_eq!(order, ["high, soon after", "low", "high, much later"]);
}

#[test]
fn a_run_is_not_padded_where_fewer_rows_in_a_smaller_one_take_less_time_each() {
    let class = shared(Class { queue_limit: 9, ..class(1, 5, MS) });
    for (of_four, together) in [(28, 2), (20, 3)] {
        let (mut desk, now) = (desk(&[40], &[]), Instant::now());
        let job = || of_group("waits", 1);
        let services: Arc<Services> = Arc::default();
        for (rows, takes) in [(1, 10), (2, 16), (4, of_four)] {
            services.reset(rows, MS * takes);
            services.record(rows, MS * takes, now);
        }
        for _ in 0..3 {
            enter(&mut desk, Job { services: Arc::clone(&services), ..job() }, &class, now).unwrap();
        }
        assert_eq!(start(&mut desk, now).unwrap().jobs.len(), together, "four rows take {of_four} ms");
    }
}

#[test]
fn what_waits_runs_together_as_far_as_the_lane_at_hand_allows() {
    let (mut desk, now) = (desk(&[40], &[]), Instant::now());
    let class = shared(Class { queue_limit: 9, ..class(1, 5, MS) });
    enter(&mut desk, of_group("a", 1), &class, now).unwrap();
    assert_eq!(names(&start(&mut desk, now).unwrap()), ["a"], "nothing waits while a lane is idle");
    for (name, rows) in [("b", 2), ("c", 1), ("d", 2), ("e", 1)] {
        enter(&mut desk, of_group(name, rows), &class, now).unwrap();
    }
    assert!(start(&mut desk, now).is_none());
    desk.done(0, now, None);
    let next = start(&mut desk, now).unwrap();
    assert_eq!(
        (names(&next), next.bucket),
        (vec!["b", "c"], 2),
        "three rows in the run of four, which is all that fits"
    );
    desk.done(0, now, None);
    let next = start(&mut desk, now).unwrap();
    assert_eq!((names(&next), next.bucket), (vec!["d", "e"], 2));
    assert_eq!(desk.waiting(), 0);
}

#[test]
fn idle_lanes_share_what_waits() {
    let (mut desk, now) = (desk(&[80, 80], &[]), Instant::now());
    let class = shared(Class { queue_limit: 9, ..class(1, 5, MS) });
    for name in ["a", "b", "c", "d"] {
        enter(&mut desk, of_group(name, 1), &class, now).unwrap();
    }
    assert_eq!(names(&start(&mut desk, now).unwrap()), ["a", "b"]);
    assert_eq!(names(&start(&mut desk, now).unwrap()), ["c", "d"]);
}

#[test]
fn a_batch_is_no_larger_than_its_first_can_wait_for() {
    let (mut desk, now) = (desk(&[80], &[]), Instant::now());
    let class = shared(Class { queue_limit: 9, ..class(1, 5, 10 * MS) });
    desk.enter(of_group("a", 1), &class, now, now + 25 * MS).unwrap();
    for name in ["b", "c", "d"] {
        enter(&mut desk, of_group(name, 1), &class, now).unwrap();
    }
    assert_eq!(names(&start(&mut desk, now).unwrap()), ["a", "b"], "four would take 40 ms");
}

#[test]
fn a_burst_lane_is_used_once_a_steady_one_would_be_waited_for_too_long() {
    let (mut desk, now) = (desk(&[10], &[10]), Instant::now());
    let patient = shared(Class { max_delay: 20 * MS, ..class(1, 5, 100 * MS) });
    for name in ["a", "b"] {
        enter(&mut desk, alone(name), &patient, now).unwrap();
    }
    let first = start(&mut desk, now).unwrap();
    assert_eq!((first.lane, first.begins_burst), (0, false));
    let second = start(&mut desk, now).unwrap();
    assert_eq!((second.lane, second.begins_burst), (1, true), "100 ms are more than 20");
    assert_eq!(desk.pressure(now), Pressure::Burst);
    desk.done(1, now + 50 * MS, None);
    // Another comes when the steady lane has 10 ms left.
    enter(&mut desk, alone("c"), &patient, now + 90 * MS).unwrap();
    let Next::Wait(Some(wake)) = desk.next(now + 90 * MS) else { panic!("10 ms are soon enough") };
    assert_eq!(wake, now + 110 * MS, "and what was expected may not come true");
    assert_eq!(start(&mut desk, wake).unwrap().lane, 1);
}

#[test]
fn one_larger_batch_on_a_burst_lane_is_run_where_that_is_sooner_done() {
    let (mut desk, now) = (desk(&[20], &[80]), Instant::now());
    let class = shared(Class { queue_limit: 9, ..class(1, 5, 10 * MS) });
    class.services.reset(2, 10 * MS);
    class.services.reset(8, 15 * MS);
    for _ in 0..8 {
        enter(&mut desk, of_group("many", 1), &class, now).unwrap();
    }
    let next = start(&mut desk, now).unwrap();
    assert_eq!((next.lane, next.jobs.len()), (1, 8), "15 ms, against four times 10 in the steady lane");
    for _ in 0..2 {
        enter(&mut desk, of_group("few", 1), &class, now).unwrap();
    }
    assert_eq!(start(&mut desk, now).unwrap().lane, 0);
}

#[test]
fn what_needs_a_large_lane_does_not_keep_others_from_small_ones() {
    let (mut desk, now) = (desk(&[10, 10], &[20]), Instant::now());
    let class = shared(class(1, 5, MS));
    let large = |name| Job { buckets: vec![Bucket { rows: 1, bytes: 20 }], ..alone(name) };
    enter(&mut desk, large("large"), &class, now).unwrap();
    enter(&mut desk, large("large too"), &class, now).unwrap();
    enter(&mut desk, alone("small"), &class, now).unwrap();
    assert_eq!(start(&mut desk, now).map(|start| (names(&start), start.lane)), Some((vec!["large"], 2)));
    assert_eq!(start(&mut desk, now).map(|start| (names(&start), start.lane)), Some((vec!["small"], 0)));
    assert!(start(&mut desk, now).is_none());
    desk.done(2, now, None);
    assert_eq!(names(&start(&mut desk, now).unwrap()), ["large too"]);
}

#[test]
fn a_short_run_begins_at_once_where_a_steady_lane_is_idle_and_nothing_waits() {
    let (mut desk, now) = (desk(&[10], &[10]), Instant::now());
    let short = shared(class(1, 5, MS / 10));
    enter(&mut desk, alone("not measured"), &short, now).unwrap();
    let guessed = start(&mut desk, now).unwrap();
    desk.done(guessed.lane, now, None);
    let known = |name| {
        let job = alone(name);
        job.services.reset(1, MS / 10);
        job
    };
    let entered = desk.enter(known("a"), &short, now, now + LATER);
    assert!(matches!(entered, Ok(Entered::Now(start)) if start.lane == 0));
    enter(&mut desk, known("b"), &short, now).unwrap();
}

#[test]
fn jobs_that_all_seem_to_be_late_do_not_wait_beside_an_idle_lane() {
    let (mut desk, now) = (desk(&[10], &[]), Instant::now());
    let class = shared(class(1, 5, 50 * MS));
    for name in ["a", "b"] {
        desk.enter(alone(name), &class, now, now + 2000 * MS).unwrap();
    }
    class.services.reset(1, 3000 * MS);
    enter(&mut desk, alone("in time"), &class, now).unwrap();
    assert_eq!(names(&start(&mut desk, now).unwrap()), ["in time"]);
    desk.done(0, now, None);
    assert_eq!(names(&start(&mut desk, now).unwrap()), ["a"], "who knows");
}

#[test]
fn what_no_lane_is_large_enough_for_is_refused_as_that() {
    let (mut desk, now) = (desk(&[10], &[]), Instant::now());
    let large = Job { buckets: vec![Bucket { rows: 1, bytes: 11 }], ..alone("large") };
    let refused = desk.enter(large, &shared(class(1, 5, MS)), now, now + LATER).unwrap_err();
    assert_eq!(refused.why, Admission::NoLane);
}

#[test]
fn nothing_begins_at_its_deadline_and_its_group_goes_on_without_it() {
    let (mut desk, now) = (desk(&[80], &[]), Instant::now());
    let class = shared(class(1, 5, MS));
    let due = now + MS * 5;
    for (name, deadline) in [("over", due), ("later", now + LATER)] {
        assert!(matches!(desk.enter(of_group(name, 1), &class, now, deadline), Ok(Entered::Waits(_))));
    }
    let begun = start(&mut desk, due).unwrap();
    assert_eq!(names(&begun), ["later"]);
    desk.done(begun.lane, due + MS, None);
    assert!(start(&mut desk, due + MS).is_none(), "who waited for it takes it out");
    assert_eq!(desk.waiting(), 1);
}
