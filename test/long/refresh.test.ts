// Slow: a short form of a test of minutes.
// In a process of its own: loads and kills must not change the state of other tests.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { expireInTurn } from './refresh.ts';

/** As long as a process that starts beside others may stand still. */
const patience = { timeoutMs: 2_400, storeMs: 3_000 };
const few = { processes: 3, connections: 20, rounds: 2, shortPauseMs: 300, ...patience };

for (const rotation of ['none', 'until_used', 'single_use'] as const) {
  test(`forty expiries on paused and killed processes are one refresh each (rotation: ${rotation})`, async () => {
    const { expiries, accepted, lost, slow } = await expireInTurn({
      ...few,
      rotation,
      seed: 1,
      longPauseMs: undefined,
    });
    assert.equal(expiries, 40);
    assert.equal(accepted, expiries + lost);
    assert.ok(slow > 0);
  });
}
