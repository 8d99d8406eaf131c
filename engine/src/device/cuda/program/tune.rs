//! The fastest kernel of each step, and how long each step takes: measured in a lane, on the step's own operands.
//!
//! A step is recorded so many times in a row, and the recording is timed: that is how a run launches it, and the clock's
//! own time is shared by all launches. What operands hold does not matter, and whatever runs next writes them anew.

use super::super::graphs::{Bases, Graph};
use super::super::lane::CudaLane;
use super::super::launch::Ways;
use super::super::modules::done;
use super::{CudaProgram, Work};
use crate::device::StepTime;
use crate::error::Error;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// The tries for one program end after so long; the steps that remain have the kernel that promises most.
const BUDGET: Duration = Duration::from_secs(1);

/// One recording takes about as long, by launches of one step between these numbers.
const RECORDING: Duration = Duration::from_micros(300);
const LAUNCHES: [u128; 2] = [3, 40];

/// Each recording is started so often, and the shortest time counts.
const STARTS: usize = 4;

impl CudaProgram {
    /// Chooses kernels where several could do and nobody knows yet; once for a program, whoever runs it first.
    ///
    /// # Errors
    /// The device has failed.
    pub(super) fn tune(&self, lane: &CudaLane, bases: &Bases) -> Result<(), Error> {
        // Others wait, so that no two runs round differently.
        let mut tuned = self.tuned.lock().unwrap_or_else(PoisonError::into_inner);
        if *tuned {
            return Ok(());
        }
        let (begun, mut found) = (Instant::now(), false);
        for (at, step) in self.steps.iter().enumerate() {
            let Work::Kernel(kernel) = &step.work else { continue };
            let Some(ways) = kernel.ways().filter(|ways| ways.count() > 1) else { continue };
            if self.known(ways) || begun.elapsed() > BUDGET {
                continue;
            }
            self.choose_fastest(lane, bases, at, ways)?;
            self.shared.tuned.note(ways.problem(), ways.way(ways.chosen()));
            found = true;
        }
        if found {
            self.shared.tuned.write();
        }
        *tuned = true;
        Ok(())
    }

    /// Takes what was found out for the problem, if anything.
    fn known(&self, ways: &dyn Ways) -> bool {
        let Some(known) = self.shared.tuned.get(ways.problem()) else { return false };
        let at = (0..ways.count()).find(|at| ways.way(*at) == known);
        at.is_some_and(|at| ways.choose(at, &self.shared.modules).is_ok())
    }

    fn choose_fastest(
        &self,
        lane: &CudaLane,
        bases: &Bases,
        at: usize,
        ways: &dyn Ways,
    ) -> Result<(), Error> {
        let mut fastest = (Duration::MAX, ways.chosen());
        for way in 0..ways.count() {
            // What the driver refuses to launch is none.
            if ways.choose(way, &self.shared.modules).is_err() {
                continue;
            }
            if let Some(took) = self.time(lane, bases, at)?.filter(|took| *took < fastest.0) {
                fastest = (took, way);
            }
        }
        done(ways.choose(fastest.1, &self.shared.modules))
    }

    /// How long a step takes on the device; `None` where the driver refuses to launch or to record it.
    fn time(&self, lane: &CudaLane, bases: &Bases, at: usize) -> Result<Option<Duration>, Error> {
        // The first launch loads the code.
        for _ in 0..2 {
            if self.launch_step(lane, bases, at).is_err() {
                return Ok(None);
            }
            lane.stream.wait()?;
        }
        let begun = Instant::now();
        done(self.launch_step(lane, bases, at))?;
        lane.stream.wait()?;
        let [fewest, most] = LAUNCHES;
        let launches = (RECORDING.as_nanos() / begun.elapsed().as_nanos().max(1)).clamp(fewest, most) as u32;
        let recorded = Graph::record(lane.stream.raw(), || {
            (0..launches).try_for_each(|_| self.launch_step(lane, bases, at))
        });
        let Ok(graph) = recorded else { return Ok(None) };
        let mut shortest = Duration::MAX;
        for _ in 0..STARTS {
            let begun = Instant::now();
            // SAFETY: recorded for these addresses; the caller holds the weights, and the workspace is the lane's.
            done(unsafe { graph.launch(lane.stream.raw()) })?;
            lane.stream.wait()?;
            shortest = shortest.min(begun.elapsed());
        }
        Ok(Some(shortest / launches))
    }

    /// How long each step takes, by itself and repeated.
    pub(super) fn times(&self, lane: &CudaLane, bases: &Bases) -> Result<Vec<StepTime>, Error> {
        let steps = self.steps.iter().zip(&self.plan.layout.steps).enumerate();
        steps
            .map(|(at, (bound, step))| {
                let (kernel, took) = match &bound.work {
                    Work::Host(_) => ("host".into(), None),
                    Work::Kernel(kernel) => {
                        let name = kernel.ways().map_or_else(String::new, |ways| ways.name());
                        (name, self.time(lane, bases, at)?)
                    }
                };
                Ok(StepTime { step: step.name.clone(), op: step.op.name().into(), kernel, took })
            })
            .collect()
    }
}
