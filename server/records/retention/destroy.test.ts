import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { placeEntries } from '../../../test/support/audit.ts';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../../test/support/records.ts';
import { destroyConnection } from '../../connections/store/save.ts';
import { destroyOrphans } from './destroy.ts';
import { recordJobs } from './retention.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

test('all rows of a deleted connection go, over gaps of any width, and no row of another', async () => {
  const [doomed, kept] = [await bench.connect(), await bench.connect()];
  const [gone, other] = [datasetCalls(bench.db, doomed), datasetCalls(bench.db, kept)];
  await gone.save(rows(1, 2500));
  await gone.prune(await gone.cursorOf(100));
  const { id } = await gone.row();
  await bench.db.query('update dataset set last_seq = last_seq + 4294967296 where id = $1', [id]);
  await gone.save(rows(2401, 2600, 'second'));
  await datasetCalls(bench.db, doomed, { variant: 'other' }).save(rows(1, 3));
  await other.save(rows(1, 10));
  await other.prune(await other.cursorOf(5));
  const before = await other.list();

  await bench.db.transaction((tx) => destroyConnection(tx, { id: doomed.id, at: new Date() }));
  assert.equal(await destroyOrphans(bench.db), 2);
  const [left] = await bench.db.query(
    `select
       (select count(*) from record where dataset_id = $1)
       + (select count(*) from payload where dataset_id = $1)
       + (select count(*) from prune where dataset_id = $1)
       + (select count(*) from dataset where connection = $2) as rows`,
    [id, doomed.id],
  );
  assert.deepEqual(left, { rows: 0 });
  assert.deepEqual(await other.list(), before);
  assert.equal(await destroyOrphans(bench.db), 0);
});

test('the audit log has each destruction once, also when many run at once or one was stopped', async () => {
  const doomed = await bench.connect();
  const calls = datasetCalls(bench.db, doomed, { model: 'Noted' });
  await calls.save(rows(1, 20));
  await calls.prune(await calls.cursorOf(5));
  const { payload_bytes } = await calls.row();
  await bench.db.transaction((tx) => destroyConnection(tx, { id: doomed.id, at: new Date() }));
  assert.equal(await destroyOrphans(bench.db, { signal: AbortSignal.abort() }), 0);
  await Promise.all(Array.from({ length: 20 }, () => destroyOrphans(bench.db)));
  await placeEntries(bench.db);
  const entries = await bench.db.query<{ actor: string; details: Record<string, unknown> }>(
    `select actor, details from audit where action = 'records.destroyed' and details->>'model' = 'Noted'`,
  );
  assert.equal(entries.length, 1);
  const { count, bytes } = entries[0]?.details ?? {};
  assert.deepEqual([entries[0]?.actor, count, bytes], ['service', 20, payload_bytes]);
});

test('two nodes may destroy the same datasets at once', async () => {
  const doomed = await bench.connect();
  await datasetCalls(bench.db, doomed).save(rows(1, 5000));
  await bench.db.transaction((tx) => destroyConnection(tx, { id: doomed.id, at: new Date() }));
  await Promise.all([destroyOrphans(bench.db), destroyOrphans(bench.db), destroyOrphans(bench.db)]);
  const [left] = await bench.db.query('select count(*) as datasets from dataset where connection = $1', [
    doomed.id,
  ]);
  assert.deepEqual(left, { datasets: 0 });
});

test('an integration can go with its deleted connections before their datasets do', async () => {
  const doomed = await bench.connect();
  const calls = datasetCalls(bench.db, doomed);
  await calls.save(rows(1, 3));
  const { id } = await calls.row();
  await bench.db.transaction((tx) => destroyConnection(tx, { id: doomed.id, at: new Date() }));
  await bench.db.query('delete from connection where id = $1', [doomed.id]);
  await assert.rejects(calls.save(rows(1, 3)), { code: 'unknown_connection' });
  assert.equal(await destroyOrphans(bench.db), 1);
  const [left] = await bench.db.query('select count(*) as records from record where dataset_id = $1', [id]);
  assert.deepEqual(left, { records: 0 });
});

test('the datasets of connections that an older node has deleted are found once', async () => {
  const [deleted, gone, kept] = [await bench.connect(), await bench.connect(), await bench.connect()];
  for (const connection of [deleted, gone, kept]) await datasetCalls(bench.db, connection).save(rows(1, 3));
  await bench.db.query('update connection set data_key = null, deleted_at = now() where id = $1', [
    deleted.id,
  ]);
  await bench.db.query('delete from connection where id = $1', [gone.id]);
  const job = recordJobs(bench.db).find(({ name }) => name === 'records.destroy-orphans')!;
  await job.run({}, new AbortController().signal);
  const left = await bench.db.query('select connection from dataset where connection = any($1)', [
    [deleted.id, gone.id, kept.id],
  ]);
  assert.deepEqual(left, [{ connection: kept.id }]);
});
