//! How long a program's runs take with several lanes at work at once.

use anyhow::bail;
use plimsoll_engine::device::Opened;
use plimsoll_engine::program::{Program, Workspace};
use plimsoll_engine::tensor::Tensor;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
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

    /// Times the runs of one lane that sleeps before each of them, for a time drawn by `pause` in seconds, while all other
    /// lanes run without end. A processor that has slept is slower for a while: its caches and its clock have to come back.
    ///
    /// # Errors
    /// A run fails.
    pub(super) fn woken(&self, mut pause: impl FnMut() -> f64) -> anyhow::Result<Vec<Duration>> {
        let ends = AtomicBool::new(false);
        let beside = || {
            let (mut workspace, mut outputs) = (self.warmed()?, vec![]);
            while !ends.load(Ordering::Relaxed) {
                self.program.run(&mut workspace, self.inputs, &mut outputs)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.lanes).map(|_| scope.spawn(beside)).collect();
            let mut woken = || {
                let (mut workspace, mut outputs, start) = (self.warmed()?, vec![], Instant::now());
                let mut times = vec![];
                while start.elapsed() < self.limit || times.is_empty() {
                    std::thread::sleep(Duration::from_secs_f64(pause()));
                    let begun = Instant::now();
                    self.program.run(&mut workspace, self.inputs, &mut outputs)?;
                    times.push(begun.elapsed());
                }
                Ok(times)
            };
            let times = woken();
            ends.store(true, Ordering::Relaxed);
            let others =
                others.into_iter().map(|lane| lane.join().unwrap_or_else(|_| bail!("a lane panicked")));
            others.collect::<anyhow::Result<()>>()?;
            times
        })
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
