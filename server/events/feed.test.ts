import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { eventCatalogue, eventTypes } from './event-types.ts';
import { type FeedBench, numbersOf, openFeedBench } from './feed.fixture.ts';
import { readLatest } from './feed.ts';
import { removeOldEvents } from './retention.ts';

let bench: FeedBench | undefined;
let feed: FeedBench;
beforeEach(async () => {
  await bench?.drop();
  bench = feed = await openFeedBench();
});
after(() => bench?.drop());

const queueMany = async (from: number, to: number, given?: Parameters<FeedBench['queue']>[1]) => {
  for (let n = from; n <= to; n += 1) await feed.queue(n, given);
  await feed.place();
};
const reported = eventCatalogue['records.retention_done'].example;
const dayMs = 86_400_000;
const { signal } = new AbortController();
const inDays = (days: number) => ({ now: new Date(Date.now() + days * dayMs), keptDays: 30, signal });

test('pages go on where the one before ended, and an empty one stays there', async () => {
  assert.deepEqual(await feed.read(), { events: [], next: 0, last: 0 });
  await queueMany(1, 5);
  const first = await feed.read(undefined, { limit: 2 });
  assert.deepEqual([numbersOf(first), first.next], [[1, 2], 2]);
  const rest = await feed.read(first.next, { limit: 3 });
  assert.deepEqual([numbersOf(rest), rest.next], [[3, 4, 5], 5]);
  assert.deepEqual(await feed.read(rest.next), { events: [], next: 5, last: 5 });
});

test('events of another environment are not shown, and its positions are good here', async () => {
  await queueMany(1, 2);
  await queueMany(3, 4, { of: feed.prod });
  assert.deepEqual(numbersOf(await feed.read()), [1, 2]);
  assert.deepEqual(numbersOf(await feed.read(0, { of: feed.prod })), [3, 4]);
  assert.deepEqual(await feed.read(4), { events: [], next: 4, last: 4 });
});

test('a reader of some types gets only those, and its cursor passes the other events', async () => {
  await queueMany(1, 3);
  await queueMany(4, 4, { type: 'stale' });
  await queueMany(5, 6);
  const stale = await feed.read(0, { types: ['consumer.stale'] });
  assert.deepEqual([stale.events.map(({ data }) => data.consumer), stale.next], [['4'], 6]);
  const both = await feed.read(1, { types: ['consumer.stale', 'records.retention_done'], limit: 3 });
  assert.deepEqual(
    [both.events.map(({ type }) => type), both.next],
    [['records.retention_done', 'records.retention_done', 'consumer.stale'], 4],
  );
  assert.deepEqual(await feed.read(2, { types: ['connection.created'] }), { events: [], next: 6, last: 6 });
});

test('a position beyond the last one is refused', async () => {
  await queueMany(1, 2);
  await assert.rejects(feed.read(3), { code: 'invalid_cursor', status: 400 });
  assert.deepEqual((await feed.read(2)).events, []);
});

test('positions that were raised after a restore are new to all readers, and followers continue', async () => {
  await queueMany(1, 3);
  const raised = 2 ** 32;
  await feed.db.query(`update sequencer set last_position = last_position + 4294967296 where name = 'event'`);
  await queueMany(4, 5);
  const page = await feed.read(2);
  assert.deepEqual([numbersOf(page), page.next], [[3, 4, 5], raised + 5]);
  // Given out after the backup, to events that are gone.
  assert.deepEqual(numbersOf(await feed.read(70)), [4, 5]);
});

test('events go by age in the order of their positions, and a position before one of them is refused', async () => {
  await queueMany(1, 3);
  assert.equal(await removeOldEvents(feed.db, inDays(29)), 0);
  assert.equal(await removeOldEvents(feed.db, inDays(31)), 3);
  assert.deepEqual(await feed.read(), { events: [], next: 3, last: 3 });
  await queueMany(4, 4);
  for (const after of [0, 1, 2])
    await assert.rejects(feed.read(after), { code: 'cursor_expired', status: 410 });
  assert.deepEqual(numbersOf(await feed.read(3)), [4]);
  assert.deepEqual(numbersOf(await feed.read()), [4]);
});

