// Slow: a short form of a test of minutes.
// In a process of its own: loads and kills must not change the state of other tests.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { openRecordBench } from '../support/records.ts';
import { follow, recordFeed, timeFeed } from './follower.ts';

const bench = await openRecordBench();
after(() => bench.end());

test('a client that follows the cursor ends up with the stored records, whatever eight pausing writers do', async () => {
  for (let seed = 1; seed <= 4; seed += 1)
    assert.deepEqual(await follow(await recordFeed(bench), seed), [], `seed ${seed}`);
});

test('the same test finds what a feed ordered by time misses', async () => {
  const missed: string[] = [];
  for (let seed = 1; seed <= 20 && missed.length === 0; seed += 1)
    missed.push(...(await follow(await timeFeed(bench), seed)));
  assert.notEqual(missed.length, 0);
});
