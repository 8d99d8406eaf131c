// The datatypes of the Open Inference Protocol v2 and how their elements lie in a binary tensor (little-endian).

// `write` stores 0 <= value < 1 at an offset: floats take it as it is. Integers become 0 or 1, which is a valid
// index into any table that a model may hold.
const bit = (value) => (value < 0.5 ? 0 : 1);
const DATATYPES = {
  BOOL: { bytes: 1, write: (view, at, value) => view.setUint8(at, bit(value)), read: (view, at) => view.getUint8(at) },
  UINT8: { bytes: 1, write: (view, at, value) => view.setUint8(at, bit(value)), read: (view, at) => view.getUint8(at) },
  UINT16: { bytes: 2, write: (view, at, value) => view.setUint16(at, bit(value), true), read: (view, at) => view.getUint16(at, true) },
  UINT32: { bytes: 4, write: (view, at, value) => view.setUint32(at, bit(value), true), read: (view, at) => view.getUint32(at, true) },
  UINT64: { bytes: 8, write: (view, at, value) => view.setUint32(at, bit(value), true), read: (view, at) => wide(view, at, 'getUint32') },
  INT8: { bytes: 1, write: (view, at, value) => view.setInt8(at, bit(value)), read: (view, at) => view.getInt8(at) },
  INT16: { bytes: 2, write: (view, at, value) => view.setInt16(at, bit(value), true), read: (view, at) => view.getInt16(at, true) },
  INT32: { bytes: 4, write: (view, at, value) => view.setInt32(at, bit(value), true), read: (view, at) => view.getInt32(at, true) },
  INT64: { bytes: 8, write: (view, at, value) => view.setUint32(at, bit(value), true), read: (view, at) => wide(view, at, 'getInt32') },
  FP16: { bytes: 2, write: (view, at, value) => view.setUint16(at, half(value), true), read: (view, at) => fromHalf(view.getUint16(at, true)) },
  BF16: { bytes: 2, write: (view, at, value) => view.setUint16(at, bfloat(value), true), read: (view, at) => fromBfloat(view.getUint16(at, true)) },
  FP32: { bytes: 4, write: (view, at, value) => view.setFloat32(at, value, true), read: (view, at) => view.getFloat32(at, true) },
  FP64: { bytes: 8, write: (view, at, value) => view.setFloat64(at, value, true), read: (view, at) => view.getFloat64(at, true) },
};

/** How one datatype is written; throws with the known names when there is no such type. */
export function datatype(name, where) {
  const found = DATATYPES[name];
  if (!found) {
    throw new Error(`${where}: expected a datatype out of ${Object.keys(DATATYPES).join(', ')}, got ${name}`);
  }
  return found;
}

export const elements = (shape) => shape.reduce((count, dim) => count * dim, 1);

// Beyond so many elements a tensor repeats itself: hundreds of clients that make their own would else take the
// processor from the server for seconds. A prime, so that rows differ.
const UNLIKE = 4093;

/** The bytes of a tensor filled from `random`, a function that gives numbers 0 <= x < 1. */
export function randomBytes(name, shape, random) {
  const { bytes, write } = datatype(name, 'random tensor');
  const count = elements(shape);
  const data = new Uint8Array(count * bytes);
  const view = new DataView(data.buffer);
  for (let i = 0; i < Math.min(count, UNLIKE); i++) {
    write(view, i * bytes, random());
  }
  for (let filled = UNLIKE * bytes; filled < data.length; filled *= 2) {
    data.copyWithin(filled, 0, filled);
  }
  return data.buffer;
}

/** The numbers of a binary tensor. */
export function numbers(name, buffer) {
  const { bytes, read } = datatype(name, 'answer');
  const view = new DataView(buffer);
  return Array.from({ length: view.byteLength / bytes }, (_, i) => read(view, i * bytes));
}

/** mulberry32: the same numbers for the same seed on every machine. */
export function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = state;
    x = Math.imul(x ^ (x >>> 15), x | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
}

function wide(view, at, high) {
  return view[high](at + 4, true) * 4294967296 + view.getUint32(at, true);
}

function bits(value) {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, value);
  return view.getUint32(0);
}

const bfloat = (value) => bits(value) >>> 16;

function fromBfloat(stored) {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint16(0, stored);
  return view.getFloat32(0);
}

// For 0 <= value < 1 alone, which is all that `randomBytes` writes; too small for a normal half becomes 0.
function half(value) {
  const single = bits(value);
  const exponent = (single >>> 23) - 112;
  return exponent <= 0 ? 0 : (exponent << 10) | ((single >>> 13) & 0x3ff);
}

function fromHalf(stored) {
  const sign = stored & 0x8000 ? -1 : 1;
  const exponent = (stored >>> 10) & 0x1f;
  const fraction = stored & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
