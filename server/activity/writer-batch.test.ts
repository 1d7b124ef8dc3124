import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import type { Tx } from '../db/pool.ts';
import { OperationIds } from './operations.ts';
import { ensureDay } from './partitions.ts';
import { CountNames } from './tally.ts';
import { Batch } from './writer.ts';

const at = Date.UTC(2026, 0, 31, 12);
let database: TestDatabase;
before(async () => {
  database = await openTestDatabase();
  await ensureDay(database.db, at);
});
beforeEach(() => database.db.query('truncate operation, operation_message, operation_count'));
after(() => database.drop());

type Content = 'entries' | 'counts alone';
const contents: Content[] = ['entries', 'counts alone'];

function batchOf(content: Content): Batch {
  const batch = new Batch(new OperationIds(), new CountNames());
  for (let n = 0; n < 3; n += 1) {
    const operation = { environmentId: 1, type: 'proxy', status: 'success' } as const;
    if (content === 'entries') batch.add(operation, at);
    else batch.countOnly(operation, at);
  }
  batch.seal();
  return batch;
}

/** Does not commit. */
async function fail(write: (tx: Tx) => Promise<void>): Promise<void> {
  const failed = database.db.transaction(async (tx) => {
    await write(tx);
    throw new Error('the connection is lost');
  });
  await assert.rejects(failed, /the connection is lost/);
}

/** The transaction, with this ID in place of its own: as if the database had crashed and given out its own again. */
const withId = (tx: Tx, id: string): Tx => ({
  ...tx,
  async query<R extends object>(text: string, values?: readonly unknown[]) {
    const rows = await tx.query<R>(text, values);
    return text.includes('pg_current_xact_id') ? rows.map((row) => ({ ...row, id })) : rows;
  },
});

async function transactionId(): Promise<string> {
  const [row] = await database.db.query<{ id: string }>('select pg_current_xact_id()::text as id');
  return row!.id;
}

for (const content of contents) {
  test(`a batch with ${content} is written once its transaction is committed, and not before`, async () => {
    const { db } = database;
    const batch = batchOf(content);
    assert.equal(await batch.isWritten(db), false);
    await fail((tx) => batch.write(tx));
    assert.equal(await batch.isWritten(db), false);
    await db.transaction(async (tx) => {
      await batch.write(tx);
      await assert.rejects(batch.isWritten(db), { code: 'unavailable' });
    });
    assert.equal(await batch.isWritten(db), true);
  });

  test(`a crash that took the transaction of a batch with ${content} leaves it to be written`, async () => {
    const { db } = database;
    const batch = batchOf(content);
    const unknown = `${Number(await transactionId()) + 1_000_000}`;
    await fail((tx) => batch.write(withId(tx, unknown)));
    assert.equal(await batch.isWritten(db), false);
    await db.transaction((tx) => batch.write(tx));
    assert.equal(await batch.isWritten(db), true);
  });
}

test('entries are not written because another transaction with the same ID was committed', async () => {
  const { db } = database;
  const batch = batchOf('entries');
  const others = await transactionId();
  await fail((tx) => batch.write(withId(tx, others)));
  assert.equal(await batch.isWritten(db), false);
});

test('nor are counts alone, where they were not ready for a commit', async () => {
  const { db } = database;
  const batch = batchOf('counts alone');
  const others = await transactionId();
  const breaking = (tx: Tx): Tx => ({
    ...withId(tx, others),
    query: (text, values) =>
      text.includes('operation_count')
        ? Promise.reject(new Error('the connection is lost'))
        : withId(tx, others).query(text, values),
  });
  await fail((tx) => batch.write(breaking(tx)));
  assert.equal(await batch.isWritten(db), false);
});

test('a number outside the range of its column is logged as the nearest one', async () => {
  const batch = new Batch(new OperationIds(), new CountNames());
  const operation = { environmentId: 1, type: 'proxy', status: 'success' } as const;
  batch.add({ ...operation, httpStatus: 2 ** 40, requests: -(2 ** 40), retries: 3 }, at);
  batch.seal();
  await database.db.transaction((tx) => batch.write(tx));
  assert.deepEqual(await database.db.query('select http_status, requests, retries from operation'), [
    { http_status: 2 ** 31 - 1, requests: -(2 ** 31), retries: 3 },
  ]);
});
