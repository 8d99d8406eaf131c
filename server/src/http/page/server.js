// What the server is asked, and its answers as plain values.

const PATIENCE_MS = 5000;

/** Who tells what. Addresses are relative, so that a proxy may put the server below a path. */
const SOURCES = {
  memory: ["GET", "v2/memory"],
  index: ["POST", "v2/repository/index"],
  stats: ["GET", "v2/models/stats"],
  metrics: ["GET", "metrics"],
};

/** The server did not answer at all. */
export class NoAnswer extends Error {}

/**
 * Asks all sources, one after the other: a page takes one connection. What a source refuses is `null` in the answer,
 * and `problems` has the sentence for it: whatever guards a path must not blind the rest of the page.
 */
export async function ask() {
  const answer = { problems: {} };
  for (const [name, [method, path]] of Object.entries(SOURCES)) {
    try {
      answer[name] = await read(name, await get(method, path));
    } catch (error) {
      if (error instanceof NoAnswer) throw error;
      answer[name] = null;
      answer.problems[name] = `${method} /${path}: ${error.message}`;
    }
  }
  return { ...answer, at: performance.now() / 1000 };
}

async function get(method, path) {
  const options = { method, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) };
  const response = await fetch(path, options).catch((error) => {
    throw new NoAnswer(error.message);
  });
  if (!response.ok) throw new Error(`the answer is ${response.status} ${response.statusText}`.trim());
  return response;
}

async function read(name, response) {
  const text = await response.text().catch((error) => {
    throw new NoAnswer(error.message);
  });
  if (name === "metrics") return new Metrics(text);
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("the answer is not JSON");
  }
}

/** Metrics in Prometheus' text form. */
export class Metrics {
  #series = new Map();

  constructor(text) {
    for (const line of text.split("\n")) {
      const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
      if (!match) continue;
      const [, name, labels, value] = match;
      if (!this.#series.has(name)) this.#series.set(name, []);
      this.#series.get(name).push({ labels: parseLabels(labels ?? ""), value: Number(value) });
    }
  }

  /** Every series of a metric, with its labels. */
  all(name) {
    return this.#series.get(name) ?? [];
  }

  /** The value of a metric without labels; `null` where there is none. */
  one(name) {
    return this.all(name)[0]?.value ?? null;
  }
}

function parseLabels(text) {
  const unescape = (value) => value.replace(/\\(.)/g, (_, escaped) => (escaped === "n" ? "\n" : escaped));
  const pairs = text.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g);
  return Object.fromEntries([...pairs].map(([, name, value]) => [name, unescape(value)]));
}
