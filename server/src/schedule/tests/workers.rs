//! The scheduler with its threads, on the sample model.

use super::super::desk::Needs;
use super::super::*;
use super::*;
use plimsoll_engine::arena::Arena;
use plimsoll_engine::lane::{Pool, Want};
use plimsoll_engine::model::{Limits, Model, Source};
use plimsoll_engine::program::Workspace;
use plimsoll_engine::slab::Terms;
use plimsoll_engine::tensor::{DType, Tensor};
use std::path::Path;
use std::time::Instant;

/// Lanes of any size.
fn lanes(count: usize) -> Pool<Workspace> {
    Pool::new((0..count).map(|_| (u64::MAX, Workspace::new(1).unwrap())).collect(), vec![])
}

fn image(rows: usize, pixel: f32) -> Vec<Tensor> {
    vec![Tensor::from_slice(DType::F32, &[rows, 1, 8, 8], &vec![pixel; rows * 64]).unwrap()]
}

/// The sample model's programs of these rows.
fn digits(rows: &[usize]) -> Arc<Runs> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/digits/model.onnx");
    let model =
        Model::load(&Source::file(&file), "digits", Limits::default(), Terms::default(), &Arena::unlimited());
    let model = model.unwrap();
    let program = |rows: &usize| {
        let program = model.program(&[image(*rows, 0.0)[0].shape().into()]).unwrap();
        assert_eq!(program.rows(), Some(*rows));
        (*rows, program)
    };
    Arc::new(Runs::shared(1, rows.iter().map(program), Arc::default()))
}

fn asked(runs: &Arc<Runs>, inputs: Vec<Tensor>, deadline: Instant) -> Asked {
    let rows = inputs[0].shape()[0];
    Asked {
        look: Look { runs: Arc::clone(runs), rows, want: Want::BurstToo },
        inputs,
        _held: Box::new(()),
        deadline,
    }
}

fn class_of_another() -> Class {
    class(2, 5, MS)
}

fn in_a_minute() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[tokio::test]
async fn a_job_runs_and_its_answer_comes_back() {
    let runs = digits(&[1]);
    let scheduler = Scheduler::start(lanes(2), Box::new(|_, _| {})).unwrap();
    let class = shared(class(1, 5, MS));
    let submit = || scheduler.submit(&class, asked(&runs, image(1, 3.0), in_a_minute()));
    let tickets: Vec<_> = (0..3).map(|_| submit().unwrap()).collect();
    for ticket in tickets {
        assert_eq!(ticket.wait().await.unwrap().outputs[0].shape(), [1, 10]);
    }
    scheduler.finish();
    assert!(matches!(submit().err(), Some(Admission::Closed)));
}

