// The load line as a picture: a hull whose height is the ceiling, loaded with the lines of the ledger, in a sea that
// stands as high as what the process really holds. All areas are proportional to bytes.

import { byId, element, keyed, row, setNote, setText, size } from "./dom.js";

/**
 * The lines of the ledger from the keel upwards. `parts` are what lies in a line, from left to right: where each
 * begins, how long it is, what it is.
 */
export function lines(memory, metrics) {
  const filled = (bytes, kind, label) => (bytes > 0 ? [{ from: 0, bytes, kind, label }] : []);
  const bodies = metrics?.one("plimsoll_bodies_bytes") ?? null;
  const line = (name, title, bytes, more = {}) => ({ name, title, bytes, parts: [], used: null, most: null, ...more });
  const region = (name, title, { bytes, used_bytes: used, peak_bytes: most }, parts) => line(name, title, bytes, { used, most, parts });
  return [
    line("driver", "driver", memory.driver_bytes),
    line("process", "process", memory.process_bytes),
    line("bodies", "request bodies", memory.bodies_bytes, {
      used: bodies,
      parts: filled(bodies, "bodies-used", "bodies in memory"),
    }),
    region("weights", "weights", memory.weights, weights(memory.extents)),
    region("lanes", "steady lanes", memory.lanes, lanes(memory.lanes, "lane")),
    region("reserve", "reserve for bursts", memory.reserve, lanes(memory.reserve, "burst")),
    line("tail", "tail", memory.tail_bytes),
    line("headroom", "headroom", memory.headroom_bytes, {
      used: memory.host_bytes,
      most: memory.host_peak_bytes,
      parts: filled(memory.host_bytes, "headroom-used", "imports and host steps"),
    }),
  ];
}

/** The models where they lie; what is between them is free. */
function weights(extents) {
  const placed = extents.filter((extent) => extent.kind === "weights");
  placed.sort((a, b) => a.offset_bytes - b.offset_bytes);
  const odd = placed.map((extent, at) => (at % 2 ? "weights-b" : "weights-a"));
  return placed.map(({ owner, bytes, offset_bytes: from }, at) => ({ from, bytes, kind: odd[at], label: owner }));
}

/** A region of lanes as equal pieces; which of them are busy is not told, how many is. */
function lanes({ bytes, pieces = 0, busy = 0 }, kind) {
  const each = bytes / Math.max(pieces, 1);
  return Array.from({ length: pieces }, (_, at) => ({
    from: at * each,
    bytes: each,
    kind: at < busy ? `${kind}-busy` : `${kind}-idle`,
    label: at < busy ? "busy" : "idle",
  }));
}

/** Whether host memory is under the ceiling: not on a GPU with memory of its own, where bodies take nothing of it. */
export const countsHostMemory = (memory) => memory.bodies_bytes > 0;

/** What is compared with the ceiling: resident memory, or on a GPU with memory of its own what was taken there. */
export function level(memory) {
  if (!countsHostMemory(memory)) {
    return { bytes: memory.driver_bytes + memory.slab_bytes, word: "taken" };
  }
  const bytes = memory.process_resident_bytes;
  return bytes === undefined ? null : { bytes, word: "resident" };
}

export function draw(memory, metrics) {
  const all = lines(memory, metrics);
  const there = all.filter(({ bytes }) => bytes > 0);
  const sum = there.reduce((total, { bytes }) => total + bytes, 0);
  const now = level(memory);
  const whole = Math.max(memory.ceiling_bytes, sum, now?.bytes ?? 0);
  const part = (bytes) => `${(100 * bytes) / whole}%`;

  let below = 0;
  const stacked = there.map((line) => ({ ...line, bottom: (below += line.bytes) - line.bytes }));
  keyed(byId("hull"), stacked, ({ name }) => name, makeLine, (node, line) => {
    node.style.bottom = part(line.bottom);
    node.style.height = part(line.bytes);
    updateLine(node, line);
  });

  const ceiling = byId("ceiling");
  ceiling.style.bottom = part(memory.ceiling_bytes);
  setText(ceiling.querySelector("span"), size(memory.ceiling_bytes));
  const over = now !== null && now.bytes > memory.ceiling_bytes;
  for (const id of ["sea", "waterline"]) {
    byId(id).hidden = now === null;
    byId(id).classList.toggle("over", over);
  }
  byId("sea").style.height = part(now?.bytes ?? 0);
  byId("waterline").style.bottom = part(now?.bytes ?? 0);
  setText(byId("waterline").querySelector("span"), now ? `${size(now.bytes)} ${now.word}` : "");
  byId("picture").setAttribute("aria-label", inWords(memory, there, now));
  table(all.filter(({ name, bytes }) => bytes > 0 || name !== "tail"), memory);
  setNote(byId("now"), told(memory));
}

function makeLine({ name, title }) {
  const made = element("div", `line ${name}`, element("div", "parts"), element("span", "name", title));
  made.dataset.name = name;
  return made;
}

function updateLine(node, { title, bytes, parts }) {
  node.title = `${title}: ${size(bytes)}`;
  const make = () => element("div", "", element("span"));
  keyed(node.firstElementChild, parts, ({ label, from }) => `${label} ${from}`, make, (piece, { from, bytes: length, kind, label }) => {
    piece.className = `part ${kind}`;
    piece.style.left = `${(100 * from) / bytes}%`;
    piece.style.width = `${(100 * length) / bytes}%`;
    piece.title = `${label}: ${size(length)}`;
    setText(piece.firstElementChild, kind.startsWith("weights") ? label.replace(/:\d+$/, "") : "");
  });
}

/** The same figures for those who want to read them. */
function table(all, memory) {
  const shown = all.flatMap((line) => (line.name === "weights" ? [line, free(memory)] : [line]));
  keyed(byId("regions").tBodies[0], [...shown].reverse(), ({ name }) => name, makeRow, (node, line) => {
    const [, bytes, used, most] = node.cells;
    setText(bytes, size(line.bytes));
    setText(used, line.used === null ? "" : size(line.used));
    setText(most, line.most === null ? "" : size(line.most));
  });
}

const free = (memory) => ({ name: "free", title: "free for weights", bytes: memory.free_bytes, used: null, most: null });

function makeRow({ name, title }) {
  const made = row(4);
  made.firstElementChild.append(element("i", `swatch ${name}`), title);
  return made;
}

function told(memory) {
  const { process_resident_bytes: now, process_resident_peak_bytes: most, ceiling_breaches: times } = memory;
  const pieces = memory.free_bytes > 0 ? `The largest free piece is ${size(memory.largest_free_bytes)}. ` : "";
  if (now === undefined) return `${pieces}The system does not tell what the process holds.`;
  const resident = `The process holds ${size(now)} of resident memory, ${size(most)} at most`;
  if (!countsHostMemory(memory)) return `${pieces}${resident}; on this GPU that is not under the ceiling.`;
  const over = ["never over the ceiling", "over the ceiling once"][times] ?? `over the ceiling ${times} times`;
  return `${pieces}${resident}, and was ${over}.`;
}

function inWords(memory, there, now) {
  const loaded = there.map(({ title, bytes, used }) => `${title} ${size(bytes)}${used === null ? "" : `, ${size(used)} in use`}`);
  const holds = now ? `; ${now.word} ${size(now.bytes)}` : "";
  return `Under the ceiling of ${size(memory.ceiling_bytes)}${holds}: ${loaded.reverse().join("; ")}`;
}
