// Slow: a short form of a test of minutes.
// In a process of its own: loads and kills must not change the state of other tests.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { keepPlacing } from '../../server/db/sequencer.ts';
import { type FeedBench, openFeedBench } from '../../server/events/feed.fixture.ts';
import { eventSequence } from '../../server/events/sequence.ts';
import { feedReader, followThroughKills, followWriters, readAll, timeReader } from './events.ts';

let bench: FeedBench;
beforeEach(async () => {
  bench = await openFeedBench();
});
afterEach(() => bench.drop());

/** Over after this many transactions, of all writers. */
function afterWrites(count: number): () => boolean {
  let asked = 0;
  return () => {
    asked += 1;
    return asked > count;
  };
}

test('a follower of eight pausing writers misses no event, and none appears behind one it has seen', async () => {
  const onError = (error: unknown) => {
    throw error;
  };
  const sequencers = [1, 2].map(() =>
    keepPlacing(bench.db, { sequences: [eventSequence], everyMs: 5, onError }),
  );
  const { written, missed, seen } = await followWriters(bench, {
    read: feedReader(bench),
    isOver: afterWrites(300),
    seed: 1,
  });
  for (const sequencer of sequencers) await sequencer.stop();
  assert.deepEqual(missed, []);
  assert.equal(seen.length, written);
  assert.deepEqual(seen, await readAll(bench));
});

test('the same where the node that gives positions is killed in the middle of it, again and again', async () => {
  const { written, missed, seen } = await followThroughKills(bench, { kills: 4, everyMs: 100, seed: 2 });
  assert.deepEqual(missed, []);
  assert.equal(seen.length, written);
  assert.deepEqual(seen, await readAll(bench));
});

test('the same test finds what a feed ordered by time misses', async () => {
  const { missed } = await followWriters(bench, {
    read: timeReader(bench),
    isOver: afterWrites(150),
    seed: 3,
  });
  assert.notEqual(missed.length, 0);
});
