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

const fresh = async (name = {}) => datasetCalls(bench.db, await bench.connect(), name);

test('new records are added in the order sent, and listed in it', async () => {
  const calls = await fresh();
  const result = await calls.save([{ id: 'b', x: 1 }, { x: 2, id: 'a' }, { id: 3 }]);
  assert.deepEqual(result, {
    added: ['b', 'a', '3'],
    updated: [],
    restored: [],
    unchangedCount: 0,
    duplicates: [],
  });
  const { records, next_cursor } = await calls.list();
  assert.equal(next_cursor, null);
  assert.deepEqual(
    records.map(({ _trellis_metadata: _, ...payload }) => payload),
    [{ id: 'b', x: 1 }, { id: 'a', x: 2 }, { id: '3' }],
  );
  for (const { _trellis_metadata: metadata } of records) {
    assert.match(metadata.first_seen_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$/);
    assert.equal(metadata.last_modified_at, metadata.first_seen_at);
    assert.equal(metadata.last_action, 'ADDED');
    assert.equal(metadata.deleted_at, null);
    assert.equal(metadata.pruned_at, null);
  }
});

test('changed records move behind all other records; equal records stay, whatever the order of their keys', async () => {
  const calls = await fresh();
  await calls.save([
    { id: 'a', x: 1, y: { p: [1, 2], q: null } },
    { id: 'b', x: 1 },
    { id: 'c', x: 1 },
  ]);
  const before = await calls.list();
  const result = await calls.save([
    { y: { q: null, p: [1, 2] }, x: 1, id: 'a' },
    { id: 'b', x: 2 },
    { id: 'd', x: 1 },
  ]);
  assert.deepEqual(result, {
    added: ['d'],
    updated: ['b'],
    restored: [],
    unchangedCount: 1,
    duplicates: [],
  });
  const { records } = await calls.list();
  assert.deepEqual(
    records.map(({ id, _trellis_metadata: { last_action } }) => [id, last_action]),
    [
      ['a', 'ADDED'],
      ['c', 'ADDED'],
      ['b', 'UPDATED'],
      ['d', 'ADDED'],
    ],
  );
  assert.deepEqual(records[0], before.records[0]);
  assert.equal(records[2]?.x, 2);
  assert.equal(
    records[2]?._trellis_metadata.first_seen_at,
    before.records[1]?._trellis_metadata.first_seen_at,
  );
  assert.deepEqual(await calls.recount(), counters(await calls.row()));
});

test('saving equal records writes nothing', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 50));
  const tableState = () =>
    bench.db.query(
      `select 'r', xmin::text, ctid::text from record where dataset_id = $1
       union all select 'p', xmin::text, ctid::text from payload where dataset_id = $1
       union all select 'd', xmin::text, ctid::text from dataset where id = $1`,
      [id],
    );
  const { id } = await calls.row();
  const before = await tableState();
  assert.equal((await calls.save(rows(1, 50))).unchangedCount, 50);
  assert.deepEqual(await tableState(), before);
});

test('of two records with one id the last wins and the id is named; 1 and "1" are one id', async () => {
  const calls = await fresh();
  const result = await calls.save([
    { id: 1, v: 'first' },
    { id: 'x', v: 'only' },
    { id: '1', v: 'second' },
    { id: 1, v: 'last' },
  ]);
  assert.deepEqual(result.added, ['x', '1']);
  assert.deepEqual(result.duplicates, ['1']);
  const { records } = await calls.list();
  assert.deepEqual(
    records.map(({ id, v }) => [id, v]),
    [
      ['x', 'only'],
      ['1', 'last'],
    ],
  );
});

test('the metadata key in a record is dropped and changes nothing', async () => {
  const calls = await fresh();
  await calls.save([{ id: 'a', x: 1, [brand.metadataKey]: { cursor: 'forged' } }]);
  assert.equal((await calls.save([{ id: 'a', x: 1 }])).unchangedCount, 1);
  const { records } = await calls.list();
  assert.notEqual(records[0]?._trellis_metadata.cursor, 'forged');
  assert.deepEqual(Object.keys(records[0] ?? {}), ['id', 'x', brand.metadataKey]);
});

