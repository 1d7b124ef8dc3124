// Slow: its tests take seconds each.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  brand,
  datasetCalls,
  openRecordBench,
  type RecordBench,
  rows,
} from '../../../test/support/records.ts';
import { destroyConnection } from '../../connections/store/save.ts';
import { AppError } from '../../errors.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

const fresh = async () => datasetCalls(bench.db, await bench.connect());
type Calls = Awaited<ReturnType<typeof fresh>>;
const payloads = async (calls: Calls) =>
  (await calls.listAll()).map(({ _trellis_metadata: _, ...payload }) => payload);
const assertCounted = async (calls: Calls) => {
  const { records, deleted, pruned, payload_bytes } = await calls.row();
  assert.deepEqual({ records, deleted, pruned, payload_bytes }, await calls.recount());
};

test('a part is laid over the record at every depth, and arrays and null replace', async () => {
  const calls = await fresh();
  await calls.save([
    { id: 'a', keep: 1, deep: { x: { p: 1, q: 2 }, list: [1, 2, 3] }, gone: 'soon' },
    { id: 'b', x: 1 },
  ]);
  const result = await calls.update([
    {
      id: 'a',
      deep: { x: { q: 3, r: 4 }, list: [9] },
      gone: null,
      [brand.metadataKey]: { cursor: 'forged' },
    },
  ]);
  assert.deepEqual(result, { updatedCount: 1, unchangedCount: 0, missing: [], deleted: [], pruned: [] });
  assert.deepEqual(await payloads(calls), [
    { id: 'b', x: 1 },
    { id: 'a', keep: 1, deep: { x: { p: 1, q: 3, r: 4 }, list: [9] }, gone: null },
  ]);
  const [, a] = await calls.listAll();
  assert.equal(a?._trellis_metadata.last_action, 'UPDATED');
  await assertCounted(calls);
});

test('a part that changes nothing is not written, and a full save of the merged record is unchanged', async () => {
  const calls = await fresh();
  await calls.save([{ id: 'a', x: 1, deep: { y: 2 } }]);
  const before = await calls.listAll();
  assert.equal((await calls.update([{ id: 'a', deep: { y: 2 } }, { id: 'a' }])).unchangedCount, 1);
  assert.deepEqual(await calls.listAll(), before);
  await calls.update([{ id: 'a', deep: { z: 3 } }]);
  assert.equal((await calls.save([{ deep: { z: 3, y: 2 }, x: 1, id: 'a' }])).unchangedCount, 1);
  assert.equal((await calls.row()).last_seq, 2);
});

test('several parts for one id are laid in the order sent, as one change', async () => {
  const calls = await fresh();
  await calls.save([{ id: '1', a: { old: true } }]);
  const result = await calls.update([
    { id: 1, a: 5, b: 1 },
    { id: '1', a: { fresh: true } },
    { id: 1, c: 2 },
  ]);
  assert.equal(result.updatedCount, 1);
  assert.deepEqual(await payloads(calls), [{ id: '1', a: { fresh: true }, b: 1, c: 2 }]);
  assert.equal((await calls.row()).last_seq, 2);
});

test('an update of so many records that a thread seals them is stored, and saves after it are too', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 300));
  const parts = rows(1, 300).map(({ id, n }) => ({ id, twice: n * 2 }));
  assert.equal((await calls.update(parts)).updatedCount, 300);
  assert.equal((await calls.save(rows(1, 300, 'saved'))).updated.length, 300);
  assert.equal((await calls.update(parts)).updatedCount, 300);
  const all = await payloads(calls);
  assert.deepEqual(
    all,
    rows(1, 300, 'saved').map((row) => ({ ...row, twice: row.n * 2 })),
  );
  await assertCounted(calls);
});

test('unknown, deleted and pruned records are left alone and named', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 4));
  await calls.delete('r3');
  await calls.prune(await calls.cursorOf(2));
  const before = await calls.listAll();
  const result = await calls.update(['r2', 'none', 'r3', 'r1'].map((id) => ({ id, text: 'new' })));
  assert.deepEqual(result, {
    updatedCount: 0,
    unchangedCount: 0,
    missing: ['none'],
    deleted: ['r3'],
    pruned: ['r2', 'r1'],
  });
  assert.deepEqual(await calls.listAll(), before);
  assert.equal(
    (
      await calls.update([
        { id: 'r4', text: 'new' },
        { id: 'r1', text: 'new' },
      ])
    ).updatedCount,
    1,
  );
  await assertCounted(calls);
});

