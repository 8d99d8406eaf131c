//! One model on the bench: both programs, the same inputs, what comes out.

use super::compare::{Bound, Difference, difference};
use super::{Outcome, Verdict};
use crate::cli::InputFile;
use crate::command::model::Source;
use crate::command::noise::{self, Values};
use crate::command::{npy, start};
use crate::repository;
use anyhow::Context;
use plimsoll_engine::device::Opened;
use plimsoll_engine::fuse::Precision;
use plimsoll_engine::model::{Compute, Limits, Model};
use plimsoll_engine::program::{Program, Workspace};
use plimsoll_engine::tensor::{DType, Data, Shape, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where inputs come from.
#[derive(Clone, Copy)]
pub(super) enum Inputs<'a> {
    /// Random values of the model's shapes, but for arrays that are given.
    Random { shapes: &'a [(String, Shape)], files: &'a [InputFile] },
    /// `0.npy`, `1.npy` … of this folder, in the order of the model's inputs.
    Folder(&'a Path),
}

/// Runs one model after the other in one workspace, as a lane does, so that each finds what the last one left.
pub(super) struct Bench {
    threads: usize,
    /// What was asked for, over the models' own settings.
    precision: Option<repository::Precision>,
    device: Opened,
    workspace: Workspace,
}

/// A program on one set of inputs.
struct Ready {
    program: Arc<Program>,
    inputs: Vec<Tensor>,
}

impl Bench {
    pub(super) fn new(
        threads: usize,
        device: Opened,
        precision: Option<repository::Precision>,
    ) -> anyhow::Result<Bench> {
        Ok(Bench { threads, precision, workspace: device.workspace(threads)?, device })
    }

    /// The kind of device that is tested.
    pub(super) fn device(&self) -> &'static str {
        self.device.kind()
    }

    /// A folder with a model and inputs, beside which the outputs of both programs are written.
    pub(super) fn case(&mut self, folder: &Path) -> anyhow::Result<Outcome> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let source = Source::file(&folder.join("model.onnx"));
        let inputs = folder.join("inputs");
        Ok(Outcome { name, ..self.compared(&source, Inputs::Folder(&inputs), Some(folder))? })
    }

    /// A model on inputs of its shapes, and how long both programs take.
    pub(super) fn test(&mut self, source: &Source, inputs: Inputs) -> anyhow::Result<Outcome> {
        self.compared(source, inputs, None)
    }

    /// # Errors
    /// The bench itself is at fault: an output cannot be written, a thread not be started.
    fn compared(&mut self, source: &Source, inputs: Inputs, keep: Option<&Path>) -> anyhow::Result<Outcome> {
        let done = |verdict| Ok(Outcome::without_run(source.name.clone(), verdict));
        let (reference, wanted) = match self.guarded(|bench| Ok(bench.reference(source, inputs)))? {
            Ok(Ok(ran)) => ran,
            Ok(Err(verdict)) => return done(verdict),
            Err(reason) => return done(Verdict::NoReference(reason)),
        };
        if let Some(folder) = keep {
            write(&folder.join("reference"), &wanted)?;
        }
        let precision = start::precision(self.precision, source, &self.device)?;
        let planned = self.guarded(|bench| {
            let model = source.load(Limits { precision, ..bench.limits(Compute::Planned) }, &bench.device)?;
            let program = model.program(reference.program.shapes())?;
            // The second run finds what the first has left in the workspace.
            let (mut first, mut got) = (vec![], vec![]);
            program.run(&mut bench.workspace, &reference.inputs, &mut first)?;
            program.run(&mut bench.workspace, &reference.inputs, &mut got)?;
            // Random numbers differ anyway.
            let repeats = bits(&first) == bits(&got);
            for left in [0x00, 0xff].into_iter().filter(|_| repeats) {
                let mut again = vec![];
                bench.workspace.fill(left)?;
                program.run(&mut bench.workspace, &reference.inputs, &mut again)?;
                anyhow::ensure!(bits(&again) == bits(&got), "{BEFORE} ({left:#04x} everywhere)");
            }
            Ok((model, program, got))
        })?;
        let (model, program, got) = match planned {
            Ok(ran) => ran,
            Err(reason) => return done(Verdict::Failed(reason)),
        };
        if let Some(folder) = keep {
            write(&folder.join("planned"), &got)?;
        }
        let bound = match (self.device.kind(), model.precision()) {
            ("cpu", _) => Bound::Each,
            (_, Precision::F32) => Bound::Largest,
            _ => Bound::Rounded,
        };
        let difference = difference(model.signature(), &got, &wanted, bound);
        let verdict = self.verdict(&difference, &reference, &wanted);
        let (times_ms, uniform_weights) = match keep {
            Some(_) => (None, false),
            None => (self.times_ms(&program, &reference)?, uniform_weights(&model, program.shapes())),
        };
        let report = program.report();
        Ok(Outcome {
            name: source.name.clone(),
            verdict,
            worst: Some(difference.worst),
            whole: program.unplanned().map(str::to_owned),
            steps: report.as_ref().map_or(0, |report| report.steps.len()),
            host_steps: report.map(|report| report.host_steps).unwrap_or_default(),
            times_ms,
            uniform_weights,
        })
    }

    fn limits(&self, compute: Compute) -> Limits {
        Limits { threads: self.threads, compute, ..Limits::default() }
    }

    /// tract's own plan and what it makes of the inputs; wild values where the model takes them, else tame ones.
    fn reference(&mut self, source: &Source, inputs: Inputs) -> Result<(Ready, Vec<Tensor>), Verdict> {
        let no_reference = |error: anyhow::Error| Verdict::NoReference(format!("{error:#}"));
        let model = source.load(self.limits(Compute::Whole), &Opened::default()).map_err(no_reference)?;
        let mut last = Verdict::Untried("no inputs".into());
        for values in [Values::WILD, Values::TAME] {
            let inputs = gathered(source, &model, inputs, values)
                .map_err(|error| Verdict::Untried(format!("{error:#}")))?;
            let shapes: Vec<Shape> = inputs.iter().map(|tensor| tensor.shape().into()).collect();
            let program = model.program(&shapes).map_err(|error| no_reference(error.into()))?;
            let mut outputs = vec![];
            match program.run(&mut self.workspace, &inputs, &mut outputs) {
                Ok(()) => return Ok((Ready { program, inputs }, outputs)),
                Err(error) => last = no_reference(error.into()),
            }
        }
        Err(last)
    }

    /// Runs `work`; a panic in it is an `Err` in the value, and costs the workspace it happened in.
    fn guarded<T>(
        &mut self,
        work: impl FnOnce(&mut Bench) -> anyhow::Result<T>,
    ) -> anyhow::Result<Result<T, String>> {
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(result) => Ok(result.map_err(|error| format!("{error:#}"))),
            Err(payload) => {
                self.workspace = self.device.workspace(self.threads)?;
                let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
                Ok(Err(format!("panicked: {}", text.unwrap_or_default())))
            }
        }
    }

    fn verdict(&mut self, difference: &Difference, reference: &Ready, wanted: &[Tensor]) -> Verdict {
        let Some(place) = &difference.place else { return Verdict::Equal };
        // Random numbers differ from run to run, and so does what is made of them.
        let mut again = vec![];
        let ran = reference.program.run(&mut self.workspace, &reference.inputs, &mut again);
        match ran.is_ok() && bits(&again) != bits(wanted) {
            true => Verdict::Random,
            false => Verdict::Different(place.clone()),
        }
    }

    /// Medians of alternating runs; half a second, three runs at least.
    fn times_ms(&mut self, planned: &Program, reference: &Ready) -> anyhow::Result<Option<(f64, f64)>> {
        let mut outputs = vec![];
        let mut times = (vec![], vec![]);
        let begun = Instant::now();
        while times.0.len() < 3 || (begun.elapsed() < Duration::from_millis(500) && times.0.len() < 101) {
            for (program, times) in [(planned, &mut times.0), (&*reference.program, &mut times.1)] {
                let start = Instant::now();
                program.run(&mut self.workspace, &reference.inputs, &mut outputs)?;
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        let median = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        Ok(Some((median(times.0), median(times.1))))
    }
}

/// The fault of a kernel that reads what none has written.
const BEFORE: &str = "outputs depend on what the workspace held before";

fn bits(tensors: &[Tensor]) -> Vec<Data> {
    tensors.iter().map(|tensor| tensor.data().clone()).collect()
}

fn gathered(source: &Source, model: &Model, inputs: Inputs, values: Values) -> anyhow::Result<Vec<Tensor>> {
    let signature = model.signature();
    let (shapes, files) = match inputs {
        Inputs::Random { shapes, files } => (shapes, files),
        Inputs::Folder(folder) => {
            let ports = signature.inputs.iter().enumerate();
            return ports.map(|(at, port)| npy::read(&numbered(folder, at), port.dtype)).collect();
        }
    };
    let mut arrays: Vec<(String, Tensor)> = vec![];
    for input in files {
        let port = signature.inputs.iter().find(|port| port.name == input.name);
        let port = port.with_context(|| format!("the model has no input `{}`", input.name))?;
        arrays.push((input.name.clone(), npy::read(&input.file, port.dtype)?));
    }
    let of_arrays = arrays.iter().map(|(name, tensor)| (name.clone(), tensor.shape().into()));
    let given: Vec<(String, Shape)> = of_arrays.chain(shapes.iter().cloned()).collect();
    let remedy = "--shape NAME=1x2x3, a size for each axis, or `prepare` in model.toml";
    let shapes = source.shapes(signature, &given, None, remedy)?;
    let ports = signature.inputs.iter().zip(&shapes).enumerate();
    ports
        .map(|(at, (port, shape))| match arrays.iter().find(|(name, _)| *name == port.name) {
            Some((_, tensor)) => Ok(tensor.clone()),
            None => noise::tensor(port.dtype, shape, at as u64, values),
        })
        .collect()
}

fn numbered(folder: &Path, at: usize) -> PathBuf {
    folder.join(format!("{at}.npy"))
}

/// Writes the outputs that are numbers.
fn write(folder: &Path, outputs: &[Tensor]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    let numbers = outputs.iter().enumerate().filter(|(_, tensor)| tensor.dtype() != DType::Bytes);
    numbers.into_iter().try_for_each(|(at, tensor)| npy::write(&numbered(folder, at), tensor))
}

/// Whether nine tenths of the larger float constants are made of one number each.
fn uniform_weights(model: &Model, shapes: &[Shape]) -> bool {
    const SMALL: usize = 64;
    let Ok(Some(graph)) = model.graph(shapes) else { return false };
    let large = graph
        .values
        .iter()
        .filter(|value| value.constant.is_some() && value.dtype == DType::F32 && value.elements() > SMALL);
    let (mut all, mut uniform) = (0, 0);
    for value in large {
        all += value.bytes();
        uniform += if value.is_uniform() { value.bytes() } else { 0 };
    }
    all > 0 && uniform * 10 >= all * 9
}
