import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { openRecordBench } from '../support/records.ts';
import { follow, recordFeed } from './follower.ts';

const bench = await openRecordBench();
after(() => bench.end());

test('two hundred seeds: a client that follows the cursor ends up with the stored records', async () => {
  for (let seed = 1; seed <= 200; seed += 1)
    assert.deepEqual(await follow(await recordFeed(bench), seed), [], `seed ${seed}`);
});
