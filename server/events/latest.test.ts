import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type FeedBench, openFeedBench } from './feed.fixture.ts';
import { readLatest } from './feed.ts';

let feed: FeedBench;
before(async () => {
  feed = await openFeedBench();
  for (let n = 1; n <= 5; n += 1) await feed.queue(n);
  await feed.queue(6, { type: 'stale' });
  await feed.queue(7, { of: feed.prod });
  await feed.place();
});
after(() => feed?.drop());

const latest = (given: { before?: number; limit?: number; types?: string[] } = {}) =>
  readLatest(feed.db, {
    of: feed.dev,
    before: given.before,
    limit: given.limit ?? 3,
    types: given.types,
  });

test('the newest events come first, page by page, and the last page is marked', async () => {
  const first = await latest();
  assert.deepEqual(
    first.events.map(({ data }) => data.consumer ?? data.datasets),
    ['6', 5, 4],
  );
  const rest = await latest({ before: first.next! });
  assert.deepEqual([rest.events.map(({ data }) => data.datasets), rest.next], [[3, 2, 1], undefined]);
});

test('of some types those alone, and nothing of another environment', async () => {
  const stale = await latest({ types: ['consumer.stale'] });
  assert.deepEqual([stale.events.map(({ type }) => type), stale.next], [['consumer.stale'], undefined]);
  const both = await latest({ types: ['consumer.stale', 'records.retention_done'], limit: 2 });
  assert.deepEqual(
    both.events.map(({ type }) => type),
    ['consumer.stale', 'records.retention_done'],
  );
  assert.deepEqual((await latest({ limit: 50 })).events.length, 6);
});
