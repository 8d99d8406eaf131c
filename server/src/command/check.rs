//! `check`: the whole start without listening, and what is left under the ceiling.

use super::{logging, start};
use crate::cli::Check;
use crate::config::Level;
use crate::http::Memory;
use crate::load_line::LoadLine;
use crate::process;
use crate::repository::{Availability, Indexed, Registry, owner};
use plimsoll_engine::arena::Arena;
use plimsoll_engine::error::size;
use plimsoll_engine::model::Compute;
use serde_json::json;
use std::io::Write;
use std::sync::Arc;

pub(super) fn run(arguments: &Check) -> anyhow::Result<()> {
    let config = start::configuration(arguments.start.place.config.as_deref(), &arguments.start.flags())?;
    // The table tells what was loaded.
    logging::start(&config.log, Level::Warn);
    let begun = start::start(config, Compute::Planned)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (registry, arena) = (&begun.registry, &begun.arena);
    let seen = runtime.block_on(look(registry, arena));
    let failures = seen.lines.iter().filter(|line| line.failed).count() + seen.missing.len();
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", document(&seen, arena))?;
    } else {
        table(&mut out, &seen, arena)?;
    }
    anyhow::ensure!(failures == 0, "{failures} of the models that the configuration wants cannot be served");
    Ok(())
}

/// What there is to tell of models.
struct Seen {
    lines: Vec<Line>,
    /// Names in `models.load` that the folder does not have.
    missing: Vec<String>,
    /// Weights of all models together, where not all of them are loaded at the start.
    at_once: Option<u64>,
}

/// A version.
struct Line {
    name: String,
    version: String,
    state: &'static str,
    reason: String,
    /// What it holds once it is loaded, and how much of that is weights.
    bytes: u64,
    weights: u64,
    /// The configuration wants it, and it cannot be served.
    failed: bool,
}

/// Loads what is wanted at the start, and then each of the others for a moment, to see what it takes.
async fn look(registry: &Arc<Registry>, arena: &Arena) -> Seen {
    let wanted = registry.wanted();
    for name in &wanted {
        // The index says how it went.
        let _ = registry.load(name).await;
    }
    let mut names: Vec<String> = registry.index().into_iter().map(|line| line.name).collect();
    names.dedup();
    let others = names.len() > wanted.len();
    let word = if registry.on_demand() { "on demand" } else { "not listed" };
    let mut lines = vec![];
    for name in names {
        let is_wanted = wanted.contains(&name);
        let loaded = is_wanted || registry.load(&name).await.is_ok();
        let of_name = registry.index().into_iter().filter(|line| line.name == name);
        lines.extend(of_name.map(|indexed| line(indexed, arena, if is_wanted { "ready" } else { word })));
        if loaded && !is_wanted {
            let _ = registry.unload(&name).await;
        }
    }
    for line in &mut lines {
        line.failed &= registry.on_demand() || wanted.contains(&line.name);
    }
    let at_once = others.then(|| lines.iter().map(|line| line.weights).sum());
    Seen { lines, missing: registry.missing(), at_once }
}

/// `ready` is the word for a version that answers.
fn line(indexed: Indexed, arena: &Arena, ready: &'static str) -> Line {
    let owner = owner(&indexed.name, &indexed.version);
    let held = arena.snapshot().map(|(slab, _)| slab.held).unwrap_or_default();
    let weights = held.iter().filter(|held| held.owner == owner);
    Line {
        bytes: arena.held_by(&owner),
        weights: weights.map(|held| held.placement.extent.bytes).sum(),
        state: match indexed.state {
            Availability::Ready => ready,
            Availability::Loading => "loading",
            Availability::Unavailable => "unavailable",
        },
        failed: indexed.state != Availability::Ready,
        name: indexed.name,
        version: indexed.version,
        reason: indexed.reason,
    }
}

fn document(seen: &Seen, arena: &Arc<Arena>) -> serde_json::Value {
    let models: Vec<_> = seen
        .lines
        .iter()
        .map(|Line { name, version, state, reason, bytes, .. }| {
            json!({ "name": name, "version": version, "state": state, "reason": reason, "bytes": bytes })
        })
        .collect();
    let mut document =
        json!(Memory::of(arena, &LoadLine::new(Arc::clone(arena), Box::new(process::resident)).look()));
    let more = json!({
        "models": models,
        "missing": seen.missing,
        "weights_at_once_bytes": seen.at_once,
    });
    if let (Some(document), Some(more)) = (document.as_object_mut(), more.as_object()) {
        document.extend(more.clone());
    }
    document
}

fn table(out: &mut impl Write, seen: &Seen, arena: &Arena) -> std::io::Result<()> {
    let fixed = arena.ledger().account().fixed;
    for Line { name, version, state, reason, bytes, .. } in &seen.lines {
        let name = format!("{name}:{version}");
        writeln!(out, "{name:<32} {state:<12} {:>10}  {reason}", size(*bytes))?;
    }
    for name in &seen.missing {
        writeln!(
            out,
            "{name:<32} {:<12} {:>10}  models.load names it, the folder does not have it",
            "missing", ""
        )?;
    }
    let mut lines = vec![
        ("ceiling", fixed.ceiling),
        ("  driver", fixed.driver),
        ("  process", fixed.process),
        ("  request bodies", fixed.bodies),
        ("  headroom", fixed.headroom),
        ("  slab", fixed.slab),
    ];
    if let Some((slab, _)) = arena.snapshot() {
        lines.extend([
            ("    weights", slab.weights.used.used_bytes),
            ("    free for weights", slab.free_bytes),
            ("    lanes", slab.lanes.bytes),
            ("    reserve", slab.reserve.bytes),
        ]);
    }
    lines.iter().try_for_each(|(name, bytes)| writeln!(out, "{name:<45} {:>10}", size(*bytes)))?;
    let (Some(at_once), Some((slab, _))) = (seen.at_once, arena.snapshot()) else { return Ok(()) };
    let weights = size(slab.weights.bytes);
    writeln!(out, "all models at once would take {} of the {weights} for weights", size(at_once))
}
