//! `plan`: what a model takes, and when.

use super::start;
use crate::cli::Plan;
use anyhow::{Context, bail};
use plimsoll_engine::fuse::{Note, Outcome};
use plimsoll_engine::model::{Limits, Model};
use plimsoll_engine::plan::{Report, StepReport};
use plimsoll_engine::program::Program;
use plimsoll_engine::tensor::Shape;
use serde_json::{Value, json};
use std::io::Write;

pub(super) fn run(arguments: &Plan) -> anyhow::Result<()> {
    let config = start::configuration(arguments.place.config.as_deref(), &arguments.flags())?;
    let threads = arguments.threads.unwrap_or(config.device.threads);
    let source = super::model::find(&arguments.model, &config)?;
    let device = start::device(&config)?;
    let precision = start::precision(arguments.precision, &source, &device)?;
    let model = source.load(Limits { threads, precision, ..Limits::default() }, &device)?;
    let given: Vec<(String, Shape)> = arguments.shapes.iter().map(|shape| shape.named()).collect();
    let remedy = "--shape NAME=1x2x3, a size for each axis";
    let shapes = source.shapes(model.signature(), &given, arguments.batch, remedy)?;
    let mut out = std::io::stdout().lock();
    if arguments.dump || arguments.explain {
        let fused = model.fused(&shapes)?;
        let fused =
            fused.with_context(|| format!("model `{}` is run whole and has no graph", source.name))?;
        if arguments.explain {
            return Ok(explain(&mut out, &fused.notes)?);
        }
        return Ok(write!(out, "{}", fused.graph)?);
    }
    let program = model.program(&shapes)?;
    let report = program.report();
    if let Some(file) = &arguments.svg {
        let Some(report) = &report else {
            bail!("model `{}` is run whole and has no plan to draw", source.name);
        };
        let title = format!("{} {}", source.name, shapes_text(&model, &shapes));
        std::fs::write(file, report.svg(&title)).with_context(|| format!("{}", file.display()))?;
    }
    if arguments.json {
        let document = document(&source.name, &model, &program, report.as_ref(), threads, device.kind());
        writeln!(out, "{document}")?;
        return Ok(());
    }
    writeln!(out, "model      {} {}", source.name, shapes_text(&model, &shapes))?;
    writeln!(out, "device     {}, {}, threads {threads}", device.name(), model.precision().name())?;
    match &report {
        Some(report) => write!(out, "{report}")?,
        None => {
            writeln!(out, "not planned, run whole: {}", program.unplanned().unwrap_or_default())?;
            let lines = [
                ("weights", program.constant_bytes()),
                ("live peak, as read off it", program.workspace_bytes()),
            ];
            for (name, bytes) in lines {
                writeln!(out, "{name}: {} ({bytes} bytes)", plimsoll_engine::error::size(bytes as u64))?;
            }
        }
    }
    Ok(())
}

/// What each pass did, and what it almost did and why not.
fn explain(out: &mut impl Write, notes: &[Note]) -> std::io::Result<()> {
    notes.iter().try_for_each(|note| match &note.outcome {
        Outcome::Fused => writeln!(out, "{:<11} fused     {}", note.pass, note.node),
        Outcome::Declined(reason) => writeln!(out, "{:<11} declined  {}: {reason}", note.pass, note.node),
    })
}

fn shapes_text(model: &Model, shapes: &[Shape]) -> String {
    let sizes = |shape: &Shape| shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
    let named = model.signature().inputs.iter().zip(shapes);
    named.map(|(port, shape)| format!("{}={}", port.name, sizes(shape))).collect::<Vec<_>>().join(" ")
}

fn document(
    name: &str,
    model: &Model,
    program: &Program,
    report: Option<&Report>,
    threads: usize,
    device: &str,
) -> Value {
    let named = model.signature().inputs.iter().zip(program.shapes());
    let shapes: serde_json::Map<String, Value> =
        named.map(|(port, shape)| (port.name.clone(), json!(shape.to_vec()))).collect();
    let whole = program.workspace_bytes() as u64;
    let host_steps = report.map(|report| report.host_steps.as_slice()).unwrap_or_default();
    let steps = report.map(|report| report.steps.as_slice()).unwrap_or_default();
    json!({
        "model": name,
        "shapes": shapes,
        "device": device,
        "precision": model.precision().name(),
        "threads": threads,
        "planned": report.is_some(),
        "reason": program.unplanned(),
        "weights_bytes": program.constant_bytes(),
        "workspace_bytes": whole,
        "live_peak_bytes": report.map_or(whole, |report| report.live_peak_bytes),
        "peak_step": report.and_then(|report| report.peak.as_ref()).map(|(at, name)| json!({ "index": at, "name": name })),
        "host_steps": host_steps.iter().map(|step| json!({ "name": step.name, "op": step.op })).collect::<Vec<_>>(),
        "steps": steps.iter().map(step).collect::<Vec<_>>(),
    })
}

fn step(step: &StepReport) -> Value {
    json!({
        "name": step.name,
        "op": step.op,
        "outputs": step.outputs,
        "host": step.host,
        "read_bytes": step.read_bytes,
        "constant_bytes": step.constant_bytes,
        "written_bytes": step.written_bytes,
        "scratch_bytes": step.scratch_bytes,
        "live_bytes": step.live_bytes,
    })
}
