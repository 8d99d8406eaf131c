// The last seconds: what the server has counted by now, less what it had counted a while ago.

/** How far back "the last seconds" reach. */
export const SPAN_S = 10;

/** A model version as the ledger names it. */
export const owner = (name, version) => `${name}:${version}`;

/** Every count that is compared: what has been counted, by owner. */
function count({ stats, metrics }) {
  const owners = new Map();
  const enter = (name, what, value) => {
    if (!owners.has(name)) owners.set(name, new Map());
    owners.get(name).set(what, value);
  };
  for (const { name, version, inference_stats: times, batch_stats: batches } of stats?.model_stats ?? []) {
    enter(owner(name, version), "answered", times.success.count);
    enter(owner(name, version), "answered ns", times.success.ns);
    enter(owner(name, version), "run ns", batches.reduce((sum, batch) => sum + batch.compute_infer.ns, 0));
  }
  for (const { labels, value } of metrics?.all("plimsoll_requests_total") ?? []) {
    enter(owner(labels.model, labels.version), labels.outcome, value);
  }
  for (const { labels, value } of metrics?.all("plimsoll_request_seconds_bucket") ?? []) {
    enter(owner(labels.model, labels.version), `le ${labels.le}`, value);
  }
  return owners;
}

/** What was counted between two samples, by owner and over all of them. */
function difference(before, now) {
  const [owners, all] = [new Map(), new Map()];
  for (const [name, counts] of now) {
    const grown = new Map();
    for (const [what, value] of counts) {
      const old = before.get(name)?.get(what) ?? 0;
      // A count that fell has begun anew: the model was loaded again, or the server started.
      const more = value < old ? value : value - old;
      grown.set(what, more);
      all.set(what, (all.get(what) ?? 0) + more);
    }
    owners.set(name, grown);
  }
  return { owners, all };
}

export class Recent {
  #samples = [];
  #grown = null;

  /** Takes in an answer. */
  add(answer) {
    this.#samples.push({ at: answer.at, counts: count(answer) });
    while (this.#samples.length > 2 && this.#samples[1].at <= answer.at - SPAN_S) this.#samples.shift();
    const [before, now] = [this.#samples[0], this.#samples.at(-1)];
    this.#grown = before === now ? null : difference(before.counts, now.counts);
  }

  /** Forgets all of it, after a time in which nobody looked. */
  clear() {
    this.#samples = [];
    this.#grown = null;
  }

  /** Seconds between the two samples that are compared. */
  get seconds() {
    return this.#grown ? this.#samples.at(-1).at - this.#samples[0].at : 0;
  }

  /** What was counted of one owner, or of all. */
  #of(name) {
    return (name === undefined ? this.#grown?.all : this.#grown?.owners.get(name)) ?? new Map();
  }

  /** How much of `what` there was in a second; `null` where that cannot be told. */
  rate(what, name) {
    const much = this.#of(name).get(what);
    return much === undefined ? null : much / this.seconds;
  }

  /** How many lanes were busy on average. */
  busy() {
    const ns = this.rate("run ns");
    return ns === null ? null : ns / 1e9;
  }

  /** The mean time of an answer in seconds; `null` where there was none. */
  mean(name) {
    const answers = this.#of(name).get("answered");
    return answers ? this.#of(name).get("answered ns") / answers / 1e9 : null;
  }

  /** The time in seconds within which this part of the answers came; `null` where there was none. */
  quantile(part, name) {
    const buckets = [];
    for (const [what, value] of this.#of(name)) {
      if (what.startsWith("le ")) buckets.push([what === "le +Inf" ? Infinity : Number(what.slice(3)), value]);
    }
    return quantile(buckets.sort(([a], [b]) => a - b), part);
  }
}

/**
 * The quantile of a histogram of cumulative buckets `[upper bound, count]` in ascending order. Within a bucket values
 * are taken to lie evenly, as Prometheus takes them.
 */
export function quantile(buckets, part) {
  const total = buckets.at(-1)?.[1] ?? 0;
  if (total === 0) return null;
  const rank = part * total;
  const at = buckets.findIndex(([, count]) => count >= rank);
  const [lower, below] = at > 0 ? buckets[at - 1] : [0, 0];
  const [upper, upTo] = buckets[at];
  if (upper === Infinity) return lower;
  return lower + ((upper - lower) * (rank - below)) / Math.max(upTo - below, 1);
}
