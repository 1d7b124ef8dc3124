import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../../test/support/records.ts';
import { acknowledge, findConsumer, listConsumers, removeConsumer, rewind } from './consumers.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

/** Ten records and the name of their dataset. */
async function tenRecords() {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 10));
  return { calls, name: { connection: connection.id, model: 'Row', variant: 'base' } };
}

test('a consumer is where it acknowledged, and `behind` counts the records that changed after', async () => {
  const { calls, name } = await tenRecords();
  const made = await acknowledge(bench.db, {
    by: 'service',
    ...name,
    name: 'billing',
    cursor: await calls.cursorOf(4),
  });
  assert.deepEqual(
    [made.name, made.model, made.variant, made.cursor, made.behind],
    ['billing', 'Row', 'base', await calls.cursorOf(4), 6],
  );
  // r2 moves behind all: one more waits. r9 was waiting already.
  await calls.save([{ id: 'r2', n: 0 }]);
  await calls.save([{ id: 'r9', n: 0 }]);
  assert.equal((await findConsumer(bench.db, { ...name, name: 'billing' }))?.behind, 7);
  const all = await calls.listAll();
  const last = all.at(-1)?._trellis_metadata.cursor;
  assert.equal(
    (await acknowledge(bench.db, { by: 'service', ...name, name: 'billing', cursor: last })).behind,
    0,
  );
});

test('an earlier cursor is refused with the stored one, and accepted by a rewind', async () => {
  const { calls, name } = await tenRecords();
  const [three, seven] = [await calls.cursorOf(3), await calls.cursorOf(7)];
  await acknowledge(bench.db, { by: 'service', ...name, name: 'a', cursor: seven });
  for (const cursor of [three, undefined]) {
    await assert.rejects(acknowledge(bench.db, { by: 'service', ...name, name: 'a', cursor }), {
      code: 'cursor_behind_consumer',
      status: 409,
      payload: { cursor: seven },
    });
  }
  assert.equal((await findConsumer(bench.db, { ...name, name: 'a' }))?.cursor, seven);
  assert.equal(
    (await acknowledge(bench.db, { by: 'service', ...name, name: 'a', cursor: seven })).cursor,
    seven,
  );
  assert.equal((await rewind(bench.db, { by: 'service', ...name, name: 'a', cursor: three })).cursor, three);
  assert.equal(
    (await rewind(bench.db, { by: 'service', ...name, name: 'a', cursor: undefined })).cursor,
    undefined,
  );
});

test('a cursor of another dataset, a malformed one or one beyond the end makes no consumer', async () => {
  const { calls, name } = await tenRecords();
  const other = await tenRecords();
  for (const cursor of [await other.calls.cursorOf(1), 'nonsense', await calls.cursorOf(11)]) {
    await assert.rejects(acknowledge(bench.db, { by: 'service', ...name, name: 'a', cursor }), {
      code: 'invalid_cursor',
    });
  }
  await assert.rejects(
    acknowledge(bench.db, {
      by: 'service',
      ...name,
      model: 'Never',
      name: 'a',
      cursor: await calls.cursorOf(1),
    }),
    { code: 'invalid_cursor' },
  );
  assert.deepEqual(await listConsumers(bench.db, name.connection), []);
  const found = await bench.db.query('select from dataset where connection = $1', [name.connection]);
  assert.equal(found.length, 1);
});

test('a consumer may wait for a dataset before its first record', async () => {
  const connection = await bench.connect();
  const name = { connection: connection.id, model: 'Later', variant: 'base', name: 'early' };
  const made = await acknowledge(bench.db, { by: 'service', ...name, cursor: undefined });
  assert.deepEqual([made.cursor, made.behind], [undefined, 0]);
  await datasetCalls(bench.db, connection, { model: 'Later' }).save(rows(1, 3));
  assert.equal((await findConsumer(bench.db, name))?.behind, 3);
});

test('consumers are listed by model, variant and name, without removed ones', async () => {
  const { calls, name } = await tenRecords();
  await acknowledge(bench.db, { by: 'service', ...name, name: 'b', cursor: await calls.cursorOf(1) });
  await acknowledge(bench.db, { by: 'service', ...name, name: 'a', cursor: await calls.cursorOf(2) });
  await acknowledge(bench.db, { by: 'service', ...name, model: 'Early', name: 'z', cursor: undefined });
  const listed = await listConsumers(bench.db, name.connection);
  assert.deepEqual(
    listed.map((one) => `${one.model} ${one.name}`),
    ['Early z', 'Row a', 'Row b'],
  );
  assert.equal(await removeConsumer(bench.db, { by: 'service', ...name, name: 'a' }), true);
  assert.equal(await removeConsumer(bench.db, { by: 'service', ...name, name: 'a' }), false);
  assert.equal(await findConsumer(bench.db, { ...name, name: 'a' }), undefined);
});

test('twenty acknowledgements at once leave the furthest, whatever their order', async () => {
  const { calls, name } = await tenRecords();
  const cursors = await Promise.all(
    Array.from({ length: 20 }, (_, index) => calls.cursorOf((index % 10) + 1)),
  );
  await Promise.allSettled(
    cursors.map((cursor) => acknowledge(bench.db, { by: 'service', ...name, name: 'a', cursor })),
  );
  assert.equal((await findConsumer(bench.db, { ...name, name: 'a' }))?.cursor, cursors[9]);
});

test('a consumer that acknowledges one cursor for 30 days while changes wait is stalled until it moves', async () => {
  const { calls, name } = await tenRecords();
  const start = Date.now();
  const on = async (day: number, position: number) => {
    const cursor = await calls.cursorOf(position);
    const now = new Date(start + day * 86_400_000);
    const { stalledSince } = await acknowledge(bench.db, { ...name, name: 'a', cursor, by: 'service', now });
    return stalledSince && (stalledSince.getTime() - start) / 86_400_000;
  };
  for (const day of [0, 10, 29, 29.9]) assert.equal(await on(day, 4), undefined);
  assert.equal(await on(30, 4), 0);
  assert.equal(await on(45, 4), 0);
  assert.equal(await on(46, 5), undefined);
  assert.equal(await on(75, 5), undefined);
  assert.equal(await on(76, 5), 46);
  // Nothing waits behind the last record, however long that is.
  for (const day of [77, 200]) assert.equal(await on(day, 10), undefined);
  await calls.save([{ id: 'new', n: 0 }]);
  assert.equal((await findConsumer(bench.db, { ...name, name: 'a' }))?.stalledSince, undefined);
  assert.equal(await on(201, 10), undefined);
  assert.equal(await on(231, 10), 201);
  await acknowledge(bench.db, { ...name, name: 'quiet', cursor: await calls.cursorOf(4), by: 'service' });
  assert.equal((await findConsumer(bench.db, { ...name, name: 'quiet' }))?.stalledSince, undefined);
});

test('a consumer that a node of the previous release has moved is not stalled', async () => {
  const { calls, name } = await tenRecords();
  const to = { ...name, name: 'a', by: 'service' as const };
  const days = (count: number) => new Date(Date.now() + count * 86_400_000);
  await acknowledge(bench.db, { ...to, cursor: await calls.cursorOf(4), now: days(0) });
  await bench.db.query('update consumer set seq = 5, acknowledged_at = $1', [days(31)]);
  assert.equal((await findConsumer(bench.db, to))?.stalledSince, undefined);
  const moved = await acknowledge(bench.db, { ...to, cursor: await calls.cursorOf(5), now: days(31) });
  assert.equal(moved.stalledSince, undefined);
});
