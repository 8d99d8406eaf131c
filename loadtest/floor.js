// What k6, the kernel and the server's HTTP cost with no inference in it: the smallest answer that there is.

import http from 'k6/http';
import { check } from 'k6';
import { DURATION, MODEL, summaryTrendStats, VUS } from './lib/env.js';
import { guarded } from './lib/guard.js';
import { summary } from './lib/summary.js';
import { URL } from './lib/v2.js';

export const options = {
  scenarios: { floor: { executor: 'constant-vus', vus: VUS, duration: DURATION } },
  thresholds: {
    checks: ['rate==1'],
    'http_reqs{name:infer}': ['count>0'],
    'http_req_duration{name:infer}': ['max>=0'], // named so that the summary has it
  },
  summaryTrendStats,
};

export const handleSummary = summary('floor', MODEL, VUS);

export default guarded(() => {
  // Tagged as the other scenarios tag their requests, so that one summary serves all.
  const answer = http.get(`${URL}/v2/health/live`, { tags: { name: 'infer' } });
  check(answer, { 'status is 200': ({ status }) => status === 200 });
});
