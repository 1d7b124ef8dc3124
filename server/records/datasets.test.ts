import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { placeEntries } from '../../test/support/audit.ts';
import { recordStatements } from '../../test/support/recorder.ts';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../test/support/records.ts';
import { destroyConnection } from '../connections/store/save.ts';
import { AppError } from '../errors.ts';
import { listDatasets, listDatasetsOf } from './datasets.ts';
import { acknowledge } from './retention/consumers.ts';
import { destroyLeftovers } from './retention/destroy.ts';
import { emptyDataset } from './write/delete.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

const isInvalidCursor = (error: unknown) => error instanceof AppError && error.code === 'invalid_cursor';

test('datasets are listed with exact counts and the cursors of their first and last record', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await datasetCalls(bench.db, connection, { variant: 'other' }).save(rows(1, 1));
  await datasetCalls(bench.db, connection, { model: 'Account' }).set({ ignoreFields: ['b', 'a', 'b'] });
  await datasetCalls(bench.db, await bench.connect()).save(rows(1, 1));
  await calls.save(rows(1, 5));
  await calls.save(rows(1, 1, 'changed'));
  await calls.delete('r2');
  await calls.prune(await calls.cursorOf(4));
  await calls.startTracking();
  const [account, base, other] = await listDatasets(bench.db, connection.id);
  assert.ok(account && base && other);
  assert.deepEqual(
    [account.model, base.model, base.variant, other.variant],
    ['Account', 'Row', 'base', 'other'],
  );
  const all = await calls.listAll();
  const { payload_bytes } = await calls.recount();
  const { lastModifiedAt, ...rest } = base;
  assert.deepEqual(rest, {
    model: 'Row',
    variant: 'base',
    records: 4,
    deleted: 1,
    pruned: 2,
    payloadBytes: payload_bytes,
    firstCursor: await calls.cursorOf(3),
    lastCursor: await calls.cursorOf(7),
    ignoreFields: [],
    keepPrevious: false,
    massDeleteShare: 0.5,
    massDeleteNumber: 100,
    isTracking: true,
    heldAt: null,
  });
  assert.equal(
    all.at(-1)?._trellis_metadata.last_modified_at,
    `${lastModifiedAt?.slice(0, 10)}T${lastModifiedAt?.slice(11, 19)}.${lastModifiedAt?.slice(20).padEnd(6, '0')}+00:00`,
  );
  const { firstCursor, lastCursor, ...empty } = account;
  assert.deepEqual([firstCursor, lastCursor, empty.lastModifiedAt], [undefined, undefined, null]);
  assert.deepEqual(empty.ignoreFields, ['a', 'b']);
});

test('the datasets of several connections are listed with their consumers, and none of another environment', async () => {
  const [one, other, empty, deleted] = [
    await bench.connect(),
    await bench.connect(),
    await bench.connect(),
    await bench.connect(),
  ];
  const calls = datasetCalls(bench.db, one);
  await calls.save(rows(1, 5));
  await datasetCalls(bench.db, one, { variant: 'other' }).save(rows(1, 2));
  await datasetCalls(bench.db, other).save(rows(1, 3));
  await datasetCalls(bench.db, deleted).save(rows(1, 3));
  for (const [name, position] of [
    ['late', 2],
    ['ready', 5],
  ] as const)
    await acknowledge(bench.db, {
      connection: one.id,
      model: 'Row',
      variant: 'base',
      name,
      cursor: await calls.cursorOf(position),
      by: 'service',
      now: new Date(),
    });
  await destroyConnection(bench.db, { id: deleted.id, at: new Date() });
  const [row] = await bench.db.query<{ environmentId: number }>(
    'select environment_id as "environmentId" from connection where id = $1',
    [one.id],
  );
  const { environmentId } = row!;
  const connections = [other, one, empty, deleted].map(({ id }) => id);
  const listed = await listDatasetsOf(bench.db, { environmentId, connections });
  assert.deepEqual(
    listed.map(({ connection, variant, records, consumers }) => [connection, variant, records, consumers]),
    [
      [
        one.id,
        'base',
        5,
        [
          { name: 'late', behind: 3 },
          { name: 'ready', behind: 0 },
        ],
      ],
      [one.id, 'other', 2, []],
      [other.id, 'base', 3, []],
    ],
  );
  const [whole] = await listDatasets(bench.db, one.id);
  const { connection: _connection, consumers: _consumers, ...counts } = listed[0]!;
  assert.partialDeepStrictEqual(whole, counts);
  assert.deepEqual(await listDatasetsOf(bench.db, { environmentId: environmentId + 1, connections }), []);
});

