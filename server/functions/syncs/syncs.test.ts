// Slow: it repeats a race many times.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../../test/support/records.ts';
import { destroyConnection } from '../../connections/store/save.ts';
import { AppError } from '../../errors.ts';
import { allowMassDeletes } from './syncs.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

test('held deletions of several models are allowed many times at once, and while their connection is deleted', async () => {
  const models = ['A', 'B', 'C', 'D', 'E', 'F'];
  for (let round = 0; round < 10; round += 1) {
    const connection = await bench.connect();
    for (const model of models) {
      const calls = datasetCalls(bench.db, connection, { model });
      await calls.save(rows(1, 2));
      await calls.set({ massDeleteNumber: 0, massDeleteShare: 0 });
      await calls.startTracking();
      await assert.rejects(calls.endTracking(), { code: 'mass_delete_held' });
    }
    const sync = {
      id: 1,
      functionId: 1,
      connection: connection.id,
      connectionId: 'held',
      name: 'rows',
      variant: 'base',
      models,
    };
    const allow = (order: string[]) =>
      bench.db.transaction((tx) =>
        allowMassDeletes(tx, { sync, allowed: Object.fromEntries(order.map((model) => [model, 1])) }),
      );
    const results = await Promise.allSettled([
      ...Array.from({ length: 20 }, (_, n) => allow(n % 2 === 0 ? models : models.toReversed())),
      bench.db.transaction((tx) => destroyConnection(tx, { id: connection.id, at: new Date() })),
      ...Array.from({ length: 20 }, (_, n) => allow(n % 2 === 0 ? models : models.toReversed())),
    ]);
    for (const result of results)
      if (result.status === 'rejected') {
        assert.ok(result.reason instanceof AppError, result.reason);
        assert.notEqual(result.reason.code, 'unavailable', result.reason.message);
      }
    assert.equal(results[20]?.status, 'fulfilled');
  }
});
