import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { asOwnerOfAudit, placeEntries } from '../../../test/support/audit.ts';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../../test/support/records.ts';
import type { Db } from '../../db/pool.ts';
import { acknowledge } from './consumers.ts';
import { setPolicy } from './policy.ts';
import { runRetention } from './retention.ts';

let bench: RecordBench;
let environmentId: number;
before(async () => {
  bench = await openRecordBench();
  const [row] = await bench.db.query<{ id: number }>(
    `select id from environment where name = 'records-test'`,
  );
  environmentId = (row as { id: number }).id;
});
after(() => bench.end());
beforeEach(() =>
  asOwnerOfAudit(bench.db, [
    'truncate retention, retained, event, audit, dataset_outbox, record, payload, dataset cascade',
  ]),
);

const day = 86_400_000;
const inDays = (days: number) => new Date(Date.now() + days * day + 60_000);

/** A dataset whose payloads are due from tomorrow on. */
async function dueTomorrow(count: number) {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, count));
  await setPolicy(
    bench.db,
    { environmentId, integrationKey: undefined },
    { pruneAfterDays: 1, removeTombstonesAfterDays: null, waitForConsumers: true },
  );
  return { calls, name: { connection: connection.id, model: 'Row', variant: 'base' } };
}

/** The database, whose transactions are counted and may be refused. */
function watched(refuse: (nth: number) => boolean): Db {
  let transactions = 0;
  return {
    ...bench.db,
    records: undefined,
    async transaction(work, mode) {
      transactions += 1;
      if (refuse(transactions)) throw new Error(`transaction ${transactions} was refused`);
      return bench.db.transaction(work, mode);
    },
  };
}

const reported = async () =>
  (
    await bench.db.query<{ data: Record<string, number> }>(
      `select data from event where type = 'records.retention_done' order by id`,
    )
  ).map(({ data }) => data);
const stepCounts = async () => {
  await placeEntries(bench.db);
  return (
    await bench.db.query<{ count: number }>(
      `select (details ->> 'count')::integer as count from audit where action = 'records.pruned' order by id`,
    )
  ).map(({ count }) => count);
};

test('the next run reports once what a run removed before it was cut off', async () => {
  const { calls } = await dueTomorrow(1200);
  const { payload_bytes } = await calls.row();
  // Stale consumers, what is due, one step; then nothing comes through any more.
  await assert.rejects(
    runRetention(
      watched((nth) => nth > 3),
      { now: inDays(2) },
    ),
    AggregateError,
  );
  assert.deepEqual([await stepCounts(), await reported()], [[500], []]);
  await runRetention(bench.db, { now: inDays(2) });
  assert.deepEqual(await reported(), [
    { datasets: 1, pruned: 1200, bytes: payload_bytes, tombstones_removed: 0 },
  ]);
  await runRetention(bench.db, { now: inDays(2) });
  assert.equal((await reported()).length, 1);
});

test('also where the next one finds nothing left to do', async () => {
  await dueTomorrow(100);
  // The step, the look that finds nothing more, twice; then the event fails.
  await assert.rejects(
    runRetention(
      watched((nth) => nth > 5),
      { now: inDays(2) },
    ),
    AggregateError,
  );
  assert.deepEqual([await stepCounts(), await reported()], [[100], []]);
  await runRetention(bench.db, { now: inDays(2) });
  assert.deepEqual(
    (await reported()).map(({ pruned }) => pruned),
    [100],
  );
});

test('consumers that cannot be looked through keep nothing else from going', async () => {
  const { calls } = await dueTomorrow(10);
  await assert.rejects(
    runRetention(
      watched((nth) => nth === 1),
      { now: inDays(2) },
    ),
    AggregateError,
  );
  assert.equal((await calls.row()).pruned, 10);
  assert.deepEqual(
    (await reported()).map(({ pruned }) => pruned),
    [10],
  );
});

test('a step that held the lock for long is followed by one of half as many records, and back when they are quick', async () => {
  await dueTomorrow(2000);
  let time = 0;
  // Milliseconds each step takes: the clock is looked at before a transaction, under the lock, and after it.
  const durations = [100, 30, 20, 1];
  let looks = 0;
  const clock = () => {
    looks += 1;
    if (looks % 3 === 0) time += durations.shift() ?? 1;
    return time;
  };
  await runRetention(bench.db, { now: inDays(2), clock });
  assert.deepEqual(await stepCounts(), [500, 250, 125, 125, 250, 500, 250]);
});

test("the event for a stale consumer has the consumer's own cursor", async () => {
  const { calls, name } = await dueTomorrow(4);
  await calls.delete('r1');
  await setPolicy(
    bench.db,
    { environmentId, integrationKey: undefined },
    { pruneAfterDays: null, removeTombstonesAfterDays: 1, waitForConsumers: true },
  );
  await runRetention(bench.db, { now: inDays(2) });
  // Begun after a tombstone went, so its cursor says since when it reads.
  const [record] = (await calls.list({ limit: 1 })).records;
  const cursor = record?._trellis_metadata.cursor;
  assert.equal(
    (await acknowledge(bench.db, { by: 'service', ...name, name: 'late', cursor })).cursor,
    cursor,
  );
  await runRetention(bench.db, { now: inDays(31) });
  await placeEntries(bench.db);
  const [event] = await bench.db.query<{ data: { cursor: string } }>(
    `select data from event where type = 'consumer.stale'`,
  );
  assert.equal(event?.data.cursor, cursor);
});
