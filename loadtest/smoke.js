// Is this a server that answers rightly? A few requests of every kind to the digits model, the bad ones included.
//
//   loadtest/run smoke

import http from 'k6/http';
import { check, group } from 'k6';
import { summaryTrendStats, thresholds } from './lib/env.js';
import { guarded } from './lib/guard.js';
import { summary } from './lib/summary.js';
import { decode, encode, infer, inferJson, metadata, URL } from './lib/v2.js';

const MODEL = 'digits';
const ONE = open('../models/digits/one.json');
const REQUEST = JSON.parse(ONE);
const [IMAGE] = REQUEST.inputs;
const DIGIT = Number(REQUEST.id.slice(-1)); // the id says what is drawn
const TENSOR = { ...IMAGE, data: new Float32Array(IMAGE.data).buffer };

export const options = { vus: 1, iterations: 20, thresholds, summaryTrendStats };

export const handleSummary = summary('smoke', MODEL, options.vus);

export const setup = () => metadata(MODEL); // no server: one clear error instead of twenty

export default guarded(() => {
  group('health and metadata', () => {
    for (const path of ['/v2/health/live', '/v2/health/ready', `/v2/models/${MODEL}/ready`]) {
      check(http.get(URL + path), { [`${path} is 200`]: ({ status }) => status === 200 });
    }
    check(http.get(`${URL}/v2`).json(), { 'the server names itself': ({ name, version }) => name && version });
    check(metadata(MODEL), {
      'image is FP32 [-1,1,8,8]': ({ inputs }) => describes(inputs, 'image', '-1,1,8,8'),
      'probabilities is FP32 [-1,10]': ({ outputs }) => describes(outputs, 'probabilities', '-1,10'),
    });
  });

  group('infer', () => {
    const binary = encode([TENSOR]);
    const binaryOutput = { ...REQUEST, outputs: [{ name: 'probabilities', parameters: { binary_data: true } }] };
    reads('json', inferJson(MODEL, ONE));
    reads('binary', infer(MODEL, binary));
    reads('binary in, json out', infer(MODEL, encode([TENSOR], {})));
    reads('json in, binary out', inferJson(MODEL, binaryOutput, { responseType: 'binary' }));
    check(inferJson(MODEL, ONE).json(), { 'the id comes back': ({ id }) => id === REQUEST.id });
  });

  group('bad requests', () => {
    const like = (changes) => ({ inputs: [{ ...IMAGE, ...changes }] });
    refuses('malformed json', 400, (expected) => inferJson(MODEL, ONE.slice(0, 100), expected));
    refuses('no input', 400, (expected) => inferJson(MODEL, { inputs: [] }, expected));
    refuses('wrong name', 400, (expected) => inferJson(MODEL, like({ name: 'picture' }), expected));
    refuses('wrong shape', 400, (expected) => inferJson(MODEL, like({ shape: [1, 1, 4, 16] }), expected));
    refuses('wrong datatype', 400, (expected) => inferJson(MODEL, like({ datatype: 'INT64' }), expected));
    refuses('too few values', 400, (expected) => inferJson(MODEL, like({ data: [1, 2, 3] }), expected));
    const short = { ...TENSOR, data: TENSOR.data.slice(4) };
    refuses('too few bytes', 400, (expected) => infer(MODEL, encode([short]), { ...expected, responseType: 'text' }));
    refuses('unknown model', 404, (expected) => inferJson('no-such-model', ONE, expected));
    refuses('unknown version', 404, (expected) => http.get(`${URL}/v2/models/${MODEL}/versions/999`, expected));
  });
});

const describes = (tensors, name, shape) =>
  tensors.length === 1 &&
  tensors[0].name === name &&
  tensors[0].datatype === 'FP32' &&
  tensors[0].shape.join() === shape;

/** The answer is a distribution over ten digits with its peak at the one drawn. */
function reads(how, answer) {
  if (!check(answer, { [`${how}: 200`]: ({ status }) => status === 200 })) return;
  const { model_name: model, outputs } = decode(answer);
  const { shape, data } = outputs[0];
  check(outputs[0], {
    [`${how}: the model is named`]: () => model === MODEL,
    [`${how}: shape is [1,10]`]: () => shape.join() === '1,10',
    [`${how}: probabilities add up to 1`]: () => Math.abs(data.reduce((sum, p) => sum + p, 0) - 1) < 1e-3,
    [`${how}: it reads the digit`]: () => data.indexOf(Math.max(...data)) === DIGIT,
  });
}

/** The refusal has the status and a sentence. It is expected, so it does not count as a failed request. */
function refuses(what, status, send) {
  const answer = send({ responseCallback: http.expectedStatuses(status), tags: { name: 'refused' } });
  check(answer, {
    [`${what}: ${status}`]: () => answer.status === status,
    [`${what}: an error sentence`]: () => typeof answer.json('error') === 'string' && answer.json('error').length > 0,
  });
}
