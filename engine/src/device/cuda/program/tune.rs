//! The fastest kernel of each step, and how long each step takes: measured in a lane, on the step's own operands.
//!
//! A step is recorded so many times in a row, and the recording is timed: that is how a run launches it, and the clock's
//! own time is shared by all launches. What operands hold does not matter, and whatever runs next writes them anew.

use super::super::graphs::{Bases, Graph};
use super::super::lane::CudaLane;
use super::super::launch::Ways;
use super::super::modules::done;
use super::super::tuning::Problem;
use super::{CudaProgram, Part, Work};
use crate::device::StepTime;
use crate::error::Error;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// No try by itself begins after so long, and none within the program either; steps that remain have the kernel
/// that promises most.
const BUDGET: Duration = Duration::from_secs(1);

/// One recording takes about as long, by launches of one step between these numbers.
const RECORDING: Duration = Duration::from_micros(300);
const LAUNCHES: [u128; 2] = [3, 40];

/// What takes longer is timed once.
const LONG: Duration = Duration::from_millis(5);

/// Each recording is started so often, and the shortest time counts.
const STARTS: usize = 5;

/// What is timed by itself finds caches full and neighbours absent; so many of the fastest are timed once more within
/// the whole program, where they are within this of the fastest.
const RIVALS: usize = 3;
const NEAR: f64 = 1.2;

/// What is to be found out: steps with the same problem, and how long each way took by itself.
struct Contest {
    steps: Vec<usize>,
    /// The fastest first.
    times: Vec<(Duration, usize)>,
}

impl CudaProgram {
    /// Chooses kernels where several could do and nobody knows yet; once for a program, whoever runs it first.
    ///
    /// # Errors
    /// The device has failed.
    pub(super) fn tune(&self, lane: &mut CudaLane, bases: &Bases) -> Result<(), Error> {
        // Others wait, so that no two runs round differently.
        let mut tuned = self.tuned.lock().unwrap_or_else(PoisonError::into_inner);
        if *tuned {
            return Ok(());
        }
        let contests = self.alone(lane, bases)?;
        if !contests.is_empty() {
            self.together(lane, bases, &contests)?;
            // What operands held may have been no indices.
            lane.take_flag()?;
            for contest in contests.iter().filter(|contest| !contest.times.is_empty()) {
                let Some(ways) = self.ways(contest.steps[0]) else { continue };
                let holds = self.shared.tuned.note(ways.problem(), ways.way(ways.chosen()));
                // Another lane may have found out the same meanwhile.
                if let Some(way) = ways.find(holds) {
                    self.choose(contest, way)?;
                }
            }
            self.shared.tuned.write();
        }
        *tuned = true;
        Ok(())
    }

    /// The kernels of a step, where there are several.
    fn ways(&self, at: usize) -> Option<&dyn Ways> {
        let Work::Kernel(kernel) = &self.steps[at].work else { return None };
        kernel.ways().filter(|ways| ways.count() > 1)
    }

    /// Times the ways of each problem by themselves, and chooses the fastest.
    fn alone(&self, lane: &CudaLane, bases: &Bases) -> Result<Vec<Contest>, Error> {
        let (begun, mut contests) = (Instant::now(), Vec::<Contest>::new());
        let mut places: BTreeMap<Problem, usize> = BTreeMap::new();
        for at in 0..self.steps.len() {
            let Some(ways) = self.ways(at).filter(|ways| !self.known(*ways)) else { continue };
            if let Some(place) = places.get(&ways.problem()) {
                contests[*place].steps.push(at);
            } else if begun.elapsed() < BUDGET {
                let times = self.time_all(lane, bases, (at, ways), begun)?;
                places.insert(ways.problem(), contests.len());
                contests.push(Contest { steps: vec![at], times });
            }
        }
        for contest in &contests {
            self.choose(contest, contest.times.first().map_or(0, |(_, way)| *way))?;
        }
        Ok(contests)
    }

