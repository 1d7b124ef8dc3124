import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fairness, simulate } from './quota.ts';

test('a greedy connection starves nobody, and no call meets the quota of the provider', async () => {
  const outcome = await simulate({
    windowS: 3,
    perProject: 90,
    perAccount: 60,
    connections: 20,
    greed: 30,
    perSecond: 2.5,
    seconds: 5,
  });
  assert.equal(outcome.refused, 0);
  assert.ok(fairness(outcome.shares) > 0.9, `${fairness(outcome.shares)}`);
});
