// Slow: a short form of a test of minutes.
// In a process of its own: loads and kills must not change the state of other tests.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { followAll } from './sheets.ts';

test('many tabs of one file and a larger sheet wait for the reads of their account, and none fails', async () => {
  const { tabs, large, refused, tookS } = await followAll({ tabs: 8, rows: 2_000, reads: 9, windowS: 1 });
  assert.deepEqual(
    [...tabs, large].map(({ state, counts, error }) => [state, counts.Row?.added, error]),
    [...tabs.map(() => ['succeeded', 10, null]), ['succeeded', 2_000, null]],
  );
  assert.equal(refused, 0);
  // Twenty-seven reads, of which nine fit into a second.
  assert.ok(tookS > 1, `${tookS}`);
});
