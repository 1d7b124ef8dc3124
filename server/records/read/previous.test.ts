import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { placeEntries } from '../../../test/support/audit.ts';
import {
  brand,
  datasetCalls,
  openRecordBench,
  type RecordBench,
  rows,
} from '../../../test/support/records.ts';
import { destroyConnection } from '../../connections/store/save.ts';
import { openVault } from '../../vault.ts';
import { destroyLeftovers, destroyOrphans } from '../retention/destroy.ts';
import { exportRecords } from '../routes/routes.ts';
import { emptyDataset } from '../write/delete.ts';
import { readPage } from './page.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

type Calls = ReturnType<typeof datasetCalls>;
const fresh = async () => datasetCalls(bench.db, await bench.connect());
/** A dataset that keeps former payloads. */
const keeping = async () => {
  const calls = await fresh();
  await calls.set({ keepPrevious: true });
  return calls;
};
/** What is told of each record's last change, by id. */
const changesOf = async (calls: Calls, request: Parameters<Calls['listAll']>[0] = {}) =>
  Object.fromEntries(
    (await calls.listAll({ ...request, withChanges: true })).map(({ id, _trellis_metadata: metadata }) => {
      assert.ok('changes' in metadata);
      return [id, metadata.changes];
    }),
  );
/** How many rows of the table keep something, and how many bytes. */
const keptOf = async (calls: Calls) => {
  const { id } = await calls.row();
  const [kept] = await bench.db.query<{ count: number; bytes: number }>(
    `select count(previous) as count, coalesce(sum(octet_length(previous)), 0)::bigint as bytes
     from payload
     where dataset_id = $1`,
    [id],
  );
  return kept as { count: number; bytes: number };
};
const assertCounted = async (calls: Calls) => {
  const { records, deleted, pruned, payload_bytes } = await calls.row();
  assert.deepEqual({ records, deleted, pruned, payload_bytes }, await calls.recount());
};

test('a list has changes only on request', async () => {
  const calls = await keeping();
  await calls.save([{ id: 'a', x: 1 }]);
  await calls.save([{ id: 'a', x: 2 }]);
  const [plain] = await calls.listAll();
  assert.equal('changes' in (plain?._trellis_metadata ?? {}), false);
  const [told] = await calls.listAll({ withChanges: true });
  assert.deepEqual(told?._trellis_metadata.changes, { fields: ['x'], previous: { x: 1 } });
  const { changes: _, ...rest } = told?._trellis_metadata ?? {};
  assert.deepEqual({ ...told, _trellis_metadata: rest }, plain);
});

test('a kept payload gives the changed fields and their former values after any saves and deletes', async () => {
  const calls = await keeping();
  await calls.set({ ignoreFields: ['at'] });
  const deep = { list: [1, { p: 1 }], same: true };
  await calls.save([{ id: 'a', same: 1, city: 'Oslo', deep, gone: null, at: 1 }, { id: 'new' }]);
  assert.deepEqual(await changesOf(calls), { a: null, new: null });
  await calls.save([
    {
      id: 'a',
      at: 2,
      city: 'Rome',
      deep: { list: [1, { p: 2 }], same: true },
      same: 1,
      come: 0,
      toString: 1,
    },
  ]);
  assert.deepEqual((await changesOf(calls)).a, {
    fields: ['at', 'city', 'come', 'deep', 'gone', 'toString'],
    previous: { at: 1, city: 'Oslo', deep, gone: null },
  });
  await assertCounted(calls);
});

test('a later change replaces the kept payload, and an equal record leaves it', async () => {
  const calls = await keeping();
  for (const x of [1, 2, 3]) await calls.save([{ id: 'a', x, y: 1 }]);
  assert.deepEqual((await changesOf(calls)).a, { fields: ['x'], previous: { x: 2 } });
  await calls.save([{ id: 'a', x: 3, y: 1 }]);
  assert.deepEqual((await changesOf(calls)).a, { fields: ['x'], previous: { x: 2 } });
  await calls.update([{ id: 'a', y: { z: 1 } }]);
  assert.deepEqual((await changesOf(calls)).a, { fields: ['y'], previous: { y: 1 } });
  assert.equal((await keptOf(calls)).count, 1);
  await assertCounted(calls);
});

