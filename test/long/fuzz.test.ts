// Slow: a short form of a test of minutes.
// In a process of its own: loads and kills must not change the state of other tests.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fuzz } from './fuzz.ts';

test('800 spoiled requests get no 5xx and no secret, and leave the service whole', async (t) => {
  const { statuses, faults, broken } = await fuzz({ requests: 800, seed: 26 });
  t.diagnostic(JSON.stringify(statuses));
  assert.deepEqual(faults, []);
  assert.deepEqual(broken, []);
  // Some requests succeed; otherwise the test would have tried only authentication and validation.
  assert.ok((statuses[200] ?? 0) > 50, JSON.stringify(statuses));
});
