// An open load: requests come at a given rate whatever becomes of those before, as from cameras that do not wait.

import { check } from 'k6';
import exec from 'k6/execution';
import { Counter, Trend } from 'k6/metrics';
import { guarded } from './guard.js';
import { encode, infer, metadata, randomInputs } from './v2.js';

// 0 is k6's status of a request without an answer.
const SEEN = [0, 200, 429, 503, 504, 500];

const answers = new Counter('answers');
// A request is accepted where it is not refused: a deadline that passes afterwards counts against the server.
const accepted = new Trend('accepted_ms', true);
const refused = new Trend('refused_ms', true);

/** Thresholds that make k6 keep a count for each status, and those that every open load must hold. */
export function counted(kinds, timeoutMs) {
  const counts = { 'answers{status:0}': ['count==0'], 'answers{status:500}': ['count==0'], checks: ['rate==1'] };
  for (const kind of kinds) {
    for (const status of SEEN) counts[`answers{kind:${kind},status:${status}}`] = ['count>=0'];
    counts[`accepted_ms{kind:${kind}}`] = timeoutMs ? [`p(99)<=${timeoutMs}`] : ['p(99)>=0'];
    counts[`refused_ms{kind:${kind}}`] = ['p(99)>=0'];
  }
  return counts;
}

/** What `setup` gives: the metadata of each model, after settings that do not fit have ended the run. */
export const described = (models, seed) => {
  const all = {};
  for (const { model, dims } of models) {
    all[model] = metadata(model);
    encode(randomInputs(all[model], dims, seed));
  }
  return all;
};

// Kept by each client: its requests, made once.
const requests = {};

/** A scenario function that sends one request of `kind` and counts what came. */
export const one = ({ model, dims, kind, timeoutMs, seed }, note = () => {}) =>
  guarded((described) => {
    const timeout = timeoutMs ? { timeout: timeoutMs * 1000 } : {};
    requests[kind] =
      requests[kind] ||
      encode(randomInputs(described[model], dims, seed + exec.vu.idInTest), { binary_data_output: true, ...timeout });
    const answer = infer(model, requests[kind]);
    const tags = { kind, status: `${answer.status}` };
    answers.add(1, tags);
    if (answer.status === 429) {
      refused.add(answer.timings.duration, { kind });
      check(answer, { 'a refusal says when to come back': ({ headers }) => Number(headers['Retry-After']) >= 1 });
    } else {
      accepted.add(answer.timings.duration, { kind });
    }
    note(answer);
  });

/** The figures of each kind, from what k6 gives `handleSummary`. */
export function figures(data, kinds) {
  const seconds = data.state.testRunDurationMs / 1000;
  const value = (metric, field) => (data.metrics[metric] ? data.metrics[metric].values[field] : null);
  const all = {};
  for (const kind of kinds) {
    const statuses = {};
    for (const status of SEEN) {
      const count = value(`answers{kind:${kind},status:${status}}`, 'count');
      if (count) statuses[status] = count;
    }
    const latency = (trend) => {
      const of = (field) => value(`${trend}{kind:${kind}}`, field);
      return { p50: of('med'), p90: of('p(90)'), p99: of('p(99)'), max: of('max') };
    };
    all[kind] = {
      answers: statuses,
      goodput_per_second: (statuses[200] || 0) / seconds,
      accepted_ms: latency('accepted_ms'),
      refused_ms: latency('refused_ms'),
    };
  }
  return { seconds, dropped_iterations: value('dropped_iterations', 'count') || 0, kinds: all };
}

/** A `handleSummary` that prints them and writes them where SUMMARY says. */
export const summary = (scenario, kinds, more = () => ({})) => (data) => {
  const all = { scenario, ...figures(data, kinds), ...more(data) };
  const files = { stdout: `${JSON.stringify(all, null, 2)}\n` };
  if (__ENV.SUMMARY) files[__ENV.SUMMARY] = files.stdout;
  return files;
};
