//! What `simulate` prints.

use super::figures::{Figures, OfModel};
use super::subject::Subject;
use super::times::Times;
use crate::cli::Simulate;
use crate::command::timing::quantile;
use plimsoll_engine::device::Opened;
use plimsoll_engine::error::size;
use plimsoll_engine::slab::{Fixed, Layout};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::time::Duration;

/// All that there is to tell.
pub(super) struct Report<'a> {
    pub(super) arguments: &'a Simulate,
    pub(super) device: &'a Opened,
    pub(super) fixed: Fixed,
    pub(super) layout: &'a Layout,
    pub(super) subjects: &'a [Subject],
    /// In the order of the subjects, as are the models of the figures.
    pub(super) times: &'a [Times],
    pub(super) figures: Figures,
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// To a microsecond: what is beyond is noise.
fn rounded(time: Duration) -> f64 {
    (ms(time) * 1e3).round() / 1e3
}

impl Report<'_> {
    fn models(&self) -> impl Iterator<Item = (&Subject, &Times, &OfModel)> {
        let all = self.subjects.iter().zip(self.times).zip(&self.figures.models);
        all.map(|((subject, times), figures)| (subject, times, figures))
    }

    fn models_bytes(&self) -> u64 {
        self.subjects.iter().map(Subject::weights_bytes).sum()
    }

    /// One JSON document.
    pub(super) fn document(&self) -> Value {
        let Report { arguments, device, fixed, layout, figures, .. } = self;
        let (steady, burst) = (layout.steady(), layout.burst());
        let models: Vec<Value> =
            self.models().map(|(subject, times, of)| self.model(subject, times, of)).collect();
        json!({
            "trace": arguments.trace.as_ref().map(|file| file.display().to_string()),
            "seed": arguments.seed,
            "device": device.kind(),
            "overhead_ms": rounded(arguments.overhead),
            "seconds": figures.lasted.as_secs_f64(),
            "first_refusal_ms": figures.first_refusal.map(rounded),
            "models": models,
            "lanes": {
                "steady": steady.len(),
                "steady_bytes": steady.iter().map(|lane| lane.bytes).collect::<Vec<_>>(),
                "steady_busy": figures.steady_busy,
                "burst": burst.len(),
                "burst_bytes": burst.iter().map(|lane| lane.bytes).collect::<Vec<_>>(),
                "burst_busy": figures.burst_busy,
                "busy_peak": figures.busy_peak,
            },
            "memory": {
                "ceiling_bytes": fixed.ceiling,
                "slab_bytes": layout.slab_bytes(),
                "weights_bytes": layout.weights_bytes(),
                "models_bytes": self.models_bytes(),
                "lanes_bytes": layout.lanes_bytes(),
                "reserve_bytes": layout.reserve_bytes(),
            },
        })
    }

    fn model(&self, subject: &Subject, times: &Times, of: &OfModel) -> Value {
        let latency = |part| of.latency(part).map(rounded);
        let mean = of.latencies.iter().sum::<Duration>().checked_div(of.latencies.len() as u32);
        json!({
            "name": subject.name,
            "requests": of.requests,
            "answered": of.answered,
            "refused": { "queue_full": of.full, "too_late": of.too_late, "too_large": of.unfit },
            "expired": of.expired,
            "goodput_per_second": self.figures.goodput(of),
            "latency_ms": {
                "p50": latency(0.5), "p90": latency(0.9), "p99": latency(0.99), "max": latency(1.0),
                "mean": mean.map(rounded),
            },
            "runs": of.runs,
            "rows_per_run": of.rows_a_run(),
            "weights_bytes": subject.weights_bytes(),
            "workspaces": subject.buckets()
                .map(|bucket| json!({ "rows": bucket.rows, "bytes": bucket.bytes }))
                .collect::<Vec<_>>(),
            "services": services(times).iter().map(Service::document).collect::<Vec<_>>(),
        })
    }

    /// Tables for people.
    pub(super) fn text(&self, out: &mut impl Write) -> io::Result<()> {
        self.premises(out)?;
        self.table(out)?;
        self.lanes(out)?;
        self.memory(out)
    }

    /// What the figures rest on.
    fn premises(&self, out: &mut impl Write) -> io::Result<()> {
        let Report { arguments, device, figures, .. } = self;
        let from = match &arguments.trace {
            Some(file) => file.display().to_string(),
            None => format!("drawn with seed {}", arguments.seed),
        };
        let requests: usize = figures.models.iter().map(|of| of.requests).sum();
        writeln!(out, "requests   {requests} in {:.1} s, {from}", figures.lasted.as_secs_f64())?;
        writeln!(out, "device     {}", device.name())?;
        for (Subject { name, .. }, times, _) in self.models() {
            let services = services(times);
            // Of what was measured the first is enough to go by.
            let told = if arguments.verbose || matches!(times, Times::Given(_)) { services.len() } else { 1 };
            let more = services.len().saturating_sub(told);
            for Service { rows, busy, woken, times } in services.into_iter().take(told) {
                let lanes =
                    |busy| format!("{busy} lanes busy, {}", if woken { "woken" } else { "after another" });
                let how = busy.map_or("as was said".into(), lanes);
                let [half, most] = [0.5, 0.99].map(|part| ms(quantile(&times, part)));
                writeln!(out, "run        {name}, {rows} rows, {how}: p50 {half:.3} ms, p99 {most:.3} ms")?;
            }
            if more > 0 {
                writeln!(out, "           and {more} more that were measured: --verbose")?;
            }
        }
        let overhead = ms(arguments.overhead);
        writeln!(out, "overhead   {overhead:.3} ms for each answer, beside waiting and running\n")
    }

    fn table(&self, out: &mut impl Write) -> io::Result<()> {
        let mut row = |name: &str, cells: [String; 12]| {
            let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>9}")).collect();
            writeln!(out, "{name:<20} {}", cells.join(" "))
        };
        let heads = [
            "requests",
            "answered",
            "full",
            "too late",
            "too large",
            "expired",
            "good/s",
            "p50 ms",
            "p90 ms",
            "p99 ms",
            "max ms",
            "rows/run",
        ];
        row("model", heads.map(Into::into))?;
        for (subject, _, of) in self.models() {
            let counts = [of.requests, of.answered, of.full, of.too_late, of.unfit, of.expired];
            let [requests, answered, full, too_late, unfit, expired] = counts.map(|count| count.to_string());
            let good = format!("{:.1}", self.figures.goodput(of));
            let latency = |part| of.latency(part).map_or("-".into(), |time| format!("{:.2}", ms(time)));
            let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(latency);
            let rows = of.rows_a_run().map_or("-".into(), |rows| format!("{rows:.2}"));
            row(
                &subject.name,
                [requests, answered, full, too_late, unfit, expired, good, p50, p90, p99, max, rows],
            )?;
        }
        writeln!(out)
    }

    fn lanes(&self, out: &mut impl Write) -> io::Result<()> {
        let Report { layout, figures, .. } = self;
        let refusal = figures.first_refusal.map_or("none".into(), |at| format!("{:.3} s", at.as_secs_f64()));
        writeln!(out, "first refusal     {refusal}")?;
        let kinds = [
            ("steady lanes", layout.steady(), figures.steady_busy),
            ("burst lanes", layout.burst(), figures.burst_busy),
        ];
        for (name, lanes, busy) in kinds {
            let largest = size(lanes.iter().map(|lane| lane.bytes).max().unwrap_or(0));
            writeln!(out, "{name:<17} {} of at most {largest}, {:.1} % busy", lanes.len(), busy * 100.0)?;
        }
        writeln!(out, "busy at once      {} at most", figures.busy_peak)
    }

    fn memory(&self, out: &mut impl Write) -> io::Result<()> {
        let Report { layout, fixed, .. } = self;
        for (name, bytes) in [
            ("ceiling", fixed.ceiling),
            ("  slab", layout.slab_bytes()),
            ("    weights", layout.weights_bytes()),
            ("      these models", self.models_bytes()),
            ("    lanes", layout.lanes_bytes()),
            ("    reserve", layout.reserve_bytes()),
        ] {
            writeln!(out, "{name:<20} {:>10}", size(bytes))?;
        }
        if self.models_bytes() > layout.weights_bytes() {
            writeln!(
                out,
                "these models do not fit at once: the simulation has them all loaded nevertheless"
            )?;
        }
        Ok(())
    }
}

