//! `check`: the whole start without listening, and what is left under the ceiling.

use super::{logging, start};
use crate::cli::Check;
use crate::config::Level;
use crate::http::Memory;
use crate::load_line::LoadLine;
use crate::process;
use crate::repository::{Availability, Indexed, owner};
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
    let registry = Arc::clone(&begun.registry);
    runtime.block_on(async {
        for name in registry.wanted() {
            // The index says how it went.
            let _ = registry.load(&name).await;
        }
    });
    let (index, arena, missing) = (registry.index(), &begun.arena, registry.missing());
    let wanted = registry.wanted();
    let failed = |line: &&Indexed| line.state != Availability::Ready && wanted.contains(&line.name);
    let failures = index.iter().filter(failed).count() + missing.len();
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", document(&index, arena, &missing))?;
    } else {
        table(&mut out, &index, arena, &missing)?;
    }
    anyhow::ensure!(failures == 0, "{failures} of the models that the configuration wants cannot be served");
    Ok(())
}

fn held(arena: &Arena, line: &Indexed) -> u64 {
    arena.held_by(&owner(&line.name, &line.version))
}

fn state(line: &Indexed) -> &'static str {
    match line.state {
        Availability::Ready => "ready",
        Availability::Loading => "loading",
        Availability::Unavailable => "unavailable",
    }
}

fn document(index: &[Indexed], arena: &Arc<Arena>, missing: &[String]) -> serde_json::Value {
    let models: Vec<_> = index
        .iter()
        .map(|line| {
            json!({
                "name": line.name, "version": line.version, "state": state(line), "reason": line.reason,
                "bytes": held(arena, line),
            })
        })
        .collect();
    let mut document =
        json!(Memory::of(arena, &LoadLine::new(Arc::clone(arena), Box::new(process::resident)).look()));
    let more = json!({
        "models": models,
        "missing": missing,
    });
    if let (Some(document), Some(more)) = (document.as_object_mut(), more.as_object()) {
        document.extend(more.clone());
    }
    document
}

fn table(out: &mut impl Write, index: &[Indexed], arena: &Arena, missing: &[String]) -> std::io::Result<()> {
    let fixed = arena.ledger().account().fixed;
    for line in index {
        let name = format!("{}:{}", line.name, line.version);
        writeln!(out, "{name:<32} {:<12} {:>10}  {}", state(line), size(held(arena, line)), line.reason)?;
    }
    for name in missing {
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
    lines.iter().try_for_each(|(name, bytes)| writeln!(out, "{name:<45} {:>10}", size(*bytes)))
}
