// One model under an open load of a constant rate, for as long as it takes to be believed.
//
//   MODEL=nudenet DIMS=1,320,320 RATE=200 TIMEOUT_MS=500 DURATION=5m loadtest/run soak

import { DIMS, DURATION, MODEL, RATE, SEED, summaryTrendStats, TIMEOUT_MS } from './lib/env.js';
import { counted, described, one, summary } from './lib/open.js';

export const options = {
  scenarios: {
    soak: {
      executor: 'constant-arrival-rate',
      rate: RATE,
      timeUnit: '1s',
      duration: DURATION,
      preAllocatedVUs: 64,
      maxVUs: 1024,
    },
  },
  thresholds: counted(['soak'], TIMEOUT_MS),
  summaryTrendStats,
};

export const handleSummary = summary('soak', ['soak']);

export const setup = () => described([{ model: MODEL, dims: DIMS }], SEED);

export default one({ model: MODEL, dims: DIMS, kind: 'soak', timeoutMs: TIMEOUT_MS, seed: SEED });