    /// Times the fastest ways of each problem within the program, and chooses the fastest.
    fn together(&self, lane: &CudaLane, bases: &Bases, contests: &[Contest]) -> Result<(), Error> {
        let begun = Instant::now();
        let Some(mut shortest) = self.time_program(lane, bases)? else { return Ok(()) };
        let share = |contest: &&Contest| {
            let fastest = contest.times.first().map_or(Duration::ZERO, |(took, _)| *took);
            std::cmp::Reverse(fastest * contest.steps.len() as u32)
        };
        let mut by_share: Vec<&Contest> = contests.iter().filter(|contest| contest.times.len() > 1).collect();
        by_share.sort_by_key(share);
        for contest in by_share {
            let (fastest, mut best) = contest.times[0];
            let near = |(took, _): &&(Duration, usize)| took.as_secs_f64() < fastest.as_secs_f64() * NEAR;
            for (_, way) in contest.times[1..].iter().take(RIVALS - 1).filter(near) {
                if begun.elapsed() > BUDGET {
                    break;
                }
                self.choose(contest, *way)?;
                if let Some(took) = self.time_program(lane, bases)?.filter(|took| *took < shortest) {
                    (shortest, best) = (took, *way);
                }
            }
            self.choose(contest, best)?;
        }
        Ok(())
    }

    fn choose(&self, contest: &Contest, way: usize) -> Result<(), Error> {
        let steps = contest.steps.iter().filter_map(|at| self.ways(*at));
        steps.into_iter().try_for_each(|ways| done(ways.choose(way, &self.shared.modules)))
    }

    /// Takes what was found out for the problem, if anything.
    fn known(&self, ways: &dyn Ways) -> bool {
        let Some(known) = self.shared.tuned.get(ways.problem()) else { return false };
        ways.find(known).is_some_and(|at| ways.choose(at, &self.shared.modules).is_ok())
    }

    /// How long each way takes by itself, the fastest first. What the driver refuses to launch is none.
    fn time_all(
        &self,
        lane: &CudaLane,
        bases: &Bases,
        (at, ways): (usize, &dyn Ways),
        begun: Instant,
    ) -> Result<Vec<(Duration, usize)>, Error> {
        let mut times = vec![];
        for way in 0..ways.count() {
            if begun.elapsed() > BUDGET {
                break;
            }
            if ways.choose(way, &self.shared.modules).is_ok()
                && let Some(took) = self.time(lane, bases, at)?
            {
                times.push((took, way));
            }
        }
        times.sort();
        Ok(times)
    }

    /// How long all steps take after one another; `None` where there are host steps among them.
    fn time_program(&self, lane: &CudaLane, bases: &Bases) -> Result<Option<Duration>, Error> {
        let [Part::Device(steps)] = &self.parts[..] else { return Ok(None) };
        let launch = || steps.clone().try_for_each(|at| self.launch_step(lane, bases, at));
        let Ok(graph) = Graph::record(lane.stream.raw(), launch) else { return Ok(None) };
        shortest(&graph, lane).map(Some)
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
        let once = begun.elapsed();
        if once > LONG {
            return Ok(Some(once));
        }
        let [fewest, most] = LAUNCHES;
        let launches = (RECORDING.as_nanos() / once.as_nanos().max(1)).clamp(fewest, most) as u32;
        let recorded = Graph::record(lane.stream.raw(), || {
            (0..launches).try_for_each(|_| self.launch_step(lane, bases, at))
        });
        let Ok(graph) = recorded else { return Ok(None) };
        Ok(Some(shortest(&graph, lane)? / launches))
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

/// The shortest of some starts of what was recorded in this lane, for addresses that are held.
fn shortest(graph: &Graph, lane: &CudaLane) -> Result<Duration, Error> {
    let mut shortest = Duration::MAX;
    for _ in 0..STARTS {
        let begun = Instant::now();
        // SAFETY: the caller holds the weights, and the workspace is the lane's.
        done(unsafe { graph.launch(lane.stream.raw()) })?;
        lane.stream.wait()?;
        shortest = shortest.min(begun.elapsed());
        if shortest > LONG {
            break;
        }
    }
    Ok(shortest)
}
