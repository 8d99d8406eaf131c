//! How long a program's runs take with several lanes at work at once.

use anyhow::{Context, bail};
use plimsoll_engine::device::Opened;
use plimsoll_engine::program::{Program, StepTime, Workspace};
use plimsoll_engine::tensor::Tensor;
use std::sync::Barrier;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Runs of each lane before its times count.
const WARM_UP_RUNS: usize = 5;

/// What is timed, and how.
pub(super) struct Timing<'a> {
    pub(super) device: &'a Opened,
    pub(super) program: &'a Program,
    /// In the signature's order.
    pub(super) inputs: &'a [Tensor],
    /// Threads inside an op.
    pub(super) threads: usize,
    /// Lanes that run at once.
    pub(super) lanes: usize,
    /// How long each lane runs after its warm-up; one run at least.
    pub(super) limit: Duration,
}

/// What one lane measured.
pub(super) struct Lane {
    /// Of each run.
    pub(super) times: Vec<Duration>,
    /// Of all of them together.
    pub(super) took: Duration,
}

impl Timing<'_> {
    /// Runs all lanes.
    ///
    /// # Errors
    /// A run fails.
    pub(super) fn lanes(&self) -> anyhow::Result<Vec<Lane>> {
        let barrier = Barrier::new(self.lanes);
        std::thread::scope(|scope| {
            let lanes: Vec<_> = (0..self.lanes).map(|_| scope.spawn(|| self.lane(&barrier))).collect();
            lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|_| bail!("a lane panicked"))).collect()
        })
    }

    /// Times the runs of lanes that sleep before each of them until another thread wakes them, as the server's do, after as
    /// long as `pause` says for the lane and the run of this number. Where a lane is woken others are at work, and for a
    /// while two may share a processor although another one is idle.
    ///
    /// # Errors
    /// A run fails.
    pub(super) fn woken(
        &self,
        pause: impl Fn(usize, usize) -> Duration + Sync,
    ) -> anyhow::Result<Vec<Duration>> {
        let barrier = Barrier::new(self.lanes);
        let lane = |number: usize| {
            let (ask, asked) = sync_channel(1);
            let (tell, told) = sync_channel(1);
            let warmed = self.warmed();
            barrier.wait();
            let mut workspace = warmed?;
            std::thread::scope(|scope| {
                let lane = scope.spawn(move || -> anyhow::Result<()> {
                    let mut outputs = vec![];
                    while let Ok(()) = asked.recv() {
                        let begun = Instant::now();
                        self.program.run(&mut workspace, self.inputs, &mut outputs)?;
                        // Whoever asks waits for it.
                        let _ = tell.send(begun.elapsed());
                    }
                    Ok(())
                });
                let (start, mut times) = (Instant::now(), vec![]);
                while start.elapsed() < self.limit || times.is_empty() {
                    std::thread::sleep(pause(number, times.len()));
                    let took = ask.send(()).ok().and_then(|()| told.recv().ok());
                    // Without an answer the run has failed, and the lane tells why.
                    let Some(took) = took else { break };
                    times.push(took);
                }
                drop(ask);
                lane.join().unwrap_or_else(|_| bail!("a lane panicked"))?;
                Ok(times)
            })
        };
        std::thread::scope(|scope| {
            let lane = &lane;
            let lanes: Vec<_> = (0..self.lanes).map(|number| scope.spawn(move || lane(number))).collect();
            let times =
                lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|_| bail!("a lane panicked")));
            Ok(times.collect::<anyhow::Result<Vec<_>>>()?.concat())
        })
    }

    /// Times runs whose inputs and outputs stay in the device's memory.
    ///
    /// # Errors
    /// A run fails, or the device has no memory of its own.
    pub(super) fn resident(&self) -> anyhow::Result<Vec<Duration>> {
        let times = self.program.resident_times(&mut self.warmed()?, self.inputs, self.limit)?;
        let kind = self.device.kind();
        times.with_context(|| {
            format!("--resident is for a GPU: on `{kind}` inputs are not copied to a memory of its own")
        })
    }

    /// Times each step by itself.
    ///
    /// # Errors
    /// A run fails, or there are no steps.
    pub(super) fn steps(&self) -> anyhow::Result<Vec<StepTime>> {
        let times = self.program.step_times(&mut self.warmed()?)?;
        times.context("--steps: the model is run whole by tract's own plan, whose steps are not known")
    }

    fn lane(&self, barrier: &Barrier) -> anyhow::Result<Lane> {
        let warmed = self.warmed();
        // Every lane reaches the barrier, also one that failed: the others wait there.
        barrier.wait();
        let (mut workspace, mut outputs, start) = (warmed?, vec![], Instant::now());
        let mut times = vec![];
        while start.elapsed() < self.limit || times.is_empty() {
            let begun = Instant::now();
            self.program.run(&mut workspace, self.inputs, &mut outputs)?;
            times.push(begun.elapsed());
        }
        Ok(Lane { times, took: start.elapsed() })
    }

    fn warmed(&self) -> anyhow::Result<Workspace> {
        let (mut workspace, mut outputs) = (self.device.workspace(self.threads)?, vec![]);
        for _ in 0..WARM_UP_RUNS {
            self.program.run(&mut workspace, self.inputs, &mut outputs)?;
        }
        Ok(workspace)
    }
}

/// The time that this part, 0 to 1, of the times is below; they are sorted.
pub(super) fn quantile(sorted: &[Duration], part: f64) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * part).round() as usize).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let times: Vec<Duration> = (0..=100).map(|ms| MS * ms).collect();
        assert_eq!(
            [0.0, 0.5, 0.99, 1.0].map(|part| quantile(&times, part)),
            [0, 50, 99, 100].map(|ms| MS * ms)
        );
        assert_eq!(quantile(&[], 0.5), Duration::ZERO);
    }
}
