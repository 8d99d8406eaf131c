// The settings that scenarios take from the environment, with their defaults.

const number = (name, fallback) => {
  const given = __ENV[name];
  if (given === undefined || given === '') return fallback;
  const value = Number(given);
  if (!(value > 0)) throw new Error(`${name}: expected a number above 0, got "${given}"`);
  return value;
};

export const MODEL = __ENV.MODEL || 'digits';
export const VUS = number('VUS', 4);
export const DURATION = __ENV.DURATION || '30s';
export const P99_MS = number('P99_MS', 1000);
export const SEED = number('SEED', 1);
export const RATE = number('RATE', 100);
// 0 is none: the model's own.
export const TIMEOUT_MS = __ENV.TIMEOUT_MS ? number('TIMEOUT_MS', 0) : 0;

export const DIMS = (__ENV.DIMS || '')
  .split(',')
  .filter((part) => part !== '')
  .map((part) => {
    if (!/^\s*\d+\s*$/.test(part)) throw new Error(`DIMS: expected whole numbers like "1,320,320", got "${__ENV.DIMS}"`);
    return Number(part);
  });

// No request may fail, no check may fail, and something must have been asked at all.
export const thresholds = {
  http_req_failed: ['rate==0'],
  checks: ['rate==1'],
  'http_reqs{name:infer}': ['count>0'],
  'http_req_duration{name:infer}': [`p(99)<${P99_MS}`],
};

export const summaryTrendStats = ['avg', 'med', 'p(90)', 'p(95)', 'p(99)', 'max'];
