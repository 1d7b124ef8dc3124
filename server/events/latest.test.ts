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

type Asked = {
  before?: number;
  limit?: number;
  types?: string[];
  connection?: { id: string; integration: string | undefined };
};
const latest = (given: Asked = {}, of = feed.dev) =>
  readLatest(feed.db, {
    of,
    before: given.before,
    limit: given.limit ?? 3,
    types: given.types,
    connection: given.connection,
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

test('of a connection its events alone, page by page, by its integration and by types', async () => {
  await feed.queue(8, { type: 'stale' });
  await feed.queue(9, { type: 'stale', of: feed.prod });
  await feed.place();
  const connection = { id: 'c', integration: undefined };
  const first = await latest({ connection, limit: 1 });
  assert.deepEqual(
    first.events.map(({ data }) => data.consumer),
    ['8'],
  );
  const rest = await latest({ connection, limit: 1, before: first.next! });
  assert.deepEqual([rest.events.map(({ data }) => data.consumer), rest.next], [['6'], undefined]);
  const inProd = await latest({ connection }, feed.prod);
  assert.deepEqual(
    inProd.events.map(({ data }) => data.consumer),
    ['9'],
  );
  const count = async (given: Asked) => (await latest({ connection, ...given })).events.length;
  assert.equal(await count({ connection: { id: 'c', integration: 'i' } }), 2);
  assert.equal(await count({ connection: { id: 'c', integration: 'other' } }), 0);
  assert.equal(await count({ types: ['records.retention_done'] }), 0);
  assert.equal(await count({ types: ['consumer.stale'] }), 2);
});
