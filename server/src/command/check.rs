//! `check`: the whole start without listening, and what is left under the ceiling.

use super::{logging, start};
use crate::cli::Check;
use crate::repository::{Availability, Indexed, owner};
use plimsoll_engine::error::size;
use plimsoll_engine::slab::Account;
use serde_json::json;
use std::io::Write;
use std::sync::Arc;

pub(super) fn run(arguments: &Check) -> anyhow::Result<()> {
    let config = start::configuration(arguments.start.place.config.as_deref(), &arguments.start.flags())?;
    logging::start(&config.log);
    let begun = start::start(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let registry = Arc::clone(&begun.registry);
    runtime.block_on(async {
        for name in registry.wanted() {
            // The index says how it went.
            let _ = registry.load(&name).await;
        }
    });
    let (index, account, missing) = (registry.index(), begun.ledger.account(), registry.missing());
    let wanted = registry.wanted();
    let failed = |line: &&Indexed| line.state != Availability::Ready && wanted.contains(&line.name);
    let failures = index.iter().filter(failed).count() + missing.len();
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", document(&index, &account, &missing))?;
    } else {
        table(&mut out, &index, &account, &missing)?;
    }
    anyhow::ensure!(failures == 0, "{failures} of the models that the configuration wants cannot be served");
    Ok(())
}

fn held(account: &Account, line: &Indexed) -> u64 {
    let owner = owner(&line.name, &line.version);
    account.held.iter().filter(|held| held.owner == owner).map(|held| held.bytes).sum()
}

fn state(line: &Indexed) -> &'static str {
    match line.state {
        Availability::Ready => "ready",
        Availability::Loading => "loading",
        Availability::Unavailable => "unavailable",
    }
}

fn document(index: &[Indexed], account: &Account, missing: &[String]) -> serde_json::Value {
    let models: Vec<_> = index
        .iter()
        .map(|line| {
            json!({
                "name": line.name, "version": line.version, "state": state(line), "reason": line.reason,
                "bytes": held(account, line),
            })
        })
        .collect();
    json!({
        "ceiling_bytes": account.fixed.ceiling,
        "driver_bytes": account.fixed.driver,
        "process_bytes": account.fixed.process,
        "headroom_bytes": account.fixed.headroom,
        "reserve_bytes": account.fixed.reserve,
        "held_bytes": account.held_bytes,
        "free_bytes": account.free_bytes,
        "models": models,
        "missing": missing,
    })
}

fn table(
    out: &mut impl Write,
    index: &[Indexed],
    account: &Account,
    missing: &[String],
) -> std::io::Result<()> {
    let fixed = &account.fixed;
    for line in index {
        let name = format!("{}:{}", line.name, line.version);
        writeln!(out, "{name:<32} {:<12} {:>10}  {}", state(line), size(held(account, line)), line.reason)?;
    }
    for name in missing {
        writeln!(
            out,
            "{name:<32} {:<12} {:>10}  models.load names it, the folder does not have it",
            "missing", ""
        )?;
    }
    let lines = [
        ("ceiling", fixed.ceiling),
        ("  driver", fixed.driver),
        ("  process", fixed.process),
        ("  headroom", fixed.headroom),
        ("  reserve", fixed.reserve),
        ("  models", account.held_bytes),
        ("  free", account.free_bytes),
    ];
    lines.iter().try_for_each(|(name, bytes)| writeln!(out, "{name:<45} {:>10}", size(*bytes)))
}
