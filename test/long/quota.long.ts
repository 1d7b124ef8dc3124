import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { fairness, type Outcome, percentile, simulate } from './quota.ts';

const window = { windowS: 6, perProject: 300, perAccount: 60, connections: 50, greed: 100 };

test('fifty connections that ask for twice the quota share it evenly, one of them greedy', async (t) => {
  const outcome = await simulate({ ...window, perSecond: 2, seconds: 24 });
  tell(t, outcome);
  assert.equal(outcome.refused, 0);
  assert.ok(fairness(outcome.shares) > 0.9);
  // Of 300 in 6 s, 31 cells of 0.2 s hold 300.
  assert.ok(outcome.served > (0.9 * 24 * 300) / 6.2);
});

test('while the modest ask for half of the quota, the greedy one does not delay them', async (t) => {
  const outcome = await simulate({ ...window, perSecond: 0.5, seconds: 24 });
  tell(t, outcome);
  assert.equal(outcome.refused, 0);
  assert.ok(fairness(outcome.shares) > 0.98);
  assert.ok(percentile(outcome.waits, 0.95) < 1000);
});

function tell(t: TestContext, { shares, waits, served, greedyServed }: Outcome): void {
  t.diagnostic(
    [
      `served ${served}, ${greedyServed} of them the greedy one's`,
      `Jain's index ${fairness(shares).toFixed(3)}`,
      `waits p50 ${percentile(waits, 0.5).toFixed(0)} ms, p95 ${percentile(waits, 0.95).toFixed(0)} ms, p99 ${percentile(waits, 0.99).toFixed(0)} ms`,
    ].join('; '),
  );
}