test('a page of ten connections of 10,000 costs what it shows', async () => {
  const { db } = bench;
  const { id } = await bench.connect();
  await db.query(
    `insert into connection (environment_id, integration_id, connection_id, data_key)
     select environment_id, integration_id, 'many-' || n, gen_random_uuid()
     from connection
     cross join generate_series(1, 10000) as n
     where id = $1`,
    [id],
  );
  await db.query(`
    insert into dataset (connection, model, variant, last_seq, records)
    select id, 'Row', variant, 5, 5
    from connection
    cross join unnest(array['base', 'other']) as variant
    where connection_id like 'many-%'`);
  await db.query(`
    insert into record (dataset_id, seq, first_seen_at, last_modified_at, size, hash, external_id)
    select dataset.id, n, now(), now(), 1, '\\x00', 'r' || n
    from dataset
    join connection on connection.id = dataset.connection
    cross join generate_series(1, 5) as n
    where connection_id like 'many-%'`);
  await db.query(`
    insert into consumer (dataset_id, name, seq, acknowledged_at)
    select dataset.id, 'reader', 5 - 2 * (dataset.id % 2), now()
    from dataset
    join connection on connection.id = dataset.connection
    where connection_id like 'many-%'`);
  await db.query('vacuum analyze connection, dataset, record, consumer');
  const found = await db.query<{ id: number; environmentId: number }>(`
    select id, environment_id as "environmentId"
    from connection
    where connection_id like 'many-%' and id % 900 = 0
    limit 10`);
  assert.equal(found.length, 10);
  const recorder = recordStatements();
  const connections = found.map(({ id }) => id);
  const listed = await listDatasetsOf(db, { environmentId: found[0]!.environmentId, connections });
  recorder.end();
  assert.equal(listed.length, 20);
  const statements = recorder.sent.filter(({ text }) => /\bfrom (connection|dataset|consumer)\b/.test(text));
  assert.equal(statements.length, 3);
  for (const { text, values, planning } of statements) {
    const rows = await db.transaction(async (tx) => {
      if (planning !== undefined) await tx.query(planning);
      return tx.query<Record<string, string>>(`explain (analyze, buffers) ${text}`, [...values]);
    });
    const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
    const [, hit = '0'] = /shared hit=(\d+)/.exec(plan) ?? [];
    const [, read = '0'] = /shared (?:hit=\d+ )?read=(\d+)/.exec(plan) ?? [];
    const blocks = Number(hit) + Number(read);
    assert.ok(blocks > 0 && blocks < 150, plan);
  }
});

test('a setting that is not named stays as it is', async () => {
  const calls = datasetCalls(bench.db, await bench.connect());
  await calls.set({ ignoreFields: ['a'], keepPrevious: true, massDeleteShare: 0.25, massDeleteNumber: 7 });
  await calls.set({ massDeleteNumber: 0 });
  const view = await calls.set({});
  assert.equal(view.keepPrevious, true);
  assert.equal((await calls.set({ keepPrevious: false })).keepPrevious, false);
  assert.deepEqual([view.ignoreFields, view.massDeleteShare, view.massDeleteNumber], [['a'], 0.25, 0]);
  assert.deepEqual((await calls.set({ ignoreFields: [] })).ignoreFields, []);
});

