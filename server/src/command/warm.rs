//! First runs before the first request, of what is soon done.
//!
//! A first run finds code and weights outside the processor's caches, and nobody knows yet whether it is short enough
//! to be done by the thread that brings it. For a run of a millisecond that is most of its time; a run of many is
//! hardly longer for it, and would only put off that the model is ready. On a GPU every first run is longer: it measures
//! kernels and records launches.

use crate::http::{App, rehearse};
use crate::repository::{Served, Warm};
use futures_util::FutureExt;
use plimsoll_engine::lane::Want;
use plimsoll_engine::plan::Plan;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// What multiplies more is not run ahead; about ten milliseconds of one core.
const MOST_MULTIPLICATIONS: u64 = 1 << 27;

/// Nor is what takes or gives more bytes: no line of the ledger foresees them.
const MOST_BYTES: usize = 1 << 20;

/// What takes longer is run once.
const LONG: Duration = Duration::from_millis(1);

/// No load waits for longer for the first runs of one version; on a GPU it may take the second value.
const LONGEST: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];

/// At the start so many requests at once, twice, so that each thread that can get a first request has had one.
const AT_ONCE: usize = 4;

/// What the registry has done with each version before it is ready.
pub(super) fn before_ready(app: &Arc<App>) -> Warm {
    // The app holds the registry, which is to hold this.
    let app = Arc::downgrade(app);
    Box::new(move |served| {
        let app = app.upgrade();
        async move {
            if let Some(app) = app {
                // What is not warm by then is warmed by its first request.
                let longest = LONGEST[usize::from(app.arena.prepares_runs())];
                let _ = timeout(longest, warm(&app, &served)).await;
            }
        }
        .boxed()
    })
}

/// Runs the prepared programs of a model.
async fn warm(app: &Arc<App>, served: &Arc<Served>) {
    // The reserve is not there for this.
    let steady = app.scheduler.largest_bytes(Want::Steady);
    // Threads that have served are warm, and lanes have other models to run.
    let at_once = if app.readiness.is_ready() { 1 } else { AT_ONCE };
    for program in served.prepared() {
        let fits = program.lane_bytes() as u64 <= steady;
        let worth = |plan: &Plan| match app.arena.prepares_runs() {
            true => !app.arena.counts_host_memory() || is_short(plan),
            false => is_short(plan) && is_soon_done(plan),
        };
        if !fits || !program.plan().is_some_and(worth) {
            continue;
        }
        for round in 0..2 {
            let mut requests = JoinSet::new();
            for _ in 0..at_once {
                let (app, served, program) = (Arc::clone(app), Arc::clone(served), Arc::clone(&program));
                requests.spawn(async move { rehearse(&app, &served, &program).await });
            }
            let times = requests.join_all().await;
            let Some(shortest) = times.into_iter().flatten().min() else { break };
            // No later run takes as long.
            if round == 0 && app.arena.prepares_runs() {
                continue;
            }
            served.services(&program).reset(served.rows_of(&program), shortest);
            if shortest > LONG {
                break;
            }
        }
    }
}

/// Whether it takes and gives few bytes.
fn is_short(plan: &Plan) -> bool {
    let ports = plan.layout.inputs.iter().chain(&plan.layout.outputs);
    let bytes = ports.map(|port| port.shape.iter().product::<usize>() * port.dtype.size_bytes().unwrap_or(1));
    bytes.sum::<usize>() <= MOST_BYTES
}

fn is_soon_done(plan: &Plan) -> bool {
    plan.multiplications() <= MOST_MULTIPLICATIONS
}
