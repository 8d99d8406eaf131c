//! What `selftest` prints.

use super::{Outcome, Verdict};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Result, Write};

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Verdict::Equal => "equal",
            Verdict::Different(_) => "different",
            Verdict::Failed(_) => "failed",
            Verdict::NoReference(_) => "no reference",
            Verdict::Random => "random",
            Verdict::Untried(_) => "untried",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Verdict::Equal | Verdict::Random => None,
            Verdict::Different(text)
            | Verdict::Failed(text)
            | Verdict::NoReference(text)
            | Verdict::Untried(text) => Some(text),
        }
    }
}

/// One JSON document.
pub(super) fn document(
    out: &mut impl Write,
    outcomes: &[Outcome],
    threads: usize,
    device: &str,
) -> Result<()> {
    let count = |word: &str| outcomes.iter().filter(|outcome| outcome.verdict.word() == word).count();
    let document = json!({
        "device": device,
        "threads": threads,
        "equal": count("equal"),
        "different": count("different"),
        "failed": count("failed"),
        "no_reference": count("no reference"),
        "random": count("random"),
        "untried": count("untried"),
        "models": outcomes.iter().map(row).collect::<Vec<_>>(),
    });
    writeln!(out, "{document}")
}

fn row(outcome: &Outcome) -> Value {
    // JSON has no infinity.
    let worst = outcome.worst.map(|worst| worst.min(f64::MAX));
    json!({
        "model": outcome.name,
        "verdict": outcome.verdict.word(),
        "reason": outcome.verdict.reason(),
        "worst": worst,
        "planned": worst.is_some() && outcome.whole.is_none(),
        "unplanned": outcome.whole,
        "steps": outcome.steps,
        "host_steps": outcome.host_steps.iter().map(|step| json!({ "name": step.name, "op": step.op })).collect::<Vec<_>>(),
        "planned_ms": outcome.times_ms.map(|(planned, _)| planned),
        "reference_ms": outcome.times_ms.map(|(_, reference)| reference),
        "uniform_weights": outcome.uniform_weights,
    })
}

/// A line a model, and notes below.
pub(super) fn table(out: &mut impl Write, outcomes: &[Outcome], threads: usize) -> Result<()> {
    let width = outcomes.iter().map(|outcome| outcome.name.chars().count()).max().unwrap_or(0).max(5);
    writeln!(
        out,
        "{:<width$}  {:<12} {:>8}  {:>5} {:>5}  {:>10} {:>10} {:>6}",
        "model", "verdict", "worst", "steps", "host", "ms", "tract's ms", "ratio"
    )?;
    for outcome in outcomes {
        let worst = outcome.worst.map(|worst| format!("{worst:.3}")).unwrap_or_default();
        let steps = match &outcome.whole {
            Some(_) => "whole".into(),
            None => outcome.steps.to_string(),
        };
        let times = outcome.times_ms.map_or(String::new(), |(planned, reference)| {
            format!("{planned:>10.3} {reference:>10.3} {:>6.2}", planned / reference)
        });
        let line = format!(
            "{:<width$}  {:<12} {worst:>8}  {steps:>5} {:>5}  {times}",
            outcome.name,
            outcome.verdict.word(),
            outcome.host_steps.len()
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    for outcome in outcomes {
        notes(out, outcome)?;
    }
    writeln!(
        out,
        "\nthreads {threads}; worst is the largest difference as a share of the bound, 1 being the bound"
    )
}

fn notes(out: &mut impl Write, outcome: &Outcome) -> Result<()> {
    let name = &outcome.name;
    if let Some(reason) = outcome.verdict.reason() {
        writeln!(out, "{name}: {}: {reason}", outcome.verdict.word())?;
    }
    if let Some(reason) = &outcome.whole {
        writeln!(out, "{name}: run whole: {reason}")?;
    }
    let mut ops: BTreeMap<&str, usize> = BTreeMap::new();
    outcome.host_steps.iter().for_each(|step| *ops.entry(&step.op).or_default() += 1);
    if !ops.is_empty() {
        let ops: Vec<String> = ops.iter().map(|(op, count)| format!("{count} {op}")).collect();
        writeln!(out, "{name}: host steps: {}", ops.join(", "))?;
    }
    if outcome.uniform_weights {
        writeln!(out, "{name}: nearly all weights are one number repeated, which hides many faults")?;
    }
    Ok(())
}
