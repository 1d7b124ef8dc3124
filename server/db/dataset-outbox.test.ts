import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { countingBlocks } from '../../test/support/blocks.ts';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { readOutbox, removeFromOutbox } from './dataset-outbox.ts';

let database: TestDatabase;

before(async () => {
  database = await openTestDatabase();
});
after(() => database.drop());
beforeEach(() => database.db.query('truncate dataset_outbox'));

test('a step reads and removes the oldest entries, whatever the number of those that wait', async () => {
  const { db } = database;
  const step = async () => {
    const counting = countingBlocks(db);
    const entries = await readOutbox(counting.db, { sequence: 'audit', from: '0', limit: 100 });
    await removeFromOutbox(counting.db, { sequence: 'audit', from: '0', entries });
    return { entries, blocks: counting.reads.reduce((sum, { blocks }) => sum + blocks, 0) };
  };
  const wait = (count: number) =>
    db.query(
      `insert into dataset_outbox (dataset_id, id, sequence, entry, written_in)
       select n % 50, gen_random_uuid(), 'audit', '{"action":"records.pruned"}', n::text::xid8
       from generate_series((select count(*) from dataset_outbox) + 1, $1) as n`,
      [count],
    );
  await wait(1_000);
  await db.query('analyze dataset_outbox');
  const few = await step();
  await wait(30_000);
  await db.query('analyze dataset_outbox');
  const many = await step();
  assert.deepEqual(
    many.entries.map(({ writtenIn }) => writtenIn),
    Array.from({ length: 100 }, (_, n) => String(101 + n)),
  );
  assert.ok(many.blocks < 2 * few.blocks, `${few.blocks} blocks, then ${many.blocks}`);
});

test('entries with the highest transaction ID, as on a cluster, are removed too', async () => {
  const { db } = database;
  await db.query(
    `insert into dataset_outbox (dataset_id, id, sequence, entry, written_in)
     values (1, gen_random_uuid(), 'audit', '{}', '18446744073709551615')`,
  );
  const of = { sequence: 'audit', from: '0' } as const;
  await removeFromOutbox(db, { ...of, entries: await readOutbox(db, { ...of, limit: 1 }) });
  assert.deepEqual(await readOutbox(db, { ...of, limit: 1 }), []);
});

test('entries of transactions that ran at once come in the order of their writes', async () => {
  const { db } = database;
  await db.query(
    `insert into dataset_outbox (dataset_id, id, sequence, entry, written_in)
     select 1, gen_random_uuid(), 'event', to_jsonb(n), (100 - n)::text::xid8
     from generate_series(1, 20) as n`,
  );
  const entries = await readOutbox(db, { sequence: 'event', from: '0', limit: 10 });
  assert.deepEqual(
    entries.map(({ entry }) => entry),
    Array.from({ length: 10 }, (_, n) => String(n + 1)),
  );
  await removeFromOutbox(db, { sequence: 'event', from: '0', entries });
  const left = await readOutbox(db, { sequence: 'event', from: '0', limit: 20 });
  assert.deepEqual(
    left.map(({ entry }) => entry),
    Array.from({ length: 10 }, (_, n) => String(n + 11)),
  );
});
