import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openFeedBench } from '../../server/events/feed.fixture.ts';
import { followThroughKills, readAll } from './events.ts';

test('twenty kills of the sequencing node, two seconds apart, and a follower that misses no event', async () => {
  const bench = await openFeedBench();
  const { written, missed, seen } = await followThroughKills(bench, { kills: 20, everyMs: 2_000, seed: 1 });
  assert.ok(written > 1_000);
  assert.deepEqual(missed, []);
  assert.equal(seen.length, written);
  assert.deepEqual(seen, await readAll(bench));
  await bench.drop();
});
