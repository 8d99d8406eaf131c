//! What was measured, as text or as one JSON document.

use crate::cli::Bench;
use crate::command::timing::{Lane, Timing, quantile};
use crate::process;
use plimsoll_engine::error::size;
use plimsoll_engine::fuse::Precision;
use plimsoll_engine::program::StepTime;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// Steps that are printed.
const SLOWEST: usize = 10;

/// What was measured.
pub(super) struct Subject<'a> {
    pub(super) arguments: &'a Bench,
    pub(super) timing: &'a Timing<'a>,
    pub(super) precision: Precision,
}

/// How long it took.
pub(super) struct Figures {
    pub(super) lanes: Vec<Lane>,
    /// Runs whose inputs and outputs stay on the device.
    pub(super) resident: Option<Vec<Duration>>,
    pub(super) steps: Option<Vec<StepTime>>,
}

/// The shortest first.
struct Times(Vec<Duration>);

impl Times {
    fn of<'a>(times: impl IntoIterator<Item = &'a Duration>) -> Times {
        let mut times: Vec<Duration> = times.into_iter().copied().collect();
        times.sort_unstable();
        Times(times)
    }

    /// p50, p90, p99 and the mean, in milliseconds.
    fn figures(&self) -> [f64; 4] {
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|part| quantile(&self.0, part));
        let mean = self.0.iter().sum::<Duration>() / self.0.len().max(1) as u32;
        [p50, p90, p99, mean].map(|time| time.as_secs_f64() * 1e3)
    }

    fn json(&self) -> Value {
        let [p50, p90, p99, mean] = self.figures();
        json!({ "p50": p50, "p90": p90, "p99": p99, "mean": mean })
    }

    fn text(&self) -> String {
        let [p50, p90, p99, mean] = self.figures();
        format!("p50 {p50:.3} ms, p90 {p90:.3} ms, p99 {p99:.3} ms, mean {mean:.3} ms")
    }
}

impl Subject<'_> {
    /// Prints it.
    pub(super) fn report(&self, figures: &Figures) -> anyhow::Result<()> {
        let device_bytes = self.timing.device.driver_bytes()?;
        let out = std::io::stdout().lock();
        if self.arguments.json {
            self.json(figures, device_bytes, out)
        } else {
            self.text(figures, device_bytes, out)
        }
    }

    fn json(&self, figures: &Figures, device_bytes: u64, mut out: impl Write) -> anyhow::Result<()> {
        let Timing { device, program, threads, .. } = self.timing;
        let times = figures.times();
        let resident_bytes = process::resident().map(|resident| resident.now);
        let steps = figures.steps.as_ref().map(|steps| steps.iter().map(step).collect::<Vec<_>>());
        let document = json!({
            "model": self.arguments.model.to_string(),
            "shapes": program.shapes().iter().map(|shape| shape.to_vec()).collect::<Vec<_>>(),
            "latency_ms": times.json(),
            "resident_latency_ms": figures.resident.as_ref().map(|times| Times::of(times).json()),
            "runs": times.0.len(),
            "runs_per_second": figures.rate(),
            "device": device.kind(),
            "precision": self.precision.name(),
            "lanes": figures.lanes.len(),
            "threads": threads,
            "planned": program.plan().is_some(),
            "reference": self.arguments.reference,
            "host_steps": program.report().map_or(0, |report| report.host_steps.len()),
            "memory": {
                "device_bytes": device_bytes,
                "resident_bytes": resident_bytes,
                "workspace_bytes": program.workspace_bytes(),
            },
            "steps": steps,
        });
        writeln!(out, "{document}")?;
        Ok(())
    }

    fn text(&self, figures: &Figures, device_bytes: u64, mut out: impl Write) -> anyhow::Result<()> {
        let Timing { device, program, threads, .. } = self.timing;
        let shapes: Vec<_> = program.shapes().iter().map(|shape| shape.to_vec()).collect();
        let (precision, lanes) = (self.precision.name(), figures.lanes.len());
        writeln!(out, "model      {} {shapes:?}", self.arguments.model)?;
        writeln!(out, "device     {}, {precision}, {lanes} lanes, {threads} threads each", device.name())?;
        if let Some(reason) = program.unplanned() {
            writeln!(out, "executor   tract's own plan, run whole: {reason}")?;
        }
        let times = figures.times();
        writeln!(out, "latency    {}", times.text())?;
        if let Some(times) = &figures.resident {
            writeln!(out, "resident   {}", Times::of(times).text())?;
        }
        writeln!(out, "throughput {:.1} runs a second over {} runs", figures.rate(), times.0.len())?;
        if let Some(resident) = process::resident() {
            let (resident, device) = (size(resident.now), size(device_bytes));
            writeln!(out, "memory     {resident} resident, {device} on the device")?;
        }
        figures.steps.iter().try_for_each(|steps| table(steps, &mut out))
    }
}

impl Figures {
    fn times(&self) -> Times {
        Times::of(self.lanes.iter().flat_map(|lane| &lane.times))
    }

    fn rate(&self) -> f64 {
        self.lanes.iter().map(|lane| lane.times.len() as f64 / lane.took.as_secs_f64()).sum()
    }
}

fn step(StepTime { step, op, kernel, took }: &StepTime) -> Value {
    json!({ "step": step, "op": op, "kernel": kernel, "us": took.map(|took| took.as_secs_f64() * 1e6) })
}

/// The slowest steps, each by itself and repeated: together they take longer than a run that has them overlap.
fn table(steps: &[StepTime], out: &mut impl Write) -> anyhow::Result<()> {
    let sum: Duration = steps.iter().filter_map(|step| step.took).sum();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    writeln!(out, "steps      {}, {:.1} µs of them by themselves; the slowest:", steps.len(), micros(sum))?;
    let mut slowest: Vec<&StepTime> = steps.iter().collect();
    slowest.sort_by_key(|step| std::cmp::Reverse(step.took));
    for StepTime { step, op, kernel, took } in slowest.into_iter().take(SLOWEST) {
        let took = took.map_or_else(|| "-".into(), |took| format!("{:.1}", micros(took)));
        writeln!(out, "{took:>9} µs  {op:<12} {step}  {kernel}")?;
    }
    Ok(())
}
