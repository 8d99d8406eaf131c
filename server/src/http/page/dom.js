// Helpers for the document. What comes from the server goes in as text, never as markup.

/** An element of this tag and class around these nodes or texts. */
export function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Sets a text where it differs, so that selections and screen readers are left alone. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Shows a sentence, or hides its place where there is none to show. */
export function setNote(node, text) {
  setText(node, text ?? "");
  node.hidden = !text;
}

/** Brings the children of `parent` in line with `items`: one for each key, kept as long as its key is there. */
export function keyed(parent, items, key, make, update) {
  const wanted = new Map(items.map((item) => [String(key(item)), item]));
  for (const child of [...parent.children]) {
    if (!wanted.has(child.dataset.key)) child.remove();
  }
  const there = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let next = parent.firstElementChild;
  for (const [name, item] of wanted) {
    const child = there.get(name) ?? make(item);
    child.dataset.key = name;
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
    update(child, item);
  }
}

/** A table's row of so many cells, the first of which names it. The roles hold where a phone's layout is no table. */
export function row(cells) {
  const made = element("tr");
  for (let at = 0; at < cells; at += 1) made.append(element(at ? "td" : "th"));
  for (const cell of made.cells) cell.setAttribute("role", "cell");
  made.setAttribute("role", "row");
  made.firstElementChild.setAttribute("role", "rowheader");
  return made;
}

const KIB = 1024;
const MIB = KIB * KIB;
const GIB = KIB * MIB;

/** Bytes as the command line and the log write them. */
export function size(bytes) {
  if (bytes >= GIB) return `${(bytes / GIB).toFixed(1)} GiB`;
  if (bytes >= 10 * MIB) return `${(bytes / MIB).toFixed(0)} MiB`;
  if (bytes >= MIB) return `${(bytes / MIB).toFixed(1)} MiB`;
  if (bytes >= KIB) return `${(bytes / KIB).toFixed(1)} KiB`;
  return `${bytes} bytes`;
}

/** Seconds in the unit that suits them; a dash where there is nothing to tell. */
export function duration(seconds) {
  if (seconds === null) return "–";
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 0.0995) return `${(seconds * 1e3).toFixed(1)} ms`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(0)} ms`;
  return `${seconds.toFixed(1)} s`;
}

/** A rate or an average; a dash where there is nothing to tell. */
export function decimal(value) {
  if (value === null) return "–";
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}

/** A time of the day. */
export const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });

/** How long ago, or how long since, to the coarsest two units. */
export function span(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const at = units.findIndex(([, length]) => seconds >= length);
  if (at < 0) return "0 s";
  const [[unit, length], finer] = [units[at], units[at + 1]];
  const rest = finer ? Math.floor((seconds % length) / finer[1]) : 0;
  return `${Math.floor(seconds / length)} ${unit}${rest ? ` ${rest} ${finer[0]}` : ""}`;
}