#[tokio::test]
async fn requests_that_wait_run_together_and_each_gets_its_own_rows() {
    let runs = digits(&[1, 2, 4, 8]);
    // More rows take less time for each, whatever the clock says of runs that are as short as these.
    for rows in [1, 2, 4, 8] {
        let look = Look { runs: Arc::clone(&runs), rows, want: Want::Steady };
        look.services().reset(rows, 1000 * MS);
    }
    let pool = lanes(1);
    let scheduler = Scheduler::start(pool.clone(), Box::new(|_, _| {})).unwrap();
    let class = shared(Class { queue_limit: 99, ..class(1, 5, MS) });
    let submit = |inputs| scheduler.submit(&class, asked(&runs, inputs, in_a_minute())).unwrap();
    let mut alone = vec![];
    for rows in 1..=3 {
        alone.push(submit(image(rows, rows as f32)).wait().await.unwrap().outputs[0].clone());
    }
    // A run of many rows keeps the others waiting.
    let many = digits(&[4096]);
    for _ in 0..10 {
        let other = shared(class_of_another());
        let busy = scheduler.submit(&other, asked(&many, image(4096, 0.0), in_a_minute())).unwrap();
        let tickets: Vec<_> = [1, 2, 3, 1, 2].map(|rows| (rows, submit(image(rows, rows as f32)))).into();
        let mut runs = 0;
        for (rows, ticket) in tickets {
            let done = ticket.wait().await.unwrap();
            runs += usize::from(done.led.is_some());
            let (got, expected) = (done.outputs[0].as_bytes().unwrap(), alone[rows - 1].as_bytes().unwrap());
            let numbers = |bytes: &[u8]| -> Vec<f32> {
                bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
            };
            let near = numbers(got).iter().zip(numbers(expected)).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(got.len() == expected.len() && near, "{rows} rows");
        }
        assert_eq!(runs, 2, "seven rows and two in runs of eight at most");
        busy.wait().await.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_cannot_run_does_not_hurt_those_with_it() {
    let runs = digits(&[1, 4]);
    let scheduler = Scheduler::start(lanes(1), Box::new(|_, _| {})).unwrap();
    let class = shared(Class { queue_limit: 99, ..class(1, 5, MS) });
    // The HTTP layer lets no such request through; whatever does must not reach others.
    let wrong = vec![Tensor::from_slice(DType::F32, &[1, 8, 8], &[0f32; 64]).unwrap()];
    for _ in 0..20 {
        let mut tickets = vec![];
        for inputs in [image(1, 1.0), image(1, 2.0), wrong.clone(), image(1, 3.0)] {
            tickets.push(scheduler.submit(&class, asked(&runs, inputs, in_a_minute())).unwrap());
        }
        for (at, ticket) in tickets.into_iter().enumerate() {
            let answer = ticket.wait().await;
            assert_eq!(answer.is_ok(), at != 2, "{at}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_deadline_that_passes_in_the_queue_is_told_in_time_and_frees_the_place() {
    let runs = digits(&[1]);
    // No lane ever takes the job.
    let scheduler = Scheduler::start(lanes(0), Box::new(|_, _| {})).unwrap();
    let begun = Instant::now();
    let asked = asked(&runs, image(1, 3.0), begun + 30 * MS);
    let ticket = scheduler.submit(&shared(class(1, 5, MS)), asked).unwrap();
    assert_eq!(scheduler.queued(), 1);
    assert!(matches!(ticket.wait().await, Err(Failed::Expired { begun: false })));
    assert!(begun.elapsed() >= 30 * MS);
    assert_eq!(scheduler.queued(), 0);
}

#[tokio::test]
async fn a_caller_that_goes_away_frees_its_place() {
    let runs = digits(&[1]);
    let scheduler = Scheduler::start(lanes(0), Box::new(|_, _| {})).unwrap();
    let asked = asked(&runs, image(1, 3.0), in_a_minute());
    drop(scheduler.submit(&shared(class(1, 5, MS)), asked).unwrap());
    assert_eq!(scheduler.queued(), 0);
}

#[tokio::test]
async fn bursts_and_refusals_are_told_when_they_begin_and_not_each_time() {
    let runs = digits(&[4096]);
    let lane = || (u64::MAX, Workspace::new(1).unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    let tell = move |begins, owner: &str| tell.send((begins, owner.to_string())).unwrap();
    let scheduler = Scheduler::start(Pool::new(vec![lane()], vec![lane()]), Box::new(tell)).unwrap();
    let slow = shared(class(1, 5, Duration::from_secs(9)));
    let submit = || scheduler.submit(&slow, asked(&runs, image(4096, 3.0), in_a_minute()));
    submit().unwrap().wait().await.unwrap();
    assert_eq!(told.try_iter().count(), 0, "a steady lane was idle");
    for _ in 0..4 {
        let tickets: Vec<_> = (0..2).map(|_| submit()).collect();
        for ticket in tickets.into_iter().flatten() {
            ticket.wait().await.unwrap();
        }
    }
    let bursts = [(Begins::Burst(u64::MAX), "digits".to_string())];
    assert_eq!(told.try_iter().collect::<Vec<_>>(), bursts, "a burst lane was used in every round");
    let none = shared(Class { queue_limit: 0, ..class(2, 5, MS) });
    for _ in 0..3 {
        let refused = scheduler.submit(&none, asked(&runs, image(4096, 3.0), in_a_minute())).err();
        assert!(matches!(refused, Some(Admission::Full { limit: 0, .. })), "{refused:?}");
    }
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(Begins::Shedding, "digits".to_string())]);
}
