//! `selftest`: planned programs against tract's own plan of the same model, run whole, on the same inputs.

mod compare;
mod report;
mod subject;

use super::{Usage, model, start};
use crate::cli::{InputFile, SelfTest};
use crate::config::Config;
use anyhow::{Context, bail};
use plimsoll_engine::plan::HostStepReport;
use plimsoll_engine::tensor::Shape;
use std::path::Path;
use subject::{Bench, Inputs};

/// What came of a comparison.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    /// Every output is equal within the bound.
    Equal,
    /// One is not.
    Different(String),
    /// The planned program fails or panics where tract's own does not.
    Failed(String),
    /// tract itself cannot load or run the model, so there is nothing to compare with.
    NoReference(String),
    /// tract's own values differ from run to run, so there is nothing to compare with.
    Random,
    /// It was not tried, for want of inputs: why.
    Untried(String),
}

/// A model and what came of it.
#[derive(Clone, Debug)]
struct Outcome {
    name: String,
    verdict: Verdict,
    /// The worst difference as a share of the bound, 1 being the bound itself; infinite where values cannot differ by
    /// some amount but only differ.
    worst: Option<f64>,
    /// Why the model is not planned but run whole.
    whole: Option<String>,
    host_steps: Vec<HostStepReport>,
    steps: usize,
    /// Medians of alternating runs, planned and reference, in milliseconds.
    times_ms: Option<(f64, f64)>,
    /// Whether nearly all weights are one number repeated, so that a difference may go unseen.
    uniform_weights: bool,
}

pub(super) fn run(arguments: &SelfTest) -> anyhow::Result<()> {
    let config = start::configuration(arguments.place.config.as_deref(), &arguments.flags())?;
    let threads = arguments.threads.unwrap_or(config.device.threads);
    let mut bench = Bench::new(threads, start::device(&config)?, arguments.precision)?;
    let (outcomes, failures) = match &arguments.cases {
        Some(folder) => {
            let outcomes = cases(folder, &mut bench)?;
            let failed =
                |outcome: &&Outcome| matches!(outcome.verdict, Verdict::Different(_) | Verdict::Failed(_));
            let failures = outcomes.iter().filter(failed).count();
            (outcomes, failures)
        }
        None => {
            let outcomes = models(arguments, &config, &mut bench)?;
            let good =
                |verdict: &Verdict| matches!(verdict, Verdict::Equal | Verdict::Random | Verdict::Untried(_));
            let failures = outcomes.iter().filter(|outcome| !good(&outcome.verdict)).count();
            (outcomes, failures)
        }
    };
    let mut out = std::io::stdout().lock();
    match arguments.json {
        true => report::document(&mut out, &outcomes, threads, bench.device())?,
        false => report::table(&mut out, &outcomes, threads)?,
    }
    anyhow::ensure!(failures == 0, "{failures} of {} differ or fail", outcomes.len());
    Ok(())
}

/// The models that were named, or the whole repository.
fn models(arguments: &SelfTest, config: &Config, bench: &mut Bench) -> anyhow::Result<Vec<Outcome>> {
    let all = arguments.names.is_empty();
    let names = if all { model::all(config)? } else { arguments.names.clone() };
    if (!arguments.shapes.is_empty() || !arguments.inputs.is_empty()) && (all || names.len() != 1) {
        bail!(Usage("--shape and --input are for a single model: name it".into()));
    }
    let shapes: Vec<(String, Shape)> = arguments.shapes.iter().map(|shape| shape.named()).collect();
    let files: &[InputFile] = &arguments.inputs;
    let mut outcomes = vec![];
    for name in &names {
        let source = match model::find(name, config) {
            Ok(source) => source,
            // What lies in the folder and cannot be used is told like what cannot be run.
            Err(error) if all => {
                outcomes
                    .push(Outcome::without_run(name.to_string(), Verdict::NoReference(format!("{error:#}"))));
                continue;
            }
            Err(error) => return Err(error),
        };
        let outcome = bench.test(&source, Inputs::Random { shapes: &shapes, files })?;
        outcomes.push(match outcome {
            // Who names a model and leaves its shape open is told how to settle it.
            Outcome { verdict: Verdict::Untried(reason), .. } if !all => bail!(Usage(reason)),
            outcome => outcome,
        });
    }
    Ok(outcomes)
}

/// Every folder in `folder`, in name order.
fn cases(folder: &Path, bench: &mut Bench) -> anyhow::Result<Vec<Outcome>> {
    let shown = || format!("{}", folder.display());
    let entries = std::fs::read_dir(folder).with_context(shown)?;
    let mut folders = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    folders.retain(|path| path.join("model.onnx").is_file());
    folders.sort();
    if folders.is_empty() {
        bail!("{}: no folder in it has a model.onnx", folder.display());
    }
    folders.iter().map(|folder| bench.case(folder)).collect()
}

impl Outcome {
    fn without_run(name: String, verdict: Verdict) -> Outcome {
        Outcome {
            name,
            verdict,
            worst: None,
            whole: None,
            host_steps: vec![],
            steps: 0,
            times_ms: None,
            uniform_weights: false,
        }
    }
}
