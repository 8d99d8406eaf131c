//! `/v2/memory`: every byte under the ceiling, who holds it, and what happened to it lately.

use super::App;
use super::about::{Answer, json};
use crate::load_line::Seen;
use axum::extract::State;
use plimsoll_engine::arena::Arena;
use plimsoll_engine::lane::LaneUse;
use plimsoll_engine::slab::Region;
use serde::Serialize;
use std::sync::Arc;

/// The ledger as JSON; every size in bytes. `ceiling_bytes` is at least the sum of the lines down to `slab_bytes`, and
/// `slab_bytes` is the sum of its regions.
#[derive(Serialize)]
pub(crate) struct Memory {
    ceiling_bytes: u64,
    driver_bytes: u64,
    process_bytes: u64,
    bodies_bytes: u64,
    headroom_bytes: u64,
    slab_bytes: u64,
    /// The slab's regions.
    weights: Part,
    lanes: Part,
    reserve: Part,
    /// Bytes at the end of the slab, too few for anyone.
    tail_bytes: u64,
    /// What models hold of the slab and of host memory now.
    held_bytes: u64,
    /// The most that they have held of the slab.
    held_peak_bytes: u64,
    /// Bytes of the slab that are free for weights, and the largest piece of them.
    free_bytes: u64,
    largest_free_bytes: u64,
    /// What is held of host memory under `headroom_bytes`.
    host_bytes: u64,
    host_peak_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_resident_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process_resident_peak_bytes: Option<u64>,
    /// Times that the resident memory passed the ceiling.
    ceiling_breaches: u64,
    /// Blocks of device memory that were allocated, and how many of them after the start.
    device_allocations: u64,
    device_allocations_after_ready: u64,
    /// Pieces of pinned host memory that the driver did not give; absent where none is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned_refusals: Option<u64>,
    extents: Vec<Extent>,
    events: Vec<Event>,
}

/// A region: its size, what is in use of it, and the most that was.
#[derive(Serialize)]
struct Part {
    bytes: u64,
    used_bytes: u64,
    peak_bytes: u64,
    /// How many lanes it is, and how many of them are handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pieces: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    busy: Option<usize>,
}

#[derive(Serialize)]
struct Extent {
    owner: String,
    kind: &'static str,
    bytes: u64,
    /// In the slab; absent for host memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned: Option<bool>,
}

#[derive(Serialize)]
struct Event {
    sequence: u64,
    what: &'static str,
    owner: String,
    bytes: u64,
    times: u64,
    at_ms: u64,
}

impl Memory {
    /// The ledger as it stands, and what the process was seen to hold.
    pub(crate) fn of(arena: &Arena, seen: &Seen) -> Memory {
        let account = arena.ledger().account();
        let snapshot = arena.snapshot();
        let allocations = arena.allocations();
        let region = |pick: fn(&plimsoll_engine::slab::Snapshot) -> Region, lanes: Option<LaneUse>| {
            let region = snapshot.as_ref().map(|(snapshot, _)| pick(snapshot));
            Part {
                bytes: region.map_or(0, |region| region.bytes),
                used_bytes: region.map_or(0, |region| region.used.used_bytes),
                peak_bytes: region.map_or(0, |region| region.used.peak_bytes),
                pieces: lanes.map(|lanes| lanes.lanes),
                busy: lanes.map(|lanes| lanes.busy),
            }
        };
        let of_slab = |pick: fn(&plimsoll_engine::slab::Snapshot) -> u64| {
            snapshot.as_ref().map_or(0, |(snapshot, _)| pick(snapshot))
        };
        let steady = snapshot.as_ref().map(|(_, counters)| counters.steady);
        let burst = snapshot.as_ref().map(|(_, counters)| counters.burst);
        let held = snapshot.iter().flat_map(|(snapshot, _)| &snapshot.held);
        let weights = held.map(|held| Extent {
            owner: held.owner.clone(),
            kind: "weights",
            bytes: held.placement.extent.bytes,
            offset_bytes: Some(held.placement.extent.offset_bytes),
            in_use: Some(held.in_use),
            pinned: Some(held.terms.pinned),
        });
        let host = account.held.iter().map(|held| Extent {
            owner: held.owner.clone(),
            kind: held.kind.name(),
            bytes: held.bytes,
            offset_bytes: None,
            in_use: None,
            pinned: None,
        });
        let extents = weights.chain(host).collect();
        let weights = region(|snapshot| snapshot.weights, None);
        let events = arena.events().into_iter().map(|event| Event {
            sequence: event.sequence,
            what: event.what.name(),
            owner: event.owner,
            bytes: event.bytes,
            times: event.times,
            at_ms: event.at_ms,
        });
        Memory {
            ceiling_bytes: account.fixed.ceiling,
            driver_bytes: account.fixed.driver,
            process_bytes: account.fixed.process,
            bodies_bytes: account.fixed.bodies,
            headroom_bytes: account.fixed.headroom,
            slab_bytes: account.fixed.slab,
            held_bytes: weights.used_bytes + account.held_bytes,
            held_peak_bytes: weights.peak_bytes + account.peak_bytes,
            weights,
            lanes: region(|snapshot| snapshot.lanes, steady),
            reserve: region(|snapshot| snapshot.reserve, burst),
            tail_bytes: of_slab(|snapshot| snapshot.tail_bytes),
            free_bytes: of_slab(|snapshot| snapshot.free_bytes),
            largest_free_bytes: of_slab(|snapshot| snapshot.largest_free_bytes),
            host_bytes: account.held_bytes,
            host_peak_bytes: account.peak_bytes,
            process_resident_bytes: seen.resident.map(|resident| resident.now),
            process_resident_peak_bytes: seen.resident.map(|resident| resident.peak),
            ceiling_breaches: seen.breaches,
            device_allocations: allocations.total,
            device_allocations_after_ready: allocations.after_ready,
            pinned_refusals: arena.pinned_refused().map(|refused| refused.times),
            extents,
            events: events.collect(),
        }
    }
}

pub(crate) async fn memory(State(app): State<Arc<App>>) -> Answer {
    json(&Memory::of(&app.arena, &app.load_line.look()))
}
