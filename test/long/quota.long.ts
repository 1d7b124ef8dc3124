import assert from 'node:assert/strict';
import { test } from 'node:test';
import { percentile } from '../support/percentile.ts';
import { fairness, simulateProcesses } from './quota.ts';

// Ten times what Google gives, so that a minute has enough calls to be counted; the window is Google's.
const limits = { perProject: 3000, perAccount: 600, connections: 50, greed: 100 };
/** Of the quota, what all but the greedy one ask for together: with the greedy one it is more than there is. */
const share = 0.7;
/** More than a window. */
const seconds = 64;
/** A cell is 2 s of a minute: who has to wait for one gets a token of this one, the next or the one after. */
const maxP95Ms = 4_000;

test('fifty connections on two processes share a quota that one greedy connection would use up', async (t) => {
  const perSecond = (limits.perProject * share) / 60 / (limits.connections - 1);
  const { refused, shares, waits, served, greedyServed } = await simulateProcesses({
    ...limits,
    perSecond,
    seconds,
  });
  t.diagnostic(
    [
      `served ${served}, ${greedyServed} of them the greedy one's`,
      `refused by the provider ${refused}`,
      `Jain's index ${fairness(shares).toFixed(3)}`,
      `waits p50 ${percentile(waits, 0.5).toFixed(0)} ms, p95 ${percentile(waits, 0.95).toFixed(0)} ms, most ${percentile(waits, 1).toFixed(0)} ms`,
    ].join('; '),
  );
  assert.equal(refused, 0);
  assert.ok(served > 0.9 * limits.perProject, 'nearly all of the quota is used');
  assert.ok(fairness(shares) > 0.9);
  assert.ok(percentile(waits, 0.95) < maxP95Ms);
});