test('without the setting a plain save keeps nothing; an update, and a save that names changed fields, keep the names', async () => {
  const calls = await fresh();
  await calls.set({ ignoreFields: ['at'] });
  await calls.save([
    { id: 'saved', x: 1 },
    { id: 'named', x: 1, at: 1 },
    { id: 'updated', x: 1, deep: { p: 1 } },
  ]);
  await calls.save([{ id: 'saved', x: 2 }]);
  assert.deepEqual(await keptOf(calls), { count: 0, bytes: 0 });
  const named = await calls.saveBy(
    [
      { id: 'named', x: 2, at: 2 },
      { id: 'added', x: 1 },
    ],
    { withChangedFields: true },
  );
  assert.deepEqual([...(named.changedFields ?? [])], [['named', ['x']]]);
  await calls.update([{ id: 'updated', x: 1, deep: { q: 1 } }]);
  assert.deepEqual(await changesOf(calls), {
    saved: null,
    named: { fields: ['at', 'x'], previous: null },
    added: null,
    updated: { fields: ['deep'], previous: null },
  });
  assert.equal((await keptOf(calls)).count, 2);
  await assertCounted(calls);
  await calls.save([
    { id: 'named', x: 3 },
    { id: 'updated', x: 3 },
  ]);
  assert.deepEqual(await keptOf(calls), { count: 0, bytes: 0 });
  await assertCounted(calls);
});

test('a deleted record keeps its last change, and a record that is saved again is new', async () => {
  const calls = await keeping();
  await calls.save([
    { id: 'a', x: 1 },
    { id: 'b', x: 1 },
  ]);
  await calls.save([{ id: 'a', x: 2 }]);
  await calls.delete('a', 'b');
  const told = { fields: ['x'], previous: { x: 1 } };
  assert.deepEqual(await changesOf(calls), { a: told, b: null });
  assert.deepEqual(await changesOf(calls, { actions: ['DELETED'], ids: ['a'] }), { a: told });
  await calls.save([{ id: 'a', x: 3 }]);
  assert.deepEqual(await changesOf(calls), { a: null, b: null });
  assert.deepEqual(await keptOf(calls), { count: 0, bytes: 0 });
  await assertCounted(calls);
});

test('a prune takes the former payload away, and estimate, counters and receipt count its bytes', async () => {
  const calls = await keeping();
  await calls.save(rows(1, 6, 'x'.repeat(500)));
  await calls.save(rows(1, 4, 'second'));
  const last = await calls.cursorOf((await calls.row()).last_seq);
  const kept = await keptOf(calls);
  assert.equal(kept.count, 4);
  assert.ok(kept.bytes > 4 * 500);
  for (const until of [await calls.cursorOf(8), last]) {
    const before = await calls.row();
    const estimate = await calls.estimate(until);
    const { count } = await calls.prune(until, 10_000);
    const { id, payload_bytes } = await calls.row();
    assert.deepEqual(estimate, { count, bytes: before.payload_bytes - payload_bytes });
    const [receipt] = await bench.db.query<{ count: number; bytes: number }>(
      'select count, bytes from prune where dataset_id = $1 order by id desc limit 1',
      [id],
    );
    assert.deepEqual(receipt, estimate);
    await placeEntries(bench.db);
    const [audited] = await bench.db.query<{ bytes: number }>(
      `select (details->>'bytes')::bigint as bytes
       from audit where action = 'records.pruned' order by id desc limit 1`,
    );
    assert.equal(audited?.bytes, estimate.bytes);
    await assertCounted(calls);
  }
  assert.deepEqual(await keptOf(calls), { count: 0, bytes: 0 });
  assert.equal((await calls.row()).payload_bytes, 0);
  assert.ok(Object.values(await changesOf(calls)).every((changes) => changes === null));
});

test('a pruned record has nothing before it when it is restored or changed', async () => {
  const calls = await keeping();
  await calls.save(rows(1, 3));
  await calls.save(rows(1, 3, 'second'));
  await calls.prune(await calls.cursorOf(6));
  assert.deepEqual((await calls.save(rows(1, 2, 'second'))).restored, ['r1', 'r2']);
  await calls.save(rows(3, 3, 'third'));
  assert.deepEqual(await changesOf(calls), { r1: null, r2: null, r3: null });
  await calls.save(rows(1, 1, 'third'));
  assert.deepEqual((await changesOf(calls)).r1, { fields: ['text'], previous: { text: 'second' } });
  await assertCounted(calls);
});

