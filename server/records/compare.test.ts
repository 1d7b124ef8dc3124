import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { datasetCalls, openRecordBench, type RecordBench } from '../../test/support/records.ts';
import { changedFields, ignoredFields, merge } from './codec/fields.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

const fresh = async () => datasetCalls(bench.db, await bench.connect());
type Calls = Awaited<ReturnType<typeof fresh>>;
const outcome = ({ added, updated, restored, unchangedCount }: Awaited<ReturnType<Calls['save']>>) =>
  `${added.length} added, ${updated.length} updated, ${restored.length} restored, ${unchangedCount} unchanged`;
const unchanged = '0 added, 0 updated, 0 restored, 1 unchanged';
const updated = '0 added, 1 updated, 0 restored, 0 unchanged';
const a = (x: number, fetched_at: number) => [{ id: 'a', x, fetched_at, deep: { fetched_at } }];

test('an ignored field that changes alone is no change and keeps its stored value', async () => {
  const calls = await fresh();
  await calls.set({ ignoreFields: ['fetched_at', 'deep'] });
  await calls.save(a(1, 1));
  assert.equal(outcome(await calls.save(a(1, 2))), unchanged);
  assert.equal(outcome(await calls.save([{ id: 'a', x: 1 }])), unchanged);
  assert.equal((await calls.list()).records[0]?.fetched_at, 1);
  assert.equal(outcome(await calls.save(a(2, 3))), updated);
  assert.equal((await calls.list()).records[0]?.fetched_at, 3);
});

test('the fields of a call replace those of the dataset', async () => {
  const calls = await fresh();
  await calls.set({ ignoreFields: ['x'] });
  await calls.save(a(1, 1));
  const by = (ignoreFields: string[]) => ({ ignoreFields });
  assert.equal(outcome(await calls.saveBy(a(1, 2), by(['deep', 'fetched_at']))), unchanged);
  assert.equal(outcome(await calls.saveBy(a(2, 2), by(['fetched_at', 'deep']))), updated);
  assert.equal(outcome(await calls.saveBy(a(2, 2), by([]))), unchanged);
  assert.equal(outcome(await calls.saveBy(a(3, 2), by([]))), updated);
  assert.equal(outcome(await calls.save(a(4, 2))), unchanged);
});

test('a row that was compared without other fields is compared by its payload, not by its hash', async () => {
  const calls = await fresh();
  await calls.save(a(1, 1));
  await calls.set({ ignoreFields: ['fetched_at', 'deep'] });
  assert.equal(outcome(await calls.save(a(1, 2))), unchanged);
  assert.equal(outcome(await calls.save(a(2, 2))), updated);
  await calls.set({ ignoreFields: [] });
  assert.equal(outcome(await calls.save(a(2, 2))), unchanged);
  assert.equal(outcome(await calls.save(a(2, 3))), updated);
});

test('a pruned row that was compared without other fields counts as changed', async () => {
  const calls = await fresh();
  await calls.save(a(1, 1));
  await calls.prune(await calls.cursorOf(1));
  await calls.set({ ignoreFields: ['fetched_at'] });
  assert.equal(outcome(await calls.save(a(1, 1), 'on_change')), updated);
  await calls.prune(await calls.cursorOf(2));
  assert.equal(outcome(await calls.save(a(1, 1))), '0 added, 0 updated, 1 restored, 1 unchanged');
});

test('a payload that comes back with another ignored field is measured again', async () => {
  const calls = await fresh();
  await calls.set({ ignoreFields: ['note'] });
  await calls.save([{ id: 'a', note: 'short' }]);
  await calls.prune(await calls.cursorOf(1));
  const note = 'x'.repeat(5000);
  assert.equal(outcome(await calls.save([{ id: 'a', note }])), '0 added, 0 updated, 1 restored, 1 unchanged');
  assert.equal((await calls.list()).records[0]?.note, note);
  const rows = await bench.db.query(
    `select 1 from record join payload using (dataset_id, seq)
     where dataset_id = $1 and size = octet_length(body)`,
    [(await calls.row()).id],
  );
  assert.equal(rows.length, 1);
  const { payload_bytes } = await calls.row();
  assert.equal(payload_bytes, (await calls.recount()).payload_bytes);
});

test('an update that changes ignored fields alone writes nothing', async () => {
  const calls = await fresh();
  await calls.set({ ignoreFields: ['fetched_at'] });
  await calls.save(a(1, 1));
  assert.equal((await calls.update([{ id: 'a', fetched_at: 2 }])).unchangedCount, 1);
  assert.equal((await calls.update([{ id: 'a', fetched_at: 2, x: 2 }])).updatedCount, 1);
  assert.equal((await calls.list()).records[0]?.fetched_at, 2);
  assert.equal(
    outcome(await calls.save(a(2, 3).map(({ deep: _, ...rest }) => ({ ...rest, deep: { fetched_at: 1 } })))),
    unchanged,
  );
});

test('changed fields are named on request: of updated records, without ignored ones', async () => {
  const calls = await fresh();
  await calls.save([
    { id: 'a', x: 1, y: { p: 1, q: 2 }, z: 1, gone: 1 },
    { id: 'b', x: 1 },
    { id: 'c', x: 1 },
  ]);
  await calls.prune(await calls.cursorOf(3));
  await calls.save([
    { id: 'a', x: 1, y: { p: 1, q: 2 }, z: 1, gone: 1 },
    { id: 'b', x: 1 },
  ]);
  await calls.delete('b');
  const result = await calls.saveBy(
    [
      { id: 'a', come: 1, z: 2, y: { q: 2, p: 1 }, x: '1' },
      { id: 'b', x: 2 },
      { id: 'c', x: 2 },
      { id: 'd', x: 2 },
    ],
    { withChangedFields: true, ignoreFields: ['z'] },
  );
  assert.deepEqual(
    [result.added, result.updated],
    [
      ['b', 'd'],
      ['a', 'c'],
    ],
  );
  assert.deepEqual([...(result.changedFields ?? [])], [['a', ['come', 'gone', 'x']]]);
  assert.equal('changedFields' in (await calls.save([{ id: 'a', x: 5 }])), false);
  const same = await calls.saveBy([{ id: 'a', x: 5 }], { withChangedFields: true });
  assert.deepEqual([same.changedFields?.size, same.unchangedCount], [0, 1]);
});

test('no name of a field is taken for anything else, __proto__ included', () => {
  const stored = JSON.parse('{"__proto__":{"a":1},"constructor":1}');
  const part = JSON.parse('{"__proto__":{"b":2},"toString":{"x":1}}');
  const merged = merge(stored, part);
  assert.equal(JSON.stringify(merged), '{"__proto__":{"a":1,"b":2},"constructor":1,"toString":{"x":1}}');
  assert.deepEqual(changedFields(stored, merged), ['__proto__', 'toString']);
  assert.equal(ignoredFields(['toString']).isIn({}), false);
  assert.equal(ignoredFields(['__proto__']).canonical(stored), '{"constructor":1}');
});

test('a digest distinguishes sets of names, whatever their order', () => {
  const digest = (...names: string[]) => ignoredFields(names).digest?.toString('hex');
  assert.equal(digest(), undefined);
  assert.equal(digest('a', 'b'), digest('b', 'a', 'b'));
  const all = [digest('a'), digest('a', 'b'), digest('ab'), digest('a,b'), digest('a","b')];
  assert.equal(new Set(all).size, all.length);
});