test('payloads come back as they were, to the last character', async () => {
  const calls = await fresh();
  const strange = JSON.parse(
    '{"id":"s","empty":"","quote":"\\"\\\\","control":"\\u0000\\u001f\\u2028","lone":"\\ud800","smile":"😀",' +
      '"nested":{"":[[],{},[{"a":null}]]},"numbers":[0,-1.5,1e-7,9007199254740991,-9007199254740991],"b":[true,false]}',
  );
  await calls.save([strange, { id: 'ü/"\\\n😀' }]);
  const { records } = await calls.list();
  const { _trellis_metadata: _, ...back } = records[0] ?? {};
  assert.deepEqual(back, strange);
  assert.deepEqual(Object.keys(back), Object.keys(strange));
  assert.equal(records[1]?.id, 'ü/"\\\n😀');
});

test('one bad record refuses the call, names it by index and changes nothing', async () => {
  const calls = await fresh();
  await calls.save([{ id: 'kept', x: 1 }]);
  const before = await calls.row();
  const deep = JSON.parse(`${'['.repeat(100_000)}${']'.repeat(100_000)}`);
  const cases: [bad: unknown, path: string[], message: RegExp][] = [
    [{ x: 1 }, ['id'], /string or an integer/],
    [{ id: '' }, ['id'], /at least 1/],
    [{ id: 'x'.repeat(256) }, ['id'], /at most 255/],
    [{ id: '😀'.repeat(256) }, ['id'], /at most 255/],
    [{ id: 'a\0b' }, ['id'], /NUL/],
    [{ id: 'a\ud800' }, ['id'], /lone surrogate/],
    [{ id: 1.5 }, ['id'], /safe integer/],
    [{ id: 2 ** 53 }, ['id'], /safe integer/],
    [{ id: null }, ['id'], /string or an integer/],
    [{ id: true }, ['id'], /string or an integer/],
    [{ id: ['a'] }, ['id'], /string or an integer/],
    [{ id: 'a', big: 2 ** 53 }, ['big'], /beyond 2\^53/],
    [{ id: 'a', deep: [{ n: -(2 ** 60) }] }, ['deep', '0', 'n'], /beyond 2\^53/],
    [JSON.parse('{"id":"a","n":1e999}'), ['n'], /range of a double/],
    [{ id: 'a', deep }, ['deep', '0', '0', '0'], /Nested deeper/],
    [{ id: 'a', large: 'x'.repeat(8 * 1024 * 1024) }, [], /at most 8 MB/],
    [{ id: 'a', large: 'ü'.repeat(4 * 1024 * 1024) }, [], /at most 8 MB/],
    ['text', [], /is an object/],
    [null, [], /is an object/],
    [[{ id: 'a' }], [], /is an object/],
    [7, [], /is an object/],
  ];
  for (const [bad, path, message] of cases) {
    await assert.rejects(calls.save([{ id: 'kept', x: 2 }, bad as never, { id: 'later' }]), (error) => {
      assert.ok(error instanceof AppError);
      assert.equal(error.code, 'invalid_record');
      assert.equal(error.errors?.length, 1);
      assert.deepEqual(error.errors?.[0]?.path, ['records', '1', ...path]);
      assert.match(error.errors?.[0]?.message ?? '', message);
      return true;
    });
  }
  assert.deepEqual(await calls.row(), before);
  assert.equal((await calls.list()).records[0]?.x, 1);
});

test('ids of 255 characters and one record of 8 MB are taken', async () => {
  const calls = await fresh();
  const ids = ['x'.repeat(255), '😀'.repeat(255), '0', '-5'];
  await calls.save(ids.map((id) => ({ id })));
  assert.deepEqual(
    (await calls.listAll()).map(({ id }) => id),
    ids,
  );
  const overhead = '{"large":""}'.length;
  const large = 'x'.repeat(8 * 1024 * 1024 - overhead);
  await calls.save([{ id: 'large', large }]);
  assert.equal((await calls.list({ ids: ['large'] })).records[0]?.large, large);
});

