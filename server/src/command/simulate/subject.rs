//! A model of a simulation: what the scheduler is told of it, and the programs that it would run.

use super::times::{Level, Measured, Times};
use crate::cli::ModelRef;
use crate::command::noise::{self, Values};
use crate::command::random::Random;
use crate::command::timing::Timing;
use crate::command::timing::quantile;
use crate::command::{Usage, model, start};
use crate::config::Config;
use crate::repository::{ModelSettings, batch_sizes};
use crate::schedule::simulation::{Imagined, Run};
use crate::schedule::{Bucket, Services};
use anyhow::bail;
use plimsoll_engine::device::Opened;
use plimsoll_engine::model::{Limits, Model};
use plimsoll_engine::program::Program;
use plimsoll_engine::tensor::{Shape, Tensor};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

/// How a shape is settled that the model leaves open.
const REMEDY: &str = "`prepare = [{ NAME = [1, 2, 3] }]` in its model.toml, a size for each axis";

/// How long a lane sleeps at most before a run that is measured.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A model that requests of a trace are for.
pub(super) struct Subject {
    pub(super) name: String,
    settings: ModelSettings,
    /// Rows of the programs in which requests can be together, fewest first; none where they run one by one.
    together: Vec<usize>,
    /// All programs that a lane is large enough for, each with its rows, fewest first.
    programs: Vec<(usize, Arc<Program>)>,
    model: Model,
    threads: usize,
}

impl Subject {
    /// Loads a model, without a ceiling, and plans it for requests of these numbers of rows, each alone and, as far as
    /// the configuration says so, together. What no lane of `lane_bytes` is large enough for is left out.
    ///
    /// # Errors
    /// There is no such model, it cannot be loaded or planned, or the sizes of its inputs stay open.
    pub(super) fn load(
        name: &str,
        rows: &BTreeSet<usize>,
        config: &Config,
        device: &Opened,
        lane_bytes: u64,
    ) -> anyhow::Result<Subject> {
        let source = model::find(&ModelRef::Name(name.into()), config)?;
        let threads = config.device.threads;
        let max_batch = source.settings.max_batch(&config.batching);
        let precision = start::precision(None, &source, device)?;
        let programs = NonZeroUsize::MIN.saturating_add(rows.len() + batch_sizes(max_batch).count());
        let model = source.load(Limits { threads, precision, programs, ..Limits::default() }, device)?;
        let fits = |program: &Program| program.lane_bytes() as u64 <= lane_bytes;
        let one = source.shapes(model.signature(), &[], None, REMEDY)?;
        let mut programs = if max_batch > 1 { together(&model, &one, max_batch, fits) } else { vec![] };
        let together: Vec<usize> = programs.iter().map(|(rows, _)| *rows).collect();
        let most = together.last().copied().unwrap_or(0);
        for &rows in rows.iter().filter(|rows| **rows > most) {
            let shapes = source.shapes(model.signature(), &[], Some(rows), REMEDY)?;
            if rows > 1 && shapes == source.shapes(model.signature(), &[], Some(1), REMEDY)? {
                bail!(Usage(format!(
                    "requests of {rows} rows: the first axis of model `{name}` is not open"
                )));
            }
            let program = model.program(&shapes)?;
            if fits(&program) {
                programs.push((rows, program));
            }
        }
        Ok(Subject { name: name.into(), settings: source.settings, together, programs, model, threads })
    }

    /// Longest time from a request's arrival to its answer.
    pub(super) fn timeout(&self, config: &Config) -> Duration {
        self.settings.timeout.unwrap_or(config.server.request_timeout)
    }

    /// Bytes of its weights, those of the largest program.
    pub(super) fn weights_bytes(&self) -> u64 {
        self.programs.iter().map(|(_, program)| program.constant_bytes() as u64).max().unwrap_or(0)
    }

    /// The runs that it has: rows that each has room for, and bytes of workspace.
    pub(super) fn buckets(&self) -> impl Iterator<Item = Bucket> {
        self.programs.iter().map(|(rows, program)| Bucket { rows: *rows, bytes: program.lane_bytes() as u64 })
    }

    /// Measures every run with these numbers of lanes busy, so long each; `tell` is told of each before.
    ///
    /// # Errors
    /// A run fails.
    pub(super) fn measure(
        &self,
        device: &Opened,
        busy: &[usize],
        limit: Duration,
        mut tell: impl FnMut(usize, usize),
    ) -> anyhow::Result<Times> {
        let mut measured = vec![];
        for (rows, program) in &self.programs {
            let inputs = self.inputs(program)?;
            let mut levels = vec![];
            for &busy in busy {
                tell(*rows, busy);
                let (inputs, threads) = (&inputs, self.threads);
                let timing = Timing { device, program, inputs, threads, lanes: busy, limit: limit / 2 };
                let mut follow: Vec<Duration> =
                    timing.lanes()?.into_iter().flat_map(|lane| lane.times).collect();
                follow.sort_unstable();
                // Up to half a run: as much is measured whatever a run takes, and lanes are busy most of the time.
                let most = (quantile(&follow, 0.5) / 2).min(LONGEST_PAUSE);
                let pause = |lane, run| {
                    let mut random = Random::new(((lane as u64) << 32) + run as u64);
                    most.mul_f64(random.unit())
                };
                let mut woken = timing.woken(pause)?;
                woken.sort_unstable();
                levels.push(Level { busy, follow, woken });
            }
            measured.push(Measured { rows: *rows, levels });
        }
        Ok(Times::Measured(measured))
    }

    fn inputs(&self, program: &Program) -> anyhow::Result<Vec<Tensor>> {
        let ports = self.model.signature().inputs.iter().zip(program.shapes()).enumerate();
        ports.map(|(at, (port, shape))| noise::tensor(port.dtype, shape, at as u64, Values::TAME)).collect()
    }

    /// As the simulation knows it, a server that has run each of its programs before with `busy` lanes at work.
    pub(super) fn imagined(&self, number: usize, config: &Config, times: &Times, busy: usize) -> Imagined {
        let (settings, services) = (&self.settings, Services::default());
        for (rows, _) in &self.programs {
            services.reset(*rows, times.takes(Run { rows: *rows, busy, luck: 0.5, woken: true }));
        }
        let class = settings.class(number as u64, &config.batching);
        let (buckets, alone) =
            self.buckets().partition::<Vec<_>, _>(|bucket| self.together.contains(&bucket.rows));
        let times = times.clone();
        let takes = Box::new(move |run| times.takes(run));
        Imagined {
            class: Arc::new(class),
            services: Arc::new(services),
            buckets: buckets.into(),
            alone,
            takes,
        }
    }
}

/// The programs in which requests can be together, as the server makes them when it loads a model: of more and more rows as
/// far as the lanes allow, none where outputs have other rows than inputs.
fn together(
    model: &Model,
    one: &[Shape],
    max_batch: usize,
    fits: impl Fn(&Program) -> bool,
) -> Vec<(usize, Arc<Program>)> {
    let mut programs = vec![];
    for rows in batch_sizes(max_batch) {
        let mut shapes = one.to_vec();
        shapes.iter_mut().filter_map(|shape| shape.first_mut()).for_each(|first| *first = rows);
        let Ok(program) = model.program(&shapes) else { break };
        if program.rows() != Some(rows) {
            return vec![];
        }
        if !fits(&program) {
            break;
        }
        programs.push((rows, program));
    }
    if programs.len() > 1 { programs } else { vec![] }
}
