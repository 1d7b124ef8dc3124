import assert from 'node:assert/strict';
import { test } from 'node:test';
import { followAll } from './sheets.ts';

// What Google gives: an account has 60 reads a minute.
const load = { tabs: 100, rows: 50_000, reads: 60, windowS: 60 };

test('a hundred tabs of one file and a sheet of 50,000 rows share 60 reads a minute, and none fails', async (t) => {
  const { tabs, large, refused, tookS } = await followAll(load);
  t.diagnostic(`${tabs.length + 1} runs in ${tookS.toFixed(0)} s, ${refused} calls refused by the provider`);
  assert.deepEqual(
    [...tabs, large].map(({ state, counts, error }) => [state, counts.Row?.added, error]),
    [...tabs.map(() => ['succeeded', 10, null]), ['succeeded', load.rows, null]],
  );
  assert.equal(refused, 0);
});
