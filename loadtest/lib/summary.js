// What a run says at its end: a table for people, and the same figures as JSON in the file SUMMARY names.

import { URL } from './v2.js';

/** For a scenario to export as `handleSummary`; `vus` is how many clients it runs at a time. */
export const summary = (scenario, model, vus) => (data) => {
  const figures = { scenario, url: URL, model, vus, ...collect(data) };
  const files = { stdout: table(figures) };
  if (__ENV.SUMMARY) files[__ENV.SUMMARY] = `${JSON.stringify(figures, null, 2)}\n`;
  return files;
};

function collect({ metrics, state }) {
  const value = (metric, field) => (metrics[metric] ? metrics[metric].values[field] : 0);
  const seconds = state.testRunDurationMs / 1000;
  const requests = value('http_reqs{name:infer}', 'count');
  // Without a request there is no latency, and a 0 would look like a very good one.
  const latency = (field) => (requests ? value('http_req_duration{name:infer}', field) : null);
  return {
    seconds,
    requests,
    requests_per_second: value('http_reqs{name:infer}', 'rate'),
    // A Rate counts as "passes" the requests for which it was true: those that failed.
    failed_requests: value('http_req_failed', 'passes'),
    failed_checks: value('checks', 'fails'),
    latency_ms: {
      mean: latency('avg'),
      p50: latency('med'),
      p90: latency('p(90)'),
      p95: latency('p(95)'),
      p99: latency('p(99)'),
      max: latency('max'),
    },
    sent_bytes: value('data_sent', 'count'),
    received_bytes: value('data_received', 'count'),
    thresholds: verdicts(metrics),
  };
}

function verdicts(metrics) {
  const out = {};
  for (const [name, { thresholds }] of Object.entries(metrics)) {
    for (const [bound, { ok }] of Object.entries(thresholds || {})) out[`${name} ${bound}`] = ok;
  }
  return out;
}

function table(f) {
  const ms = (value) => (value === null ? '-' : `${value.toFixed(3)} ms`);
  const mb = (value) => `${(value / 1e6).toFixed(2)} MB (${(value / 1e6 / f.seconds).toFixed(2)} MB/s)`;
  const rows = [
    ['requests', `${f.requests}`],
    ['rate', `${f.requests_per_second.toFixed(1)} /s`],
    ['failed requests', `${f.failed_requests}`],
    ['failed checks', `${f.failed_checks}`],
    ...Object.entries(f.latency_ms).map(([name, value]) => [`latency ${name}`, ms(value)]),
    ['to the server', mb(f.sent_bytes)],
    ['from the server', mb(f.received_bytes)],
    ...Object.entries(f.thresholds).map(([name, ok]) => [ok ? 'held' : 'BROKEN', name]),
  ];
  const lines = rows.map(([name, value]) => `  ${name.padEnd(16)} ${value}`);
  return `\n${f.scenario}: ${f.model} at ${f.url}, ${f.vus} at a time, ${f.seconds.toFixed(1)} s\n${lines.join('\n')}\n`;
}
