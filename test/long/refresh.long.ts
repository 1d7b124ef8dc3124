import assert from 'node:assert/strict';
import { test } from 'node:test';
import { expireInTurn } from './refresh.ts';

const many = {
  processes: 8,
  connections: 100,
  rounds: 20,
  timeoutMs: 3000,
  storeMs: 1500,
  shortPauseMs: 1000,
};

for (const rotation of ['none', 'until_used', 'single_use'] as const) {
  test(`2,000 expiries on eight paused and killed processes are one refresh each (rotation: ${rotation})`, async (t) => {
    // A process that stands still for longer than its lease has lost its answer, as far as others can tell.
    const longPauseMs = rotation === 'single_use' ? undefined : 6000;
    const outcome = await expireInTurn({ ...many, rotation, seed: 7, longPauseMs });
    t.diagnostic(JSON.stringify(outcome));
    assert.equal(outcome.expiries, 2000);
    assert.ok(outcome.slow > 50 && outcome.kills > 5 && outcome.lost + outcome.died > 0);
    if (rotation !== 'single_use') assert.equal(outcome.died, 0);
  });
}
