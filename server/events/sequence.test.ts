import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type Db, openDb } from '../db/pool.ts';
import { placeAll, placeNext } from '../db/sequencer.ts';
import { type FeedBench, openFeedBench } from './feed.fixture.ts';
import { eventSequence } from './sequence.ts';

let bench: FeedBench;
before(async () => {
  bench = await openFeedBench();
});
after(() => bench.drop());

const positions = async () =>
  (await bench.db.query<{ position: number }>('select position from event order by position')).map(
    ({ position }) => position,
  );

test('an event of a transaction that rolls back never exists', async () => {
  await assert.rejects(
    bench.db.transaction(async (tx) => {
      await bench.queue(1, { tx });
      throw new Error('no');
    }),
  );
  assert.equal(await placeNext(bench.db, eventSequence), 0);
});

test('twenty sequencers at once give each event one position, without gaps', async () => {
  await Promise.all(Array.from({ length: 40 }, () => bench.queue()));
  let placed = 0;
  while (placed < 40) {
    const counts = await Promise.all(Array.from({ length: 20 }, () => placeNext(bench.db, eventSequence)));
    placed += counts.reduce((sum, count) => sum + count, 0);
  }
  assert.deepEqual(
    await positions(),
    Array.from({ length: 40 }, (_, index) => index + 1),
  );
});

test('while another node is the sequencer a step gives none and does not wait', async () => {
  const other = openDb(bench.target);
  try {
    await bench.queue();
    await other.transaction(async (tx) => {
      await tx.query(`select from sequencer where name = 'event' for update`);
      assert.equal(await placeNext(bench.db, eventSequence), 0);
    });
    await placeAll(bench.db, eventSequence);
    assert.equal((await positions()).at(-1), 41);
  } finally {
    await other.end();
  }
});

test('a step that fails half-way gives no position, and the next one gives the same ones', async () => {
  await bench.queue();
  const failing: Db = {
    ...bench.db,
    transaction: (work) =>
      bench.db.transaction(async (tx) => {
        await work(tx);
        throw new Error('the node is gone before the commit');
      }),
  };
  await assert.rejects(placeNext(failing, eventSequence), /gone/);
  assert.equal((await positions()).at(-1), null);
  await placeAll(bench.db, eventSequence);
  assert.equal((await positions()).at(-1), 42);
});

test('an event that is deleted with its environment during numbering leaves no gap', async () => {
  const other = openDb(bench.target);
  try {
    const last = (await positions()).at(-1)!;
    await bench.queue(1, { of: bench.prod });
    await bench.queue(2);
    await bench.queue(3);
    await other.transaction(async (tx) => {
      await tx.query('delete from event where environment_id = $1', [bench.prod.environmentId]);
      assert.equal(await placeNext(bench.db, eventSequence), 2);
    });
    await bench.queue(4);
    await placeAll(bench.db, eventSequence);
    assert.deepEqual((await positions()).slice(-3), [last + 1, last + 2, last + 3]);
    const [row] = await bench.db.query<{ last: number }>(
      `select last_position as last from sequencer where name = 'event'`,
    );
    assert.equal(row?.last, last + 3);
  } finally {
    await other.end();
  }
});

test('events of one step have the order of their writes, whatever the clock', async () => {
  await bench.queue(101);
  await bench.queue(102);
  await bench.db.query(
    `update event set created_at = created_at - interval '1 hour' where data ->> 'datasets' = '102'`,
  );
  await placeAll(bench.db, eventSequence);
  const rows = await bench.db.query<{ n: string }>(
    `select data ->> 'datasets' as n from event order by position desc limit 2`,
  );
  assert.deepEqual(
    rows.map(({ n }) => n),
    ['102', '101'],
  );
});

test('a step takes fewer events if each has many endpoints, and all endpoints get their deliveries', async () => {
  const { environmentId } = bench.dev;
  await bench.db.query(
    `insert into endpoint (environment_id, kind, url)
     select $1, 'events', 'https://example.com/' || n from generate_series(1, 49) as n`,
    [environmentId],
  );
  for (let n = 0; n < 120; n += 1) await bench.queue(n);
  assert.equal(await placeNext(bench.db, eventSequence), 50);
  await placeAll(bench.db, eventSequence);
  const [row] = await bench.db.query<{ count: number }>('select count(*) as count from delivery');
  assert.equal(row?.count, 120 * 49);
  await bench.db.query('delete from delivery');
  await bench.db.query('delete from delivery_lane');
  await bench.db.query('delete from endpoint');
});
