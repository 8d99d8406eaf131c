use super::queue::{Lanes, Queue};
use super::*;
use plimsoll_engine::arena::Arena;
use plimsoll_engine::lane::{Pool, Want};
use plimsoll_engine::model::{Limits, Model, Source};
use plimsoll_engine::program::{Program, Workspace};
use plimsoll_engine::slab::Terms;
use plimsoll_engine::tensor::{DType, Tensor};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn class(model: u64, priority: u8, service: Duration) -> Class {
    Class { model, queue_limit: 3, priority: Priority::new(priority), service }
}

const IDLE: Lanes = Lanes { count: 2, busy: false };
const BUSY: Lanes = Lanes { count: 2, busy: true };

#[test]
fn a_full_queue_refuses_its_own_model_and_no_other() {
    let (mut queue, now) = (Queue::new(), Instant::now());
    let deadline = now + Duration::from_secs(60);
    for job in 0..3 {
        queue.push(job, class(1, 5, MS), now, deadline, IDLE).unwrap();
    }
    assert!(matches!(
        queue.push(3, class(1, 5, MS), now, deadline, IDLE),
        Err(Admission::Full { limit: 3, .. })
    ));
    queue.push(4, class(2, 5, MS), now, deadline, IDLE).unwrap();
    assert_eq!(queue.pop_with(|_| Some(())).map(|(_, job)| job), Some(0));
    queue.push(5, class(1, 5, MS), now, deadline, IDLE).unwrap();
}

#[test]
fn a_job_that_cannot_be_done_in_time_is_refused_with_the_figures() {
    let (mut queue, now) = (Queue::new(), Instant::now());
    let slow = class(1, 5, 100 * MS);
    queue.push(0, slow, now, now + 1000 * MS, BUSY).unwrap();
    queue.push(1, slow, now, now + 1000 * MS, BUSY).unwrap();
    // Two wait on two lanes (100 ms), both lanes are busy (50 ms), the run itself takes 100 ms.
    let refusal = queue.push(2, slow, now, now + 200 * MS, BUSY).unwrap_err();
    assert_eq!(refusal, Admission::TooLate { expected: 250 * MS, left: 200 * MS });
    assert!(queue.push(2, slow, now, now + 250 * MS, BUSY).is_ok());
}

#[test]
fn an_idle_server_tries_even_what_took_longer_before() {
    let (mut queue, now) = (Queue::new(), Instant::now());
    assert!(queue.push(0, class(1, 5, 100 * MS), now, now + MS, IDLE).is_ok());
}

#[test]
fn a_higher_priority_goes_first_until_the_other_has_waited_long_enough() {
    let (mut queue, now) = (Queue::new(), Instant::now());
    let deadline = now + Duration::from_secs(60);
    queue.push("low", class(1, 4, MS), now, deadline, IDLE).unwrap();
    queue.push("high, soon after", class(2, 5, MS), now + 50 * MS, deadline, IDLE).unwrap();
    queue.push("high, much later", class(2, 5, MS), now + 150 * MS, deadline, IDLE).unwrap();
    let order: Vec<_> = std::iter::from_fn(|| queue.pop_with(|_| Some(())).map(|(_, job)| job)).collect();
    assert_eq!(order, ["high, soon after", "low", "high, much later"]);
}

proptest! {
    #[test]
    fn whatever_comes_and_goes_nothing_is_lost_and_the_estimate_returns_to_zero(
        steps in proptest::collection::vec((0u64..3, 0u8..10, 0u64..50, 0u8..3), 1..60)
    ) {
        let (mut queue, start) = (Queue::new(), Instant::now());
        let mut places = vec![];
        for (at, (model, priority, ms, action)) in steps.into_iter().enumerate() {
            let now = start + MS * at as u32;
            match action {
                0 => { queue.pop_with(|_| Some(())).map(|(_, job)| job); }
                1 if !places.is_empty() => { queue.remove(places.remove(ms as usize % places.len())); }
                _ => {
                    let class = class(model, priority, MS * ms as u32);
                    if let Ok(place) = queue.push(at, class, now, now + Duration::from_secs(9), BUSY) {
                        places.push(place);
                    }
                }
            }
        }
        let before = queue.len();
        prop_assert_eq!(std::iter::from_fn(|| queue.pop_with(|_| Some(())).map(|(_, job)| job)).count(), before);
        // Nothing is expected of an empty queue: a job whose deadline is its own service time gets in.
        let exact = class(9, 5, 8 * MS);
        prop_assert!(queue.push(0, exact, start, start + 12 * MS, BUSY).is_ok());
    }
}

