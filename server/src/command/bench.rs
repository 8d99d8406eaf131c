//! `bench`: latency and throughput of a model in this process without HTTP, or of HTTP without a model.

use super::noise::{self, Values};
use super::timing::{Lane, Timing};
use super::{Usage, logging, model, serve, start};
use crate::cli::{Bench, ModelRef};
use crate::config::Load;
use crate::process;
use plimsoll_engine::device::Opened;
use plimsoll_engine::error::size;
use plimsoll_engine::fuse::Precision;
use plimsoll_engine::model::{Compute, Limits};
use plimsoll_engine::program::Program;
use plimsoll_engine::tensor::{Shape, Tensor};
use serde_json::json;
use std::io::Write;

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
    let lanes = timing.lanes()?;
    report(arguments, &device, threads, (&program, model.precision()), &lanes)
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
    logging::start(&config.log);
    serve::until_stopped(config, Compute::Nothing)
}

fn report(
    arguments: &Bench,
    device: &Opened,
    threads: usize,
    (program, precision): (&Program, Precision),
    lanes: &[Lane],
) -> anyhow::Result<()> {
    let mut times: Vec<f64> =
        lanes.iter().flat_map(|lane| &lane.times).map(|t| t.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    let quantile = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let rate: f64 = lanes.iter().map(|lane| lane.times.len() as f64 / lane.took.as_secs_f64()).sum();
    let resident = process::resident().map(|resident| resident.now);
    let device_bytes = device.driver_bytes()?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let document = json!({
            "model": arguments.model.to_string(),
            "shapes": program.shapes().iter().map(|shape| shape.to_vec()).collect::<Vec<_>>(),
            "latency_ms": { "p50": quantile(0.5), "p90": quantile(0.9), "p99": quantile(0.99), "mean": mean },
            "runs": times.len(),
            "runs_per_second": rate,
            "device": device.kind(),
            "precision": precision.name(),
            "lanes": lanes.len(),
            "threads": threads,
            "planned": program.plan().is_some(),
            "reference": arguments.reference,
            "host_steps": program.report().map_or(0, |report| report.host_steps.len()),
            "memory": { "device_bytes": device_bytes, "resident_bytes": resident, "workspace_bytes": program.workspace_bytes() },
        });
        writeln!(out, "{document}")?;
    } else {
        writeln!(
            out,
            "model      {} {:?}",
            arguments.model,
            program.shapes().iter().map(|s| s.to_vec()).collect::<Vec<_>>()
        )?;
        writeln!(
            out,
            "device     {}, {}, {} lanes, {threads} threads each",
            device.name(),
            precision.name(),
            lanes.len()
        )?;
        if let Some(reason) = program.unplanned() {
            writeln!(out, "executor   tract's own plan, run whole: {reason}")?;
        }
        writeln!(
            out,
            "latency    p50 {:.3} ms, p90 {:.3} ms, p99 {:.3} ms, mean {mean:.3} ms",
            quantile(0.5),
            quantile(0.9),
            quantile(0.99)
        )?;
        writeln!(out, "throughput {rate:.1} runs a second over {} runs", times.len())?;
        if let Some(resident) = resident {
            writeln!(out, "memory     {} resident, {} on the device", size(resident), size(device_bytes))?;
        }
    }
    Ok(())
}