test('one save may add, update, undelete, restore and change pruned records', async () => {
  const calls = await keeping();
  await calls.save(rows(1, 4));
  await calls.prune(await calls.cursorOf(2));
  await calls.delete('r4');
  const saved = await calls.save([
    ...rows(1, 1), // restored
    ...rows(2, 2, 'changed while pruned'),
    ...rows(3, 3, 'changed'),
    ...rows(4, 5, 'added'),
  ]);
  assert.deepEqual([saved.added, saved.updated, saved.restored], [['r4', 'r5'], ['r2', 'r3'], ['r1']]);
  assert.deepEqual(await changesOf(calls), {
    r1: null,
    r2: null,
    r3: { fields: ['text'], previous: { text: 'first' } },
    r4: null,
    r5: null,
  });
  assert.deepEqual(
    (await calls.listAll()).map(({ id, text }) => [id, text]),
    [
      ['r1', 'first'],
      ['r2', 'changed while pruned'],
      ['r3', 'changed'],
      ['r4', 'added'],
      ['r5', 'added'],
    ],
  );
  await assertCounted(calls);
});

test('switched off, nothing more is kept, and kept payloads stay until their record changes', async () => {
  const calls = await keeping();
  await calls.save(rows(1, 2));
  await calls.save(rows(1, 2, 'second'));
  await calls.set({ keepPrevious: false });
  await calls.save(rows(1, 1, 'third'));
  assert.deepEqual(await changesOf(calls), {
    r1: null,
    r2: { fields: ['text'], previous: { text: 'first' } },
  });
  assert.equal((await keptOf(calls)).count, 1);
  await assertCounted(calls);
});

test('large payloads of many records are kept, each with its own record', async () => {
  const calls = await keeping();
  const large = (letter: string) =>
    Array.from({ length: 12 }, (_, n) => ({ id: `r${n}`, text: `${n}${letter.repeat(300_000 + n * 1000)}` }));
  await calls.save(large('a'));
  await calls.save(large('b'));
  const changes = await changesOf(calls);
  for (const { id, text } of large('a'))
    assert.deepEqual(changes[id], { fields: ['text'], previous: { text } });
  assert.deepEqual(
    (await calls.listAll()).map(({ id, text }) => ({ id, text })),
    large('b'),
  );
  await assertCounted(calls);
});

test('the size of a page of changes includes former payloads', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.set({ keepPrevious: true });
  const text = 'x'.repeat(1024 * 1024);
  await calls.save(rows(1, 20, text));
  await calls.save(rows(1, 20));
  const asked = { model: 'Row', variant: 'base', limit: 100 };
  let count = 0;
  for await (const portion of readPage(bench.db, {
    ...asked,
    withChanges: true,
    connection: async () => connection,
  })) {
    assert.ok(portion.records.length <= 2, `${portion.records.length} in one portion`);
    count += portion.records.length;
  }
  assert.equal(count, 16);
  assert.equal((await calls.list()).records.length, 20);
  const all = await calls.listAll({ withChanges: true });
  assert.deepEqual(
    all.map(({ id, _trellis_metadata: { changes } }) => [id, changes?.previous?.text === text]),
    rows(1, 20).map(({ id }) => [id, true]),
  );
});

test('an export carries nothing of former payloads', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.set({ keepPrevious: true });
  await calls.save(rows(1, 1, 'former'));
  await calls.save(rows(1, 1, 'present'));
  const lines = exportRecords(bench.db, {
    model: 'Row',
    variant: 'base',
    brand,
    connection: async () => connection,
  });
  const text = Buffer.concat(await Array.fromAsync(lines)).toString('utf8');
  assert.match(text, /present/);
  assert.doesNotMatch(text, /former|changes/);
});