test('twenty saves of one new record at once add it once', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  const results = await Promise.all(Array.from({ length: 20 }, () => calls.save([{ id: 'a', x: 1 }])));
  assert.equal(results.flatMap(({ added }) => added).length, 1);
  assert.equal(
    results.reduce((sum, { unchangedCount }) => sum + unchangedCount, 0),
    19,
  );
  assert.equal((await calls.list()).records.length, 1);
  const row = await calls.row();
  assert.deepEqual([row.last_seq, row.records], [1, 1]);
});

test('twenty concurrent saves of different content take twenty positions, and the last content is kept', async () => {
  const calls = await fresh();
  const results = await Promise.all(
    Array.from({ length: 20 }, (_, n) => calls.save([{ id: 'a', n }, { id: `own${n}` }])),
  );
  assert.equal(results.filter(({ added }) => added.includes('a')).length, 1);
  assert.equal(results.filter(({ updated }) => updated.includes('a')).length, 19);
  assert.equal((await calls.row()).last_seq, 40);
  assert.deepEqual(await calls.recount(), counters(await calls.row()));
});

test('times never run against positions, also after the clock was set back, and an update is never an addition', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 2));
  await bench.db.query(`update dataset set last_modified_at = now() + interval '1 hour' where id = $1`, [
    (await calls.row()).id,
  ]);
  await calls.save([{ id: 'late' }]);
  await calls.save([{ id: 'late', x: 2 }]);
  await calls.save([{ id: 'later' }]);
  const all = await calls.listAll();
  const times = all.map(({ _trellis_metadata: { last_modified_at } }) => last_modified_at);
  assert.deepEqual([...times].sort(), times);
  assert.deepEqual(
    all.map(({ id, _trellis_metadata: { last_action } }) => `${id} ${last_action}`),
    ['r1 ADDED', 'r2 ADDED', 'late UPDATED', 'later ADDED'],
  );
});

test('the tables contain no payload, and nothing that equal payloads have in common', async () => {
  const connection = await bench.connect();
  const payload = { secret: 'a text that must not be found', n: 1 };
  const all = [
    datasetCalls(bench.db, connection),
    datasetCalls(bench.db, connection, { variant: 'other' }),
    await fresh(),
  ];
  for (const calls of all)
    await calls.save([
      { id: 'one', ...payload },
      { id: 'two', ...payload },
    ]);
  const ids = await Promise.all(all.map(async (calls) => (await calls.row()).id));
  const stored = await bench.db.query<{ hash: Buffer; body: Buffer; line: string }>(
    `select hash, body, record::text || payload::text as line
     from record join payload using (dataset_id, seq)
     where dataset_id = any($1)`,
    [ids],
  );
  assert.equal(stored.length, 6);
  assert.equal(new Set(stored.map(({ hash }) => hash.toString('hex'))).size, 6);
  assert.equal(new Set(stored.map(({ body }) => body.subarray(13).toString('hex'))).size, 6);
  for (const { body, line } of stored) {
    assert.equal(body.includes('a text that'), false);
    assert.equal(line.includes('a text that'), false);
    assert.equal(line.includes(Buffer.from('a text that').toString('hex')), false);
  }
});

test('a body that was moved to another record does not open', async () => {
  const calls = await fresh();
  await calls.save([
    { id: 'a', x: 1 },
    { id: 'b', x: 2 },
  ]);
  await bench.db.query(
    `update payload set body = (select body from payload where dataset_id = $1 and seq = 2)
     where dataset_id = $1 and seq = 1`,
    [(await calls.row()).id],
  );
  await assert.rejects(calls.list());
});

test('nothing is saved for a connection that is deleted', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 3));
  await bench.db.transaction((tx) => destroyConnection(tx, { id: connection.id, at: new Date() }));
  await assert.rejects(
    calls.save(rows(4, 6)),
    (error) => error instanceof AppError && error.code === 'unknown_connection',
  );
  assert.equal((await calls.row()).records, 3);
});

function counters({ records, deleted, pruned, payload_bytes }: Record<string, number>) {
  return { records, deleted, pruned, payload_bytes };
}
