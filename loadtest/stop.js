// A server that is told to stop in the middle of the run. Every request that it accepted must be answered; only
// connections that it refused because it no longer listens are no failures.
//
//   MODEL=digits VUS=4 DURATION=8s loadtest/run stop      and, some seconds into it: kill -TERM the server

import { sleep } from 'k6';
import { Counter } from 'k6/metrics';
import { DIMS, DURATION, MODEL, SEED, summaryTrendStats, VUS } from './lib/env.js';
import { guarded } from './lib/guard.js';
import { summary } from './lib/summary.js';
import { encode, infer, metadata, randomInputs } from './lib/v2.js';

const answered = new Counter('requests_answered');
const lost = new Counter('requests_lost');
const refused = new Counter('connections_refused');

export const options = {
  scenarios: { stop: { executor: 'constant-vus', vus: VUS, duration: DURATION } },
  thresholds: {
    'http_reqs{name:infer}': ['count>0'],
    'http_req_duration{name:infer}': ['max>=0'], // named so that the summary has it
    requests_answered: ['count>0'],
    requests_lost: ['count==0'],
    connections_refused: ['count>0'], // else the server was never stopped, and the run shows nothing
  },
  summaryTrendStats,
};

export const handleSummary = summary('stop', MODEL, VUS);

export function setup() {
  return metadata(MODEL);
}

// k6's code for a connection that nobody listens for; one that is reset while it is made (`dial: …`) came as late.
const NOT_LISTENING = 1212;

let request;

export default guarded((model) => {
  request = request || encode(randomInputs(model, DIMS, SEED));
  const { status, error, error_code: code } = infer(MODEL, request);
  if (status === 200) {
    answered.add(1);
  } else if (code === NOT_LISTENING || `${error}`.startsWith('dial')) {
    refused.add(1);
    sleep(0.2);
  } else {
    lost.add(1);
    console.error(`${MODEL}: expected 200, got ${status} ${code} ${error}`);
  }
});