/// Lanes of any size.
fn lanes(count: usize) -> Pool<Workspace> {
    Pool::new((0..count).map(|_| (u64::MAX, Workspace::new(1).unwrap())).collect(), vec![])
}

fn digits() -> (Arc<Program>, Vec<Tensor>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/digits/model.onnx");
    let model =
        Model::load(&Source::file(&file), "digits", Limits::default(), Terms::default(), &Arena::unlimited());
    let model = model.unwrap();
    let image = Tensor::from_slice(DType::F32, &[1, 1, 8, 8], &[3f32; 64]).unwrap();
    (model.program(&[image.shape().into()]).unwrap(), vec![image])
}

#[tokio::test]
async fn a_job_runs_and_its_answer_comes_back() {
    let (program, inputs) = digits();
    let scheduler = Scheduler::start(lanes(2), Box::new(|_, _| {})).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let tickets: Vec<_> = (0..3)
        .map(|_| {
            scheduler
                .submit(
                    class(1, 5, MS),
                    Arc::clone(&program),
                    Want::BurstToo,
                    inputs.clone(),
                    Box::new(()),
                    deadline,
                )
                .unwrap()
        })
        .collect();
    for ticket in tickets {
        assert_eq!(ticket.wait().await.unwrap().outputs[0].shape(), [1, 10]);
    }
    scheduler.finish();
    let late = scheduler.submit(class(1, 5, MS), program, Want::BurstToo, inputs, Box::new(()), deadline);
    assert!(matches!(late.err(), Some(Admission::Closed)));
}

#[tokio::test]
async fn a_deadline_that_passes_in_the_queue_is_told_in_time_and_frees_the_place() {
    let (program, inputs) = digits();
    // No lane ever takes the job.
    let scheduler = Scheduler::start(lanes(0), Box::new(|_, _| {})).unwrap();
    let begun = Instant::now();
    let ticket = scheduler
        .submit(class(1, 5, MS), program, Want::BurstToo, inputs, Box::new(()), begun + 30 * MS)
        .unwrap();
    assert_eq!(scheduler.queued(), 1);
    assert!(matches!(ticket.wait().await, Err(Failed::Expired { begun: false })));
    assert!(begun.elapsed() >= 30 * MS);
    assert_eq!(scheduler.queued(), 0);
}

#[tokio::test]
async fn a_caller_that_goes_away_frees_its_place() {
    let (program, inputs) = digits();
    let scheduler = Scheduler::start(lanes(0), Box::new(|_, _| {})).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let ticket =
        scheduler.submit(class(1, 5, MS), program, Want::BurstToo, inputs, Box::new(()), deadline).unwrap();
    drop(ticket);
    assert_eq!(scheduler.queued(), 0);
}

#[tokio::test]
async fn a_burst_is_told_when_it_begins_and_not_for_each_run() {
    let (program, inputs) = digits();
    let lane = || (u64::MAX, Workspace::new(1).unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    let on_burst = move |owner: &str, bytes| tell.send((owner.to_string(), bytes)).unwrap();
    let pool = Pool::new(vec![lane()], vec![lane()]);
    let scheduler = Scheduler::start(pool.clone(), Box::new(on_burst)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let run = async || {
        let ticket = scheduler.submit(
            class(1, 5, MS),
            Arc::clone(&program),
            Want::BurstToo,
            inputs.clone(),
            Box::new(()),
            deadline,
        );
        ticket.unwrap().wait().await.unwrap()
    };
    run().await;
    assert_eq!(told.try_iter().count(), 0, "a steady lane was idle");
    let steady = pool.take(1, Want::Steady).unwrap();
    for _ in 0..3 {
        run().await;
    }
    drop(steady);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [("digits".to_string(), u64::MAX)]);
}
