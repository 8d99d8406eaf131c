// Several models at once under open loads of their own: each with its rate, shapes, deadline and name in the figures.
//
//   MIX='detect=nudenet:1,320,320:20:500;read=ppocr-rec:1,48,320:30:1000' DURATION=2m loadtest/run mixed
//
// An entry is KIND=MODEL:DIMS:RATE:TIMEOUT_MS; DIMS and TIMEOUT_MS may be empty.

import { DURATION, SEED, summaryTrendStats } from './lib/env.js';
import { counted, described, one, summary } from './lib/open.js';

const MIX = (__ENV.MIX || 'digits=digits::100:').split(';').map((entry) => {
  const match = /^(\w+)=([^:]+):([\d,]*):([\d.]+):(\d*)$/.exec(entry.trim());
  if (!match) throw new Error(`MIX: expected KIND=MODEL:DIMS:RATE:TIMEOUT_MS, got "${entry}"`);
  const [, kind, model, dims, rate, timeout] = match;
  return { kind, model, dims: dims ? dims.split(',').map(Number) : [], rate: Number(rate), timeoutMs: Number(timeout) };
});
const KINDS = MIX.map(({ kind }) => kind);

export const options = {
  scenarios: Object.fromEntries(
    MIX.map(({ kind, rate }) => [
      kind,
      {
        executor: 'constant-arrival-rate',
        rate: Math.max(1, Math.round(rate * 60)),
        timeUnit: '1m',
        duration: DURATION,
        preAllocatedVUs: 32,
        maxVUs: 1024,
        env: { KIND: kind },
      },
    ]),
  ),
  thresholds: counted(KINDS),
  summaryTrendStats,
};

export const setup = () => described(MIX, SEED);

const ask = {};
for (const entry of MIX) ask[entry.kind] = one({ ...entry, seed: SEED });

export default function (models) {
  ask[__ENV.KIND](models);
}

export const handleSummary = summary('mixed', KINDS);
