// Slow: a short form of a test of minutes.
// In a process of its own: loads and kills must not change the state of other tests.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fairness, simulate } from './quota.ts';

test('a greedy connection starves no other, and no call reaches the quota of the provider', async () => {
  // Ten calls a second, which any machine makes: it is the quota that they wait for.
  const outcome = await simulate({
    windowS: 3,
    perProject: 30,
    perAccount: 20,
    connections: 8,
    greed: 30,
    perSecond: 2.5,
    seconds: 6,
  });
  assert.equal(outcome.refused, 0);
  assert.ok(fairness(outcome.shares) > 0.9, `${outcome.shares}`);
});
