// Ten models on demand under a ceiling that holds about four of them: clients that wander from model to model with
// other batches and shapes, loads and unloads under their feet, and bad requests. Made to be run by loadtest/ceiling,
// which starts the server, watches its memory and judges; by itself this says only whether the answers were right.

import { md5 } from 'k6/crypto';
import http from 'k6/http';
import { sleep } from 'k6';
import { Counter } from 'k6/metrics';
import { DURATION, SEED, summaryTrendStats, VUS } from './lib/env.js';
import { guarded } from './lib/guard.js';
import { elements, generator, randomBytes } from './lib/tensor.js';
import { encode, infer, inferJson, URL } from './lib/v2.js';

// Every input as name, datatype and shape; a client that is at a model asks any of its rows.
const fp32 = (name, ...shapes) => shapes.map((shape) => [[name, 'FP32', shape]]);
const MODELS = {
  'ppocr-det': fp32('x', [1, 3, 320, 320], [1, 3, 160, 160], [2, 3, 160, 320], [1, 3, 96, 640]),
  'ppocr-rec': fp32('x', [1, 3, 48, 320], [4, 3, 48, 100], [1, 3, 48, 160], [2, 3, 48, 80]),
  'ppocr-cls': fp32('x', [1, 3, 48, 192], [6, 3, 48, 192], [3, 3, 48, 192]),
  magika: [[['bytes', 'INT32', [1, 2048]]], [['bytes', 'INT32', [2, 2048]]], [['bytes', 'INT32', [4, 2048]]]],
  nudenet: fp32('images', [1, 3, 320, 320], [1, 3, 160, 160], [2, 3, 160, 160], [1, 3, 96, 320]),
  'silero-vad': [[['input', 'FP32', [1, 576]], ['state', 'FP32', [2, 1, 128]]]],
  squeezenet: fp32('data_0', [1, 3, 224, 224]),
  densenet121: fp32('data_0', [1, 3, 224, 224]),
  'matrix-24': fp32('x', [1, 1024]),
  'matrix-32': fp32('x', [1, 1024]),
};
const NAMES = Object.keys(MODELS);

// What the server may say no with, and nothing else: 200 or a row of its error table.
const REFUSALS = [400, 404, 408, 413, 422, 429, 503, 504, 507];
// 0 is k6's status of a request without an answer.
const SEEN = [0, 200, ...REFUSALS, 500];
const KINDS = ['infer', 'load', 'unload', 'bad'];

const answers = new Counter('answers');
const wrong = new Counter('wrong_answers');

const constant = (vus, exec) => ({ executor: 'constant-vus', vus, duration: DURATION, exec, gracefulStop: '60s' });
const counts = {};
// A row that is named here is counted by itself in the summary.
for (const kind of KINDS) for (const status of SEEN) counts[`answers{kind:${kind},status:${status}}`] = ['count>=0'];

export const options = {
  scenarios: { clients: constant(VUS, 'client'), operator: constant(1, 'operator'), vandal: constant(1, 'vandal') },
  thresholds: { ...counts, wrong_answers: ['count==0'], 'answers{kind:infer,status:200}': ['count>0'] },
  summaryTrendStats,
};

const random = generator(SEED + __VU * 1000);
const any = (list) => list[Math.floor(random() * list.length)];

// Kept by each client: the requests that it has made, and the digest of the first answer to each.
const requests = {};
const digests = {};

/** Stays at a model for a while, as a camera or a queue of documents would, and then goes to another. */
export const client = guarded(() => {
  const model = any(NAMES);
  for (let left = 1 + Math.floor(random() * 12); left > 0; left--) {
    const row = Math.floor(random() * MODELS[model].length);
    const key = `${model} ${row}`;
    requests[key] = requests[key] || encode(MODELS[model][row].map(tensor));
    const answer = infer(model, requests[key]);
    if (!counted('infer', answer) || answer.status !== 200) continue;
    // Weights that were moved, evicted and packed again are the same weights: so is the answer, to the last bit.
    const digest = md5(answer.body, 'hex');
    digests[key] = digests[key] || digest;
    if (digest !== digests[key]) complain(`${key}: another answer to the same question`);
  }
});

