// A square wave: half of RATE, then six times as much for longer and longer, to see how long a burst is absorbed.
//
//   MODEL=nudenet DIMS=1,320,320 RATE=60 BURSTS=1,2,4 loadtest/run burst

import exec from 'k6/execution';
import { Trend } from 'k6/metrics';
import { DIMS, MODEL, RATE, SEED, summaryTrendStats, TIMEOUT_MS } from './lib/env.js';
import { counted, described, one, summary } from './lib/open.js';

// Seconds of each burst, and of the quiet before it.
const BURSTS = (__ENV.BURSTS || '1,2,4').split(',').map(Number);
const QUIET = 6;
const LOW = 0.5;
const HIGH = 3;

const [stages, kinds, starts] = [[], [], []];
let at = 0;
BURSTS.forEach((seconds, number) => {
  const quiet = { rate: LOW, seconds: QUIET };
  for (const { rate, seconds: length } of [quiet, { rate: HIGH, seconds }]) {
    stages.push({ start: at, rate, length, kind: rate === HIGH ? `burst${number + 1}` : 'quiet' });
    at += length;
  }
});
stages.push({ start: at, rate: LOW, length: QUIET, kind: 'quiet' });
kinds.push('quiet', ...BURSTS.map((_, number) => `burst${number + 1}`));

const scenarios = {};
stages.forEach(({ start, rate, length, kind }, number) => {
  scenarios[`stage${number}`] = {
    executor: 'constant-arrival-rate',
    rate: Math.max(1, Math.round(RATE * rate)),
    timeUnit: '1s',
    duration: `${length}s`,
    startTime: `${start}s`,
    // Clients that k6 has to make first would come too late for the burst.
    preAllocatedVUs: rate === HIGH ? 256 : 32,
    maxVUs: 1024,
    exec: kind,
  };
  if (kind !== 'quiet') starts.push([kind, start]);
});

// How far into its burst a request was refused; the least of them is how long the burst was absorbed.
const refusedAt = new Trend('refused_at_ms', true);

export const options = {
  scenarios,
  thresholds: {
    ...counted(kinds),
    ...Object.fromEntries(starts.map(([kind]) => [`refused_at_ms{kind:${kind}}`, ['min>=0']])),
  },
  summaryTrendStats: [...summaryTrendStats, 'min', 'count'],
};

export const setup = () => described([{ model: MODEL, dims: DIMS }], SEED);

const stage = (kind) => {
  const note = ({ status, timings }) => {
    const sent = Date.now() - exec.scenario.startTime - timings.duration;
    if (status === 429 && kind !== 'quiet') refusedAt.add(Math.max(0, sent), { kind });
  };
  return one({ model: MODEL, dims: DIMS, kind, timeoutMs: TIMEOUT_MS, seed: SEED }, note);
};

export const quiet = stage('quiet');
export const burst1 = stage('burst1');
export const burst2 = stage('burst2');
export const burst3 = stage('burst3');
export const burst4 = stage('burst4');

export const handleSummary = summary('burst', kinds, ({ metrics }) => ({
  absorbed_ms: Object.fromEntries(
    starts.map(([kind], number) => {
      const seen = metrics[`refused_at_ms{kind:${kind}}`];
      const refusals = seen ? seen.values.count : 0;
      // Without a refusal the whole burst was absorbed.
      return [kind, { length_ms: BURSTS[number] * 1000, first_refusal_ms: refusals ? seen.values.min : null }];
    }),
  ),
}));
