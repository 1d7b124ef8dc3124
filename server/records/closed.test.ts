import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../test/support/records.ts';
import { destroyConnection } from '../connections/store/save.ts';
import type { Queryable } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { acknowledge } from './retention/consumers.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

const isRefused = (error: unknown) => error instanceof AppError && error.code === 'unknown_connection';

/** Everything that is kept of the connection's datasets. */
async function contentOf(q: Queryable, connection: number): Promise<unknown> {
  const datasets = `select id from dataset where connection = $1`;
  const [content] = await q.query(
    `select
       (select array_agg(to_jsonb(dataset) order by id) from dataset where connection = $1) as datasets,
       (select count(*) from record where dataset_id in (${datasets})) as records,
       (select count(*) from payload where dataset_id in (${datasets})) as payloads,
       (select count(*) from tracked where dataset_id in (${datasets})) as marks,
       (select count(*) from prune where dataset_id in (${datasets})) as prunes,
       (select array_agg(to_jsonb(consumer) order by id) from consumer where dataset_id in (${datasets})) as consumers`,
    [connection],
  );
  return content;
}

test('a closed dataset accepts no write, also while the row of its connection is there', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 5));
  await calls.startTracking();
  const cursor = await calls.cursorOf(3);
  await bench.db.query('update dataset set closed = true where connection = $1', [connection.id]);
  const before = await contentOf(bench.db, connection.id);
  const consumer = { connection: connection.id, model: 'Row', variant: 'base', name: 'reader' };
  const writes = [
    () => calls.save(rows(5, 9)),
    () => calls.update([{ id: 'r1', n: 0 }]),
    () => calls.delete('r1'),
    () => calls.prune(cursor),
    () => calls.set({ keepPrevious: true }),
    () => calls.startTracking(),
    () => calls.endTracking('mass_delete'),
    () => calls.dropTracking(),
    () => acknowledge(bench.db, { ...consumer, cursor, by: 'service' }),
  ];
  for (const write of writes) await assert.rejects(write, isRefused, String(write));
  assert.deepEqual(await contentOf(bench.db, connection.id), before);
});

test('of twenty writes at once with the deletion of their connection, none follows it', async () => {
  for (const at of [0, 4, 8, 12, 16, 20]) {
    const connection = await bench.connect();
    const calls = datasetCalls(bench.db, connection);
    await calls.save(rows(1, 40));
    const consumer = { connection: connection.id, model: 'Row', variant: 'base' };
    const cursors = await Promise.all([10, 20, 30, 40].map(calls.cursorOf));
    const writes: (() => Promise<unknown>)[] = [0, 1, 2, 3].flatMap((n) => [
      () => calls.save(rows(n * 10 + 1, n * 10 + 5, 'other')),
      () => datasetCalls(bench.db, connection, { model: `New${n}` }).save(rows(1, 5)),
      () => calls.prune(cursors[n]!, 5),
      () => acknowledge(bench.db, { ...consumer, name: `reader${n}`, cursor: cursors[n], by: 'service' }),
      () => calls.delete(`r${n * 10 + 9}`),
    ]);
    let left: unknown;
    writes.splice(at, 0, () =>
      bench.db.transaction(async (tx) => {
        await destroyConnection(tx, { id: connection.id, at: new Date() });
        left = await contentOf(tx, connection.id);
      }),
    );
    const results = await Promise.allSettled(writes.map((write) => write()));
    assert.equal(results[at]?.status, 'fulfilled');
    for (const result of results) if (result.status === 'rejected') assert.ok(isRefused(result.reason));
    assert.deepEqual(await contentOf(bench.db, connection.id), left);
    const open = 'select from dataset where connection = $1 and not closed';
    assert.deepEqual(await bench.db.query(open, [connection.id]), []);
  }
});