test('a follower at its end is good for ever, whatever was removed in other environments', async () => {
  await queueMany(1, 1);
  await queueMany(2, 9, { of: feed.prod });
  assert.equal(await removeOldEvents(feed.db, inDays(31)), 9);
  assert.deepEqual(await feed.read(1), { events: [], next: 1, last: 9 });
  await assert.rejects(feed.read(0), { code: 'cursor_expired' });
  await assert.rejects(feed.read(8, { of: feed.prod }), { code: 'cursor_expired' });
  assert.deepEqual(await feed.read(9, { of: feed.prod }), { events: [], next: 9, last: 9 });
});

test('an old event behind a younger one waits for it, so that the remaining events have no gap', async () => {
  await queueMany(1, 4);
  await feed.db.query(`update event set created_at = now() + interval '10 days' where position = 2`);
  assert.equal(await removeOldEvents(feed.db, inDays(31)), 1);
  assert.deepEqual(numbersOf(await feed.read(1)), [2, 3, 4]);
  await assert.rejects(feed.read(0), { code: 'cursor_expired' });
});

test('one that waits for its position stays, however old', async () => {
  await feed.queue(1);
  assert.equal(await removeOldEvents(feed.db, inDays(400)), 0);
  await feed.place();
  assert.deepEqual(numbersOf(await feed.read()), [1]);
});

test('twenty removals at once remove each event once, and more than a step holds', async () => {
  await feed.db.query(
    `insert into event (id, environment_id, type, data, position)
     select gen_random_uuid(), $1, 'records.retention_done', $2, n
     from generate_series(1, 2500) as n`,
    [feed.dev.environmentId, reported],
  );
  await feed.db.query(`update sequencer set last_position = 2500 where name = 'event'`);
  const counts = await Promise.all(Array.from({ length: 20 }, () => removeOldEvents(feed.db, inDays(31))));
  assert.equal(
    counts.reduce((sum, count) => sum + count, 0),
    2500,
  );
  assert.deepEqual(await feed.read(), { events: [], next: 2500, last: 2500 });
});

test('a page costs the same wherever it begins, and for rare types and quiet environments', async () => {
  await feed.db.query(
    `insert into event (id, environment_id, type, data, position)
     select gen_random_uuid(), $1, 'records.retention_done', $2, n
     from generate_series(1, 30000) as n`,
    [feed.dev.environmentId, reported],
  );
  await feed.db.query(`update sequencer set last_position = 30000 where name = 'event'`);
  await feed.db.query('vacuum analyze event');
  // The planner knows of one type and one environment.
  await feed.db.query(`update event set type = 'consumer.stale', data = $1 where position % 10000 = 0`, [
    eventCatalogue['consumer.stale'].example,
  ]);
  const costOf = async (use: (db: Pick<FeedBench['db'], 'query'>) => Promise<unknown>) => {
    let read = 0;
    await use({
      query: async <R extends object>(text: string, values?: readonly unknown[]) => {
        const [row] = await feed.db.query<{ 'QUERY PLAN': [{ Plan: Record<string, number> }] }>(
          `explain (analyze, buffers, timing off, format json) ${text}`,
          values,
        );
        const plan = row!['QUERY PLAN'][0].Plan;
        read = plan['Shared Hit Blocks']! + plan['Shared Read Blocks']!;
        return feed.db.query<R>(text, values);
      },
    });
    return read;
  };
  const cost = (...by: Parameters<FeedBench['read']>) => costOf((db) => feed.readBy(db, ...by));
  const latestOf = (id: string) => (db: Pick<FeedBench['db'], 'query'>) => {
    const connection = { id, integration: undefined };
    return readLatest(db, { of: feed.dev, before: undefined, limit: 50, connection });
  };
  const costs = [
    await cost(0),
    await cost(29_000),
    await cost(30_000),
    await cost(0, { types: ['consumer.stale'] }),
    await cost(0, { types: ['connection.created'] }),
    await cost(0, { types: eventTypes }),
    await cost(0, { of: feed.prod }),
    await cost(0, { of: feed.prod, types: ['consumer.stale'] }),
    await costOf(latestOf('ada-sheets')),
    await costOf(latestOf('none')),
  ];
  assert.ok(Math.max(...costs) < 500, `pages read ${costs.join(', ')} blocks`);
});
