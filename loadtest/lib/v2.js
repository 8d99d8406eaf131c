// A client of the Open Inference Protocol v2 over k6: metadata, and infer with the binary tensor extension.

import http from 'k6/http';
import { datatype, elements, generator, numbers, randomBytes } from './tensor.js';

export const URL = (__ENV.PLIMSOLL_URL || 'http://127.0.0.1:8000').replace(/\/+$/, '');

const LENGTH_HEADER = 'Inference-Header-Content-Length';

// One name for all infer requests, so that thresholds and the summary count them and nothing else.
const INFER = { name: 'infer' };

export const inferUrl = (model) => `${URL}/v2/models/${model}/infer`;

/** The metadata of a model, which is loaded where it is not; throws when the server does not answer or know it. */
export function metadata(model) {
  const url = `${URL}/v2/models/${model}`;
  // That it is not loaded is no failure of the server's.
  let answer = http.get(url, { responseCallback: http.expectedStatuses(200, 503) });
  if (answer.status === 503) {
    const load = `${URL}/v2/repository/models/${model}/load`;
    const loaded = http.post(load, null);
    if (loaded.status !== 200) {
      throw new Error(`POST ${load}: expected 200, got ${loaded.status} ${loaded.error || loaded.body}`);
    }
    answer = http.get(url);
  }
  if (answer.status !== 200) {
    throw new Error(`GET ${url}: expected 200, got ${answer.status} ${answer.error || answer.body}`);
  }
  return answer.json();
}

/**
 * One tensor for each input, filled with the numbers of `seed`. `dims` replaces the -1 of the shapes in the order
 * in which they stand; those beyond its end become 1.
 */
export function randomInputs(model, dims, seed) {
  const random = generator(seed);
  const left = dims.slice();
  const inputs = model.inputs.map(({ name, datatype, shape }) => {
    const concrete = shape.map((dim) => (dim >= 0 ? dim : left.length ? left.shift() : 1));
    return { name, datatype, shape: concrete, data: randomBytes(datatype, concrete, random) };
  });
  if (left.length) {
    const shapes = model.inputs.map(({ name, shape }) => `${name} [${shape}]`).join(', ');
    throw new Error(`DIMS: expected at most one value for each -1 of ${shapes}; got ${left.length} more`);
  }
  return inputs;
}

/** The body of an infer request: a JSON head, then the tensors' bytes one after another. */
export function encode(inputs, parameters = { binary_data_output: true }) {
  const head = ascii(
    JSON.stringify({
      parameters,
      inputs: inputs.map(({ name, datatype, shape, data }) => ({
        name,
        datatype,
        shape,
        parameters: { binary_data_size: data.byteLength },
      })),
    }),
  );
  const body = new Uint8Array(inputs.reduce((sum, { data }) => sum + data.byteLength, head.length));
  body.set(head);
  let at = head.length;
  for (const { data } of inputs) {
    body.set(new Uint8Array(data), at);
    at += data.byteLength;
  }
  return { body: body.buffer, headBytes: head.length };
}

/** Posts an encoded request; the body of the answer stays an ArrayBuffer. */
export function infer(model, { body, headBytes }, params = {}) {
  return http.post(inferUrl(model), body, {
    responseType: 'binary',
    tags: INFER,
    headers: { 'Content-Type': 'application/octet-stream', [LENGTH_HEADER]: `${headBytes}` },
    ...params,
  });
}

/** Posts an infer request whose tensors are numbers in the JSON, as text or as an object. */
export function inferJson(model, request, params = {}) {
  const body = typeof request === 'string' ? request : JSON.stringify(request);
  return http.post(inferUrl(model), body, { tags: INFER, headers: { 'Content-Type': 'application/json' }, ...params });
}

/**
 * The answer to an infer request as its JSON with each output's `data` as numbers, binary ones included.
 * Throws where the byte counts of the answer do not agree with its shapes.
 */
export function decode(answer) {
  const length = answer.headers[LENGTH_HEADER];
  const bytes = typeof answer.body === 'string' ? null : new Uint8Array(answer.body);
  if (length === undefined) {
    return JSON.parse(bytes ? text(bytes) : answer.body);
  }
  if (!bytes) {
    throw new Error('a binary answer can be decoded only when it was asked for with responseType "binary"');
  }
  let at = Number(length);
  const head = JSON.parse(text(bytes.subarray(0, at)));
  for (const output of head.outputs) {
    const size = output.parameters && output.parameters.binary_data_size;
    if (size === undefined) continue;
    const expected = elements(output.shape) * datatype(output.datatype, output.name).bytes;
    if (size !== expected || at + size > bytes.length) {
      const left = bytes.length - at;
      throw new Error(`${output.name} [${output.shape}]: expected ${expected} bytes, got ${size} of ${left} left`);
    }
    output.data = numbers(output.datatype, bytes.slice(at, at + size).buffer);
    at += size;
  }
  if (at !== bytes.length) {
    throw new Error(`expected an answer of ${at} bytes, got ${bytes.length}`);
  }
  return head;
}

// k6 has no TextEncoder, and bytes are the only body that it sends unchanged. Beyond ASCII we write what JSON
// allows everywhere: \u escapes.
function ascii(json) {
  const plain = json.replace(/[^\x00-\x7f]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const bytes = new Uint8Array(plain.length);
  for (let i = 0; i < plain.length; i++) bytes[i] = plain.charCodeAt(i);
  return bytes;
}

function text(bytes) {
  let out = '';
  for (const byte of bytes) out += String.fromCharCode(byte);
  return decodeURIComponent(escape(out));
}
