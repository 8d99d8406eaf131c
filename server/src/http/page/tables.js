// Figures, lanes, models and events: everything beside the picture.

import { byId, clock, decimal, duration, element, keyed, row, setNote, setText, size, span } from "./dom.js";
import { owner } from "./recent.js";

/** What `plimsoll_pressure` says: steady lanes do, burst lanes are in use, requests are refused. */
const PRESSURE = ["none", "bursts", "refusals"];

/** What events are called, for people. */
const EVENTS = {
  load: "loaded",
  unload: "unloaded",
  evict: "evicted to make room",
  move: "weights moved together",
  refuse: "refused: no room",
  burst: "burst lanes in use",
  shed: "requests refused",
};

export function drawFigures({ metrics, problems }, recent) {
  const one = (name) => metrics?.one(name) ?? null;
  const [pressure, uptime, refused] = [one("plimsoll_pressure"), one("plimsoll_uptime_seconds"), recent.rate("shed")];
  const figures = [
    ["requests/s", decimal(recent.rate("answered"))],
    ["p50", duration(recent.quantile(0.5))],
    ["p99", duration(recent.quantile(0.99))],
    ["mean", duration(recent.mean())],
    ["waiting", one("plimsoll_queued_requests")?.toFixed(0) ?? "–"],
    ["refused/s", decimal(refused)],
    ["pressure", pressure === null ? "–" : PRESSURE[pressure]],
    ["connections", one("plimsoll_connections")?.toFixed(0) ?? "–"],
    ["up for", uptime === null ? "–" : span(uptime)],
  ];
  const make = ([title]) => element("div", "", element("dt", "", title), element("dd"));
  keyed(byId("figures"), figures, ([title]) => title, make, (node, [, value]) => setText(node.lastElementChild, value));
  byId("figures").dataset.pressure = pressure ?? "";
  const missing = "so p50, p99, waiting and refused requests are not known";
  setNote(byId("figures-note"), problems.metrics && `${problems.metrics}, ${missing}.`);
}

export function drawLanes(memory, recent) {
  const busy = recent.busy();
  setText(byId("lanes-count"), busy === null ? "" : `${decimal(busy)} busy on average`);
  const both = [{ name: "steady", lanes: memory.lanes }, { name: "burst", lanes: memory.reserve }];
  const kinds = both.filter(({ lanes }) => lanes.pieces);
  const make = ({ name }) => element("div", `group ${name}`, element("p"), element("div", "cells"));
  keyed(byId("lanes"), kinds, ({ name }) => name, make, (node, { name, lanes: { pieces, busy: taken } }) => {
    const cells = Array.from({ length: pieces }, (_, at) => ({ at, busy: at < taken }));
    const update = (cell, { busy: held }) => (cell.className = held ? "cell busy" : "cell");
    keyed(node.lastElementChild, cells, ({ at }) => at, () => element("i"), update);
    setText(node.firstElementChild, `${name}: ${taken} of ${pieces} busy`);
  });
}

/** Every version that anyone tells of: the index, else statistics and the ledger. */
export function versions({ index, stats, memory }) {
  if (index) return index.map((entry) => ({ ...entry, ...judged(entry) }));
  const loaded = new Map();
  for (const { name, version } of stats?.model_stats ?? []) {
    loaded.set(owner(name, version), { name, version, state: "loaded", reason: "" });
  }
  for (const { owner: held, kind } of memory?.extents ?? []) {
    const at = held.lastIndexOf(":");
    if (kind !== "weights" || loaded.has(held) || at < 0) continue;
    loaded.set(held, { name: held.slice(0, at), version: held.slice(at + 1), state: "loaded", reason: "" });
  }
  return [...loaded.values()].sort((a, b) => a.name.localeCompare(b.name));
}

/** The state of an entry of the index: what is not loaded, and says why, has failed. */
function judged({ state, reason }) {
  if (state === "READY") return { state: "loaded", reason };
  if (state === "LOADING") return { state: "loading", reason };
  return reason === "" || reason === "unloaded" ? { state: "unloaded", reason: "" } : { state: "failed", reason };
}

export function drawModels(answer, recent) {
  const all = versions(answer);
  const held = new Map();
  for (const { owner: name, bytes } of answer.memory?.extents ?? []) held.set(name, (held.get(name) ?? 0) + bytes);
  keyed(byId("models").tBodies[0], all, ({ name, version }) => owner(name, version), makeModel, (node, model) => {
    const name = owner(model.name, model.version);
    const [, state, bytes, rate, p50, p99] = node.cells;
    node.dataset.state = model.state;
    setText(state.firstElementChild, model.state);
    setText(state.lastElementChild, model.reason);
    setText(bytes, held.has(name) ? size(held.get(name)) : "–");
    setText(rate, decimal(recent.rate("answered", name)));
    setText(p50, duration(recent.quantile(0.5, name)));
    setText(p99, duration(recent.quantile(0.99, name)));
  });
  const loaded = all.filter(({ state }) => state === "loaded").length;
  setText(byId("models-count"), answer.index ? `${loaded} of ${all.length} loaded` : `${loaded} loaded`);
  const hidden = answer.problems.index && `${answer.problems.index}. Models that are not loaded are not shown.`;
  setNote(byId("models-note"), hidden || (all.length === 0 && "There is no model in the folder."));
}

function makeModel({ name, version }) {
  const made = row(6);
  made.cells[0].append(name, element("span", "version", `:${version}`));
  made.cells[1].append(element("b"), element("span", "reason"));
  return made;
}

export function drawEvents({ events }) {
  const make = () => row(4);
  keyed(byId("events").tBodies[0], [...events].reverse(), ({ sequence }) => sequence, make, (node, event) => {
    const [at, what, model, bytes] = node.cells;
    node.dataset.what = event.what;
    setText(at, clock(event.at_ms));
    setText(what, (EVENTS[event.what] ?? event.what) + (event.times > 1 ? ` (${event.times} times)` : ""));
    setText(model, event.owner || "–");
    setText(bytes, event.bytes ? size(event.bytes) : "–");
  });
  byId("events-note").hidden = events.length > 0;
}
