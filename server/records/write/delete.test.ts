import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../../test/support/records.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

const fresh = async () => datasetCalls(bench.db, await bench.connect());
type Calls = Awaited<ReturnType<typeof fresh>>;
const assertCounted = async (calls: Calls) => {
  const { records, deleted, pruned, payload_bytes } = await calls.row();
  assert.deepEqual({ records, deleted, pruned, payload_bytes }, await calls.recount());
};

test('a deleted record moves behind all other records and keeps its last payload', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 3));
  assert.deepEqual(await calls.delete('r2', 'r1', 'r2'), { count: 2, alreadyDeleted: [], missing: [] });
  const all = await calls.listAll();
  assert.deepEqual(
    all.map(({ id, n, text, _trellis_metadata: { last_action } }) => [id, n, text, last_action]),
    [
      ['r3', 3, 'first', 'ADDED'],
      ['r2', 2, 'first', 'DELETED'],
      ['r1', 1, 'first', 'DELETED'],
    ],
  );
  for (const { _trellis_metadata: metadata } of all.slice(1)) {
    assert.equal(metadata.deleted_at, metadata.last_modified_at);
    assert.ok(metadata.deleted_at !== null && metadata.deleted_at > metadata.first_seen_at);
  }
  assert.deepEqual(
    (await calls.list({ actions: ['DELETED', 'ADDED'] })).records.map(({ id }) => id),
    ['r3', 'r2', 'r1'],
  );
  await assertCounted(calls);
});

test('deleting again changes nothing, and unknown ids are reported, not invented', async () => {
  const calls = await fresh();
  assert.deepEqual(await calls.delete('a'), { count: 0, alreadyDeleted: [], missing: ['a'] });
  assert.equal(await calls.row(), undefined);
  await calls.save(rows(1, 2));
  await calls.delete('r1');
  const before = [await calls.listAll(), await calls.row()];
  assert.deepEqual(await calls.delete('r1', 'none'), { count: 0, alreadyDeleted: ['r1'], missing: ['none'] });
  assert.deepEqual([await calls.listAll(), await calls.row()], before);
});

test('a deleted record that is saved again is added, with a new first_seen_at, also with equal content', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 1));
  const [before] = await calls.listAll();
  await calls.delete('r1');
  const result = await calls.save(rows(1, 1));
  assert.deepEqual([result.added, result.unchangedCount], [['r1'], 0]);
  const [again] = await calls.listAll();
  assert.equal(again?._trellis_metadata.last_action, 'ADDED');
  assert.equal(again?._trellis_metadata.deleted_at, null);
  assert.ok(String(again?._trellis_metadata.first_seen_at) > String(before?._trellis_metadata.first_seen_at));
  await assertCounted(calls);
});

test('a pruned record that is deleted stays pruned since the same time, and comes back when it is saved', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 4));
  await calls.prune(await calls.cursorOf(2));
  await calls.save(rows(1, 1));
  await calls.prune(await calls.cursorOf(3));
  const prunedAt = async () =>
    Object.fromEntries((await calls.listAll()).map(({ id, _trellis_metadata: m }) => [id, m.pruned_at]));
  const before = await prunedAt();
  assert.equal(before.r1, before.r3);
  assert.notEqual(before.r1, before.r2);
  assert.equal((await calls.delete('r1', 'r2', 'r4')).count, 3);
  assert.deepEqual(await prunedAt(), before);
  assert.deepEqual(
    (await calls.list({ ids: ['r1', 'r4'] })).records.map((record) => Object.keys(record).length),
    [2, 4],
  );
  await assertCounted(calls);
  assert.deepEqual((await calls.save(rows(1, 2))).added, ['r1', 'r2']);
  assert.deepEqual(Object.values(await prunedAt()).filter(Boolean), [before.r3]);
  await assertCounted(calls);
});

test('however prunes and restores lie across each other, each deleted record keeps the time of its prune', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 60));
  for (let round = 1; round <= 6; round += 1) {
    await calls.save(rows(1, 60, round % 2 ? 'x' : 'y').filter(({ n }) => n % (round + 2) === 0));
    await calls.prune(await calls.cursorOf(20 * round), 15);
    await calls.save(rows(1, 60).filter(({ n }) => n % (round + 1) === 1));
  }
  const prunedAt = async () =>
    new Map((await calls.listAll()).map(({ id, _trellis_metadata: m }) => [id, m.pruned_at]));
  const before = await prunedAt();
  assert.ok(new Set(before.values()).size > 3);
  await calls.delete(...[...before.keys()].sort());
  assert.deepEqual(new Map([...(await prunedAt())].sort()), new Map([...before].sort()));
  await assertCounted(calls);
});

test('a tombstone is pruned like any record, and has the time of the prune', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 2));
  await calls.delete('r1');
  assert.deepEqual(await calls.prune(await calls.cursorOf(3)), { count: 2, hasMore: false });
  for (const record of await calls.listAll()) assert.notEqual(record._trellis_metadata.pruned_at, null);
  assert.deepEqual((await calls.delete('r1')).alreadyDeleted, ['r1']);
  await assertCounted(calls);
});

test('thousands are deleted in one call, in the order sent', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 2500));
  await calls.prune(await calls.cursorOf(700), 10_000);
  const ids = rows(1, 2500)
    .map(({ id }) => id)
    .reverse();
  assert.equal((await calls.delete(...ids)).count, 2500);
  assert.deepEqual(
    (await calls.listAll({ limit: 1000 })).map(({ id }) => id),
    ids,
  );
  await assertCounted(calls);
});

test('twenty deletions of the same records at once delete each once', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 30));
  const results = await Promise.all(
    Array.from({ length: 20 }, (_, n) => calls.delete(...rows(n + 1, n + 10).map(({ id }) => id))),
  );
  assert.equal(
    results.reduce((sum, { count }) => sum + count, 0),
    29,
  );
  assert.equal((await calls.row()).last_seq, 59);
  await assertCounted(calls);
});
