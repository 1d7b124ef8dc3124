// FUNCTION_CONNECTIONS and FUNCTION_SECONDS say how many and how long: 1000 and 600.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runMany } from './functions.ts';

const connections = Number(process.env.FUNCTION_CONNECTIONS ?? 1_000);
const seconds = Number(process.env.FUNCTION_SECONDS ?? 600);

test(`${connections} connections are synced once a minute for ${seconds} s`, async (t) => {
  const outcome = await runMany({ connections, seconds, tell: (line) => t.diagnostic(line) });
  t.diagnostic(JSON.stringify(outcome));
  const { due, otherwise, overlaps, delayMs, rssMb } = outcome;
  assert.deepEqual([otherwise, overlaps], [0, 0]);
  // The first minute is not whole: it begins with nothing under way.
  assert.ok(due >= connections * (seconds / 60 - 1), `${due} were due`);
  assert.ok(delayMs.p95 < 60_000, `p95 ${delayMs.p95} ms`);
  assert.ok(rssMb.late <= rssMb.early * 1.1, `${rssMb.early} MB grew to ${rssMb.late} MB`);
});