/** Loads and unloads as an operator's tools would. */
export const operator = guarded(() => {
  const what = any(['load', 'unload', 'unload']);
  counted(what, http.post(`${URL}/v2/repository/models/${any(NAMES)}/${what}`));
  sleep(random() * 0.6);
});

const INPUT = { name: 'x', datatype: 'FP32', shape: [1, 3, 48, 192], data: [1] };
const BAD = [
  [400, () => inferJson('ppocr-cls', '{"inputs": [')],
  [400, () => inferJson('ppocr-cls', { inputs: [INPUT] })], // too few values
  [400, () => inferJson('ppocr-cls', { inputs: [{ ...INPUT, name: 'picture' }] })],
  [404, () => inferJson('no-such-model', { inputs: [INPUT] })],
  [404, () => http.post(`${URL}/v2/repository/models/no-such-model/load`)],
  // Small on the wire, larger than max_body when it is unpacked.
  [413, () => http.post(`${URL}/v2/models/ppocr-cls/infer`, new ArrayBuffer(12 << 20), { compression: 'gzip' })],
  // More workspace than any lane has.
  [422, () => infer('ppocr-det', encode([tensor(['x', 'FP32', [1, 3, 736, 736]])]), { responseType: 'text' })],
  // One microsecond from arrival to answer.
  [504, () => infer('nudenet', encode([tensor(MODELS.nudenet[0][0])], { timeout: 1 }), { responseType: 'text' })],
  // Larger than all that models may have.
  [507, () => http.post(`${URL}/v2/repository/models/whale/load`)],
  [503, () => infer('whale', encode([tensor(['x', 'FP32', [1, 1024]])]), { responseType: 'text' })],
];

/** Asks for what cannot be. Under such a load a refusal for want of room may always come first. */
export const vandal = guarded(() => {
  const [status, send] = any(BAD);
  const answer = send();
  if (counted('bad', answer) && ![status, 422, 429, 503, 504, 507].includes(answer.status)) {
    complain(`expected ${status}, got ${answer.status} ${text(answer)}`);
  }
  sleep(random() * 0.6);
});

/** Counts an answer; `false` where it is neither a result nor a row of the error table with a sentence. */
function counted(kind, answer) {
  const { status } = answer;
  answers.add(1, { kind, status: `${SEEN.includes(status) ? status : 500}` });
  if (status === 200) return true;
  const sentence = REFUSALS.includes(status) && JSON.parse(text(answer)).error;
  if (typeof sentence === 'string' && sentence.length > 0) return true;
  complain(`${kind}: ${status} ${answer.error} ${text(answer)}`);
  return false;
}

function complain(what) {
  wrong.add(1);
  console.error(what);
}

function text({ body }) {
  if (typeof body === 'string') return body;
  return String.fromCharCode(...new Uint8Array(body || new ArrayBuffer(0)).subarray(0, 1000));
}

// A stretch of random numbers again and again: to draw a million of them takes k6 seconds.
const STRETCH = 4096;

function tensor([name, datatype, shape]) {
  const stretch = new Uint8Array(randomBytes(datatype, [STRETCH], generator(SEED)));
  const data = new Uint8Array((stretch.length / STRETCH) * elements(shape));
  for (let at = 0; at < data.length; at += stretch.length) data.set(stretch.subarray(0, data.length - at), at);
  return { name, datatype, shape, data: data.buffer };
}

export function handleSummary({ metrics, state }) {
  const count = (name) => (metrics[name] ? metrics[name].values.count : 0);
  const by = (kind) => {
    const seen = SEEN.map((status) => [status, count(`answers{kind:${kind},status:${status}}`)]);
    return Object.fromEntries(seen.filter(([, times]) => times > 0));
  };
  const figures = {
    scenario: 'ceiling',
    seconds: state.testRunDurationMs / 1000,
    answers: Object.fromEntries(KINDS.map((kind) => [kind, by(kind)])),
    wrong_answers: count('wrong_answers'),
  };
  const files = { stdout: `${JSON.stringify(figures.answers)}, wrong: ${figures.wrong_answers}\n` };
  if (__ENV.SUMMARY) files[__ENV.SUMMARY] = `${JSON.stringify(figures, null, 2)}\n`;
  return files;
}
