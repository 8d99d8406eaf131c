// Any model under a constant number of clients, each of which sends one request after another, in binary.
//
//   MODEL=nudenet DIMS=1,320,320 VUS=8 DURATION=60s P99_MS=500 loadtest/run steady

import { check } from 'k6';
import exec from 'k6/execution';
import { DIMS, DURATION, MODEL, SEED, summaryTrendStats, thresholds, VUS } from './lib/env.js';
import { guarded } from './lib/guard.js';
import { summary } from './lib/summary.js';
import { decode, encode, infer, metadata, randomInputs } from './lib/v2.js';

export const options = {
  scenarios: { steady: { executor: 'constant-vus', vus: VUS, duration: DURATION } },
  thresholds,
  summaryTrendStats,
};

export const handleSummary = summary('steady', MODEL, VUS);

export function setup() {
  const model = metadata(MODEL);
  encode(randomInputs(model, DIMS, SEED)); // settings that do not fit the model end the run here
  return model;
}

// Kept by each client: its request, which is made once, and the size of the first answer.
let request;
let answerBytes;
let complained = false;

export default guarded((model) => {
  // Clients send different numbers, so that answers given to the wrong client can differ.
  request = request || encode(randomInputs(model, DIMS, SEED + exec.vu.idInTest));
  const answer = infer(MODEL, request);
  const ok = check(answer, { 'status is 200': ({ status }) => status === 200 });
  if (!ok) {
    complain(answer);
    return;
  }
  if (answerBytes === undefined) {
    check(answer, { 'the first answer is whole and has every output': (first) => isWhole(model, first) });
    answerBytes = answer.body.byteLength;
  }
  // Decoding every answer would measure this script, not the server; the same question has an answer of the same size.
  check(answer, { 'later answers have the size of the first': ({ body }) => body.byteLength === answerBytes });
});

// The first refusal of each client is shown; thousands of the same would hide it.
function complain({ status, error, body }) {
  if (complained) return;
  complained = true;
  const sentence = body ? String.fromCharCode(...new Uint8Array(body).subarray(0, 500)) : '';
  console.error(`${MODEL}: expected 200, got ${status} ${error} ${sentence}`);
}

function isWhole(model, answer) {
  const { outputs } = decode(answer);
  return model.outputs.every(({ name, datatype }) =>
    outputs.some((output) => output.name === name && output.datatype === datatype && output.data.length > 0),
  );
}
