//! First runs before the first request, of what is soon done.
//!
//! A first run finds code and weights outside the processor's caches, and nobody knows yet whether it is short enough
//! to be done by the thread that brings it. For a run of a millisecond that is most of its time; a run of many is
//! hardly longer for it, and would only put off that the server is ready.

use crate::http::App;
use plimsoll_engine::program::Program;
use plimsoll_engine::tensor::Tensor;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What multiplies more is not run ahead; about ten milliseconds of one core.
const MOST_MULTIPLICATIONS: u64 = 1 << 27;

/// A program is run so often, or for so long.
const RUNS: usize = 3;
const LONGEST: Duration = Duration::from_millis(5);

/// Runs the prepared programs of a model on zeros.
pub(super) async fn warm(app: &App, name: &str) {
    for served in app.registry.ready().into_iter().filter(|served| served.name == name) {
        for program in served.prepared() {
            let few = program.plan().is_some_and(|plan| plan.multiplications() <= MOST_MULTIPLICATIONS);
            let Some(inputs) = few.then(|| zeros(&served.signature().inputs, &program)).flatten() else {
                continue;
            };
            let started = Instant::now();
            let mut shortest: Option<Duration> = None;
            for _ in 0..RUNS {
                let (program, inputs) = (Arc::clone(&program), inputs.clone());
                let deadline = Instant::now() + served.timeout;
                let Ok(ticket) =
                    app.scheduler.submit(served.class(), program, inputs, Box::new(()), deadline)
                else {
                    break;
                };
                // Zeros may be values that the model refuses.
                let Ok(done) = ticket.wait().await else { break };
                shortest = Some(shortest.map_or(done.computed, |time| time.min(done.computed)));
                if started.elapsed() > LONGEST {
                    break;
                }
            }
            if let Some(time) = shortest {
                served.stats.expect_service(time);
            }
        }
    }
}

fn zeros(ports: &[plimsoll_engine::import::Port], program: &Program) -> Option<Vec<Tensor>> {
    let inputs = ports.iter().zip(program.shapes()).map(|(port, shape)| {
        let bytes = shape.iter().product::<usize>().checked_mul(port.dtype.size_bytes()?)?;
        Tensor::plain(port.dtype, shape.clone(), vec![0; bytes].into()).ok()
    });
    inputs.collect()
}