test('a former payload is sealed for its record alone', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save([{ id: 'names', city: 'Oslo' }]);
  await calls.update([{ id: 'names', city: 'Rome' }]);
  await calls.set({ keepPrevious: true });
  await calls.save([{ id: 'payload', city: 'Oslo' }]);
  await calls.save([{ id: 'payload', city: 'Rome' }]);
  const { id } = await calls.row();
  const kept = await bench.db.query<{ seq: number; previous: Buffer }>(
    'select seq, previous from payload where dataset_id = $1 order by seq',
    [id],
  );
  assert.equal(kept.length, 2);
  for (const { previous } of kept) assert.doesNotMatch(previous.toString('latin1'), /city|Oslo/);
  const [names, payload] = kept;
  await bench.db.query('update payload set previous = $3 where dataset_id = $1 and seq = $2', [
    id,
    names?.seq,
    payload?.previous,
  ]);
  await assert.rejects(calls.list({ withChanges: true }));
  assert.equal((await calls.list()).records.length, 2);
});

test('a rotated master key leaves former payloads unchanged and readable', async () => {
  const masterKey = (id: string) => ({ id, key: createSecretKey(randomBytes(32)) });
  const [old, next] = [masterKey('old'), masterKey('next')];
  const vault = openVault([old]);
  const { key, wrapped } = vault.createDataKey();
  const { id } = await bench.connect();
  const calls = datasetCalls(bench.db, { id, dataKey: key });
  await calls.set({ keepPrevious: true });
  await calls.save(rows(1, 1));
  await calls.save(rows(1, 1, 'second'));
  const rewrapped = openVault([next, old]).rewrap(wrapped);
  const after = datasetCalls(bench.db, { id, dataKey: openVault([next]).unwrap(rewrapped) });
  assert.deepEqual((await changesOf(after)).r1, { fields: ['text'], previous: { text: 'first' } });
});

test('a dataset that is emptied, or destroyed with its connection, keeps nothing', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.set({ keepPrevious: true });
  const { id } = await calls.row();
  for (const round of ['emptied', 'destroyed']) {
    await calls.save(rows(1, 3, round));
    await calls.save(rows(1, 3, 'second'));
    assert.equal((await keptOf(calls)).count, 3);
    if (round === 'emptied') {
      await bench.db.transaction((tx) => emptyDataset(tx, id));
      await assertCounted(calls);
      await destroyLeftovers(bench.db);
    } else {
      await bench.db.transaction((tx) => destroyConnection(tx, { id: connection.id, at: new Date() }));
      await destroyOrphans(bench.db);
    }
    assert.deepEqual(await bench.db.query('select 1 from payload where dataset_id = $1', [id]), []);
  }
});

test('twenty writers of one record at once: each keeps exactly the payload it changed', async () => {
  const calls = await keeping();
  await calls.save([{ id: 'a' }]);
  await Promise.all(Array.from({ length: 20 }, (_, n) => calls.update([{ id: 'a', [`f${n}`]: n }])));
  const [record] = await calls.listAll({ withChanges: true });
  const { id, _trellis_metadata: metadata, ...fields } = record ?? {};
  assert.equal(Object.keys(fields).length, 20);
  assert.equal(metadata?.changes?.fields.length, 1);
  assert.deepEqual(metadata?.changes?.previous, {});
  await assertCounted(calls);
});

test('twenty calls at once, also of prunes, deletes and the setting, leave exact counters', async () => {
  const calls = await keeping();
  await calls.save(rows(1, 20));
  const last = await calls.cursorOf(20);
  await Promise.all(
    Array.from({ length: 20 }, (_, n): Promise<unknown> => {
      if (n % 5 === 0) return calls.prune(last, 3);
      if (n % 5 === 1) return calls.delete(`r${n}`);
      if (n % 5 === 2) return calls.saveBy(rows(n, n + 6, `save ${n}`), { withChangedFields: n > 10 });
      if (n % 5 === 3) return calls.update(rows(1, 20).map(({ id }) => ({ id, [`u${n}`]: true })));
      return calls.set({ keepPrevious: n % 2 === 0 });
    }),
  );
  await assertCounted(calls);
  await calls.set({ keepPrevious: true });
  await calls.save(rows(1, 20, 'last'));
  await assertCounted(calls);
  const told = Object.values(await changesOf(calls));
  assert.ok(told.some((changes) => changes?.previous != null));
  for (const changes of told) if (changes?.previous != null) assert.ok(changes.fields.includes('text'));
});
