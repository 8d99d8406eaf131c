//! `bench`: latency and throughput of a model in this process without HTTP, or of HTTP without a model.

mod report;

use super::noise::{self, Values};
use super::timing::Timing;
use super::{Usage, logging, model, serve, start};
use crate::cli::{Bench, ModelRef};
use crate::config::{Level, Load};
use plimsoll_engine::model::{Compute, Limits};
use plimsoll_engine::tensor::{Shape, Tensor};
use report::{Figures, Subject};

pub(super) fn run(arguments: &Bench) -> anyhow::Result<()> {
    if arguments.null {
        return null(arguments);
    }
    let config = start::configuration(arguments.place.config.as_deref(), &arguments.flags())?;
    let device = start::device(&config)?;
    let threads = arguments.threads.unwrap_or(config.device.threads);
    let source = model::find(&arguments.model, &config)?;
    let precision = start::precision(arguments.precision, &source, &device)?;
    let compute = if arguments.reference { Compute::Whole } else { Compute::Planned };
    let limits = Limits { threads, precision, compute, ..Limits::default() };
    let model = source.load(limits, &device)?;
    let given: Vec<(String, Shape)> = arguments.shapes.iter().map(|shape| shape.named()).collect();
    let remedy = "--shape NAME=1x2x3, a size for each axis";
    let shapes = source.shapes(model.signature(), &given, arguments.batch, remedy)?;
    let program = model.program(&shapes)?;
    let inputs: Vec<Tensor> = model
        .signature()
        .inputs
        .iter()
        .zip(&shapes)
        .enumerate()
        .map(|(at, (port, shape))| noise::tensor(port.dtype, shape, at as u64, Values::TAME))
        .collect::<anyhow::Result<_>>()?;
    let (lanes, limit) = (arguments.lanes, arguments.seconds);
    let timing = Timing { device: &device, program: &program, inputs: &inputs, threads, lanes, limit };
    let figures = Figures {
        lanes: timing.lanes()?,
        resident: arguments.resident.then(|| timing.resident()).transpose()?,
        steps: arguments.steps.then(|| timing.steps()).transpose()?,
    };
    let subject = Subject { arguments, timing: &timing, precision: model.precision() };
    subject.report(&figures)
}

/// Serves the model over HTTP until the process is told to stop, by runs that compute nothing.
fn null(arguments: &Bench) -> anyhow::Result<()> {
    let ModelRef::Name(name) = &arguments.model else {
        anyhow::bail!(Usage(format!(
            "--null serves a model of the repository, got the file {}",
            arguments.model
        )));
    };
    let mut config = start::configuration(arguments.place.config.as_deref(), &arguments.flags())?;
    config.models.load = Load::Names(vec![name.clone()]);
    logging::start(&config.log, Level::Info);
    serve::until_stopped(config, Compute::Nothing)
}
