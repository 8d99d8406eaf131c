//! `memory`: the live memory map of a running server, as a table.

use super::client;
use crate::cli::Memory;
use anyhow::{Context, ensure};
use plimsoll_engine::error::size;
use serde_json::Value;
use std::io::Write;
use std::time::Duration;

/// How long a server on the same network may take.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn run(arguments: &Memory) -> anyhow::Result<()> {
    let url = &arguments.url;
    let (status, text) = client::get(url, "/v2/memory", PATIENCE)?;
    ensure!(status.is_success(), "{url} answered {status}: {text}");
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{text}")?;
        return Ok(());
    }
    let map = serde_json::from_str(&text).with_context(|| format!("{url} did not answer with JSON"))?;
    Ok(table(&mut out, &map)?)
}

fn table(out: &mut impl Write, map: &Value) -> std::io::Result<()> {
    let bytes = |value: &Value| value.as_u64().map_or_else(|| "?".into(), size);
    let mut line =
        |name: &str, value: &Value, note: String| writeln!(out, "{name:<24} {:>10}  {note}", bytes(value));
    line("ceiling", &map["ceiling_bytes"], String::new())?;
    for (name, field) in [
        ("  driver", "driver_bytes"),
        ("  process", "process_bytes"),
        ("  request bodies", "bodies_bytes"),
        ("  headroom", "headroom_bytes"),
        ("  slab", "slab_bytes"),
    ] {
        line(name, &map[field], String::new())?;
    }
    for (name, field) in [("    weights", "weights"), ("    lanes", "lanes"), ("    reserve", "reserve")] {
        let region = &map[field];
        let pieces = region["pieces"].as_u64().map_or_else(String::new, |pieces| format!(" in {pieces}"));
        let note = format!(
            "{} in use, {} at most{pieces}",
            bytes(&region["used_bytes"]),
            bytes(&region["peak_bytes"])
        );
        line(name, &region["bytes"], note)?;
    }
    let note = format!("{} in one piece", bytes(&map["largest_free_bytes"]));
    line("    free for weights", &map["free_bytes"], note)?;
    let note = format!("of the headroom, {} at most", bytes(&map["host_peak_bytes"]));
    line("host memory held", &map["host_bytes"], note)?;
    let note = format!(
        "resident, {} at most; over the ceiling {} times",
        bytes(&map["process_resident_peak_bytes"]),
        map["ceiling_breaches"]
    );
    line("process now", &map["process_resident_bytes"], note)?;
    writeln!(out)?;
    for extent in map["extents"].as_array().into_iter().flatten() {
        let flags = ["in_use", "pinned"].iter().filter(|flag| extent[**flag] == true);
        let flags: Vec<String> = flags.map(|flag| flag.replace('_', " ")).collect();
        writeln!(
            out,
            "{:<24} {:>10}  {:<8} {:>12}  {}",
            extent["owner"].as_str().unwrap_or_default(),
            bytes(&extent["bytes"]),
            extent["kind"].as_str().unwrap_or_default(),
            extent["offset_bytes"].as_u64().map_or_else(String::new, |offset| format!("at {offset}")),
            flags.join(", ")
        )?;
    }
    Ok(())
}