/// What some runs of a model take.
struct Service {
    rows: usize,
    /// Busy lanes; `None` where it was not measured.
    busy: Option<usize>,
    /// Whether the lane had slept.
    woken: bool,
    /// Shortest first.
    times: Vec<Duration>,
}

impl Service {
    fn document(&self) -> Value {
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|part| rounded(quantile(&self.times, part)));
        json!({
            "rows": self.rows,
            "lanes_busy": self.busy,
            "lane_woken": self.busy.map(|_| self.woken),
            "runs": self.busy.map(|_| self.times.len()),
            "p50_ms": p50,
            "p90_ms": p90,
            "p99_ms": p99,
        })
    }
}

fn services(times: &Times) -> Vec<Service> {
    match times {
        Times::Given(said) => {
            let service = |(rows, takes): &(usize, Duration)| Service {
                rows: *rows,
                busy: None,
                woken: false,
                times: vec![*takes],
            };
            said.0.iter().map(service).collect()
        }
        Times::Measured(sizes) => {
            let levels = sizes.iter().flat_map(|size| size.levels.iter().map(|level| (size.rows, level)));
            let both = levels.flat_map(|(rows, level)| {
                let service = move |woken, times: &[Duration]| Service {
                    rows,
                    busy: Some(level.busy),
                    woken,
                    times: times.to_vec(),
                };
                [service(false, &level.follow), service(true, &level.woken)]
            });
            both.collect()
        }
    }
}