test('a connection that is deleted takes no settings and opens no tracking', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 1));
  await bench.db.transaction((tx) => destroyConnection(tx, { id: connection.id, at: new Date() }));
  for (const call of [() => calls.set({}), () => calls.startTracking(), () => calls.endTracking()]) {
    await assert.rejects(call, (error) => error instanceof AppError && error.code === 'unknown_connection');
  }
});

test('an estimate is what the prune then removes, on either side of the middle, and changes nothing', async () => {
  const calls = datasetCalls(bench.db, await bench.connect());
  await calls.save(rows(1, 30, 'x'.repeat(40)));
  await calls.save(rows(5, 9, 'changed'));
  await calls.delete('r11', 'r6');
  const last = (await calls.row()).last_seq;
  for (const until of [1, 3, 12, 20, 33, last]) {
    const cursor = await calls.cursorOf(until);
    const before = await calls.row();
    const estimate = await calls.estimate(cursor);
    assert.deepEqual(await calls.row(), before);
    const { count } = await calls.prune(cursor, 10_000);
    const after = await calls.row();
    assert.deepEqual(estimate, { count, bytes: before.payload_bytes - after.payload_bytes }, String(until));
    assert.deepEqual(await calls.estimate(cursor), { count: 0, bytes: 0 });
    if (until === 12) await calls.save(rows(1, 2, 'x'.repeat(40)));
  }
});

test('an estimate refuses the cursors that a prune refuses', async () => {
  const calls = datasetCalls(bench.db, await bench.connect());
  await assert.rejects(calls.estimate('nonsense'), isInvalidCursor);
  await calls.save(rows(1, 2));
  await assert.rejects(calls.estimate('nonsense'), isInvalidCursor);
  await assert.rejects(calls.estimate(await calls.cursorOf(3)), isInvalidCursor);
});

test('an emptied dataset keeps its last position, settings and valid cursors, and an event is written', async () => {
  const calls = datasetCalls(bench.db, await bench.connect());
  await calls.set({ ignoreFields: ['text'] });
  await calls.save(rows(1, 6));
  await calls.delete('r1');
  await calls.prune(await calls.cursorOf(3));
  await calls.startTracking();
  await calls.save(rows(2, 2));
  const { id } = await calls.row();
  const cursor = await calls.cursorOf(7);
  await bench.db.transaction((tx) => emptyDataset(tx, id));
  assert.deepEqual(await calls.row(), {
    id,
    last_seq: 7,
    prune_floor: 7,
    records: 0,
    deleted: 0,
    pruned: 0,
    payload_bytes: 0,
  });
  assert.deepEqual((await calls.list()).records, []);
  await destroyLeftovers(bench.db);
  for (const table of ['record', 'payload', 'prune', 'tracked']) {
    assert.deepEqual(await bench.db.query(`select 1 from ${table} where dataset_id = $1`, [id]), [], table);
  }
  await placeEntries(bench.db);
  const [event] = await bench.db.query<{ data: Record<string, unknown> }>(
    `select data from event where type = 'records.dataset_emptied'`,
  );
  const { connection_id, ...data } = event?.data ?? {};
  assert.equal(typeof connection_id, 'string');
  assert.deepEqual(data, {
    provider_config_key: 'sheets',
    model: 'Row',
    variant: 'base',
    records: 5,
    deleted: 1,
  });
  assert.deepEqual(await calls.prune(cursor), { count: 0, hasMore: false });
  assert.deepEqual((await calls.save(rows(2, 3))).added, ['r2', 'r3']);
  assert.deepEqual(
    (await calls.list({ cursor })).records.map(({ id: recordId }) => recordId),
    ['r2', 'r3'],
  );
  assert.deepEqual(await calls.prune(await calls.cursorOf(9)), { count: 2, hasMore: false });
  await assert.rejects(
    calls.endTracking(),
    (error) => error instanceof AppError && error.code === 'no_delete_tracking',
  );
  assert.equal(await bench.db.transaction((tx) => emptyDataset(tx, -1)), false);
});