test('where nothing was ever saved every id is missing, and no dataset is made', async () => {
  const calls = await fresh();
  assert.deepEqual((await calls.update([{ id: 'a' }])).missing, ['a']);
  assert.equal(await calls.row(), undefined);
});

test('one bad part refuses the call, names it by index and changes nothing', async () => {
  const calls = await fresh();
  await calls.save([{ id: 'a', x: 1, large: 'x'.repeat(5 * 1024 * 1024) }]);
  const cases: [bad: unknown, path: string[], message: RegExp][] = [
    [{ x: 2 }, ['id'], /string or an integer/],
    [{ id: 'a', big: 2 ** 53 }, ['big'], /beyond 2\^53/],
    [null, [], /is an object/],
    [{ id: 'a', more: 'x'.repeat(5 * 1024 * 1024) }, [], /at most 8 MB/],
  ];
  for (const [bad, path, message] of cases) {
    await assert.rejects(calls.update([{ id: 'a', x: 2 }, bad as never]), (error) => {
      assert.ok(error instanceof AppError);
      assert.equal(error.code, 'invalid_record');
      assert.deepEqual(error.errors?.[0]?.path, ['records', '1', ...path]);
      assert.match(error.errors?.[0]?.message ?? '', message);
      return true;
    });
  }
  assert.equal((await calls.list()).records[0]?.x, 1);
});

test('records of more than 16 MB together are updated in one transaction', async () => {
  const calls = await fresh();
  const ids = ['a', 'b', 'c', 'd', 'e'];
  for (const id of ids) await calls.save([{ id, n: 0, large: 'x'.repeat(7 * 1024 * 1024) }]);
  assert.equal((await calls.update(ids.map((id) => ({ id, n: 1 })))).updatedCount, 5);
  assert.equal((await calls.row()).last_seq, 10);
  for (const id of ids) assert.equal((await calls.list({ ids: [id] })).records[0]?.n, 1);
  await assertCounted(calls);
});

test('twenty updates of one record at once all take effect', async () => {
  const calls = await fresh();
  await calls.save([{ id: 'a' }]);
  const results = await Promise.all(
    Array.from({ length: 20 }, (_, n) => calls.update([{ id: 'a', fields: { [`f${n}`]: n } }])),
  );
  assert.ok(results.every(({ updatedCount }) => updatedCount === 1));
  const [record] = await payloads(calls);
  assert.equal(Object.keys(record?.fields as object).length, 20);
  assert.equal((await calls.row()).last_seq, 21);
  await assertCounted(calls);
});

test('updates that race prunes, deletes and saves of the same records leave exact counters', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 20));
  const last = await calls.cursorOf(20);
  const results = await Promise.all(
    Array.from({ length: 20 }, async (_, n) => {
      if (n % 4 === 0) await calls.prune(last, 5);
      else if (n % 4 === 1) await calls.delete(`r${n}`);
      else if (n % 4 === 2) await calls.save(rows(n, n + 3, `save ${n}`));
      else return calls.update(rows(1, 20).map(({ id }) => ({ id, [`u${n}`]: true })));
      return undefined;
    }),
  );
  for (const result of results.filter((result) => result !== undefined)) {
    const { updatedCount, unchangedCount, missing, deleted, pruned } = result;
    assert.equal(updatedCount + unchangedCount + missing.length + deleted.length + pruned.length, 20);
  }
  await assertCounted(calls);
  for (const record of await calls.listAll()) {
    // What was laid over a record kept the rest of it.
    if (record._trellis_metadata.pruned_at === null) assert.equal(typeof record.n, 'number');
  }
});

test('nothing is updated for a connection that is deleted', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 1));
  await bench.db.transaction((tx) => destroyConnection(tx, { id: connection.id, at: new Date() }));
  for (const call of [() => calls.update([{ id: 'r1', x: 1 }]), () => calls.delete('r1')]) {
    await assert.rejects(call, (error) => error instanceof AppError && error.code === 'unknown_connection');
  }
});
