import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { countWaiting } from '../../../test/support/locks.ts';
import {
  datasetCalls,
  openRecordBench,
  type RecordBench,
  rows,
  type WireRecord,
} from '../../../test/support/records.ts';
import { AppError } from '../../errors.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

const fresh = async (name = {}) => datasetCalls(bench.db, await bench.connect(), name);

const isPruned = (record: WireRecord) => Object.keys(record).length === 2;
const cursorOf = (record: WireRecord | undefined) => record?._trellis_metadata.cursor ?? '';
const counters = ({ records, deleted, pruned, payload_bytes }: Record<string, number>) => ({
  records,
  deleted,
  pruned,
  payload_bytes,
});

async function assertCounted(calls: ReturnType<typeof datasetCalls>): Promise<void> {
  assert.deepEqual(counters(await calls.row()), await calls.recount());
}

test('pruning removes payloads up to and including the cursor, and moves nothing', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 10));
  const before = await calls.listAll();
  assert.deepEqual(await calls.prune(cursorOf(before[5])), { count: 6, hasMore: false });
  const after = await calls.listAll();
  assert.deepEqual(after.map(isPruned), [...Array(6).fill(true), ...Array(4).fill(false)]);
  for (const [index, record] of after.entries()) {
    const metadata = record._trellis_metadata;
    const { pruned_at } = metadata;
    assert.deepEqual({ ...metadata, pruned_at: null }, before[index]?._trellis_metadata);
    if (index < 6) assert.match(pruned_at ?? '', /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$/);
    else assert.deepEqual(record, before[index]);
  }
  const [stored] = await bench.db.query(
    `select count(*) as payloads, min(seq) as first from payload where dataset_id = $1`,
    [(await calls.row()).id],
  );
  assert.deepEqual(stored, { payloads: 4, first: 7 });
  await assertCounted(calls);
});

test('at most limit records go, oldest first, and has_more is exact when the limit is met to the record', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 12));
  const until = await calls.cursorOf(10);
  assert.deepEqual(await calls.prune(until, 4), { count: 4, hasMore: true });
  assert.deepEqual((await calls.listAll()).map(isPruned).indexOf(false), 4);
  assert.deepEqual(await calls.prune(until, 5), { count: 5, hasMore: true });
  assert.deepEqual(await calls.prune(until, 1), { count: 1, hasMore: false });
  assert.deepEqual(await calls.prune(until, 1), { count: 0, hasMore: false });
  assert.deepEqual(await calls.prune(await calls.cursorOf(12), 2), { count: 2, hasMore: false });
  await assertCounted(calls);
});

test('has_more is exact for every limit where positions are missing and the record of the cursor has moved on', async () => {
  for (let limit = 1; limit <= 8; limit += 1) {
    const calls = await fresh();
    await calls.save(rows(1, 10));
    const until = await calls.cursorOf(9);
    // Positions 2, 3, 7 and 9 are left: five payloads stand up to the cursor, 1, 4, 5, 6 and 8.
    await calls.save(
      [2, 3, 7, 9].map((n) => ({ id: `r${n}`, n, text: 'second' })),
      'always',
    );
    let left = 5;
    while (left > 0) {
      const count = Math.min(limit, left);
      left -= count;
      assert.deepEqual(await calls.prune(until, limit), { count, hasMore: left > 0 }, `limit ${limit}`);
    }
    assert.deepEqual(await calls.prune(until, limit), { count: 0, hasMore: false });
    const live = (await calls.listAll()).filter((record) => !isPruned(record));
    assert.deepEqual(
      live.map(({ id, text }) => [id, text]),
      [
        ['r10', 'first'],
        ['r2', 'second'],
        ['r3', 'second'],
        ['r7', 'second'],
        ['r9', 'second'],
      ],
    );
    await assertCounted(calls);
  }
});

test('a pruned record saved again with equal content gets its payload back without moving', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 6));
  const before = await calls.listAll();
  await calls.prune(await calls.cursorOf(6));
  const result = await calls.save([...rows(2, 3), { id: 'r4', n: 4, text: 'second' }]);
  assert.deepEqual(result.restored, ['r2', 'r3']);
  assert.deepEqual(result.updated, ['r4']);
  assert.equal(result.unchangedCount, 2);
  const after = await calls.listAll();
  assert.deepEqual(
    after.map(({ id, text, _trellis_metadata: { pruned_at } }) => [id, text, pruned_at !== null]),
    [
      ['r1', undefined, true],
      ['r2', 'first', false],
      ['r3', 'first', false],
      ['r5', undefined, true],
      ['r6', undefined, true],
      ['r4', 'second', false],
    ],
  );
  assert.deepEqual([after[1], after[2]], [before[1], before[2]]);
  await assertCounted(calls);
  // What came back is below the floor of the prune, and goes again.
  assert.deepEqual(await calls.prune(await calls.cursorOf(6), 1), { count: 1, hasMore: true });
  assert.deepEqual(await calls.prune(await calls.cursorOf(6), 1), { count: 1, hasMore: false });
  await assertCounted(calls);
});

test('restore on change leaves an equal record pruned, and brings a changed one', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 3));
  await calls.prune(await calls.cursorOf(3));
  const result = await calls.save([...rows(1, 2), { id: 'r3', n: 3, text: 'second' }], 'on_change');
  assert.deepEqual([result.restored, result.updated, result.unchangedCount], [[], ['r3'], 2]);
  assert.deepEqual((await calls.listAll()).map(isPruned), [true, true, false]);
  await assertCounted(calls);
});

test('pruned_at is the time of the latest prune of each record', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 6));
  await calls.prune(await calls.cursorOf(2));
  await calls.prune(await calls.cursorOf(6), 2);
  await calls.save([{ id: 'r1', n: 1, text: 'first' }]);
  await calls.prune(await calls.cursorOf(6), 2);
  const times = (await calls.listAll()).map(({ _trellis_metadata: { pruned_at } }) => pruned_at ?? '');
  const [r1 = '', r2 = '', r3 = '', r4, r5 = '', r6] = times;
  assert.ok(r2 < r3 && r3 < r1, times.join());
  assert.deepEqual([r4, r5, r6], [r3, r1, '']);
});

test('a bad cursor is refused and nothing is pruned', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  const other = datasetCalls(bench.db, connection, { variant: 'other' });
  await calls.save(rows(1, 3));
  await other.save(rows(1, 3));
  const good = await calls.cursorOf(3);
  for (const bad of [
    await other.cursorOf(3),
    await calls.cursorOf(4),
    good.slice(0, -1),
    `${good}A`,
    `${good}=`,
    `${good} `,
    '',
    'nonsense',
  ]) {
    for (const call of [() => calls.prune(bad), () => calls.list({ cursor: bad })]) {
      await assert.rejects(
        call,
        (error) => error instanceof AppError && error.code === 'invalid_cursor',
        bad,
      );
    }
  }
  const never = datasetCalls(bench.db, connection, { model: 'Never' });
  await assert.rejects(() => never.prune(good), { code: 'invalid_cursor' });
  await assert.rejects(() => never.list({ cursor: good }), { code: 'invalid_cursor' });
  assert.deepEqual(await never.list(), { records: [], next_cursor: null });
  assert.equal((await calls.row()).pruned, 0);
  assert.equal((await other.row()).pruned, 0);
});

test('a cursor of a dataset that was destroyed and made again is refused', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 3));
  const cursor = await calls.cursorOf(2);
  const { id } = await calls.row();
  for (const table of ['payload', 'record']) {
    await bench.db.query(`delete from ${table} where dataset_id = $1`, [id]);
  }
  for (const table of ['dataset', 'dataset_name'])
    await bench.db.query(`delete from ${table} where id = $1`, [id]);
  await calls.save(rows(1, 3));
  await assert.rejects(() => calls.prune(cursor), { code: 'invalid_cursor' });
  assert.equal((await calls.row()).pruned, 0);
});

test('twenty prunes at once prune each record once, and their counts add up', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 1000));
  const until = await calls.cursorOf(950);
  const results = await Promise.all(Array.from({ length: 20 }, () => calls.prune(until, 60)));
  assert.equal(
    results.reduce((sum, { count }) => sum + count, 0),
    950,
  );
  const [receipts] = await bench.db.query(
    `select sum(count)::int as count, range_agg(seqs)::text as seqs
     from (select count, unnest(seqs) as seqs from prune where dataset_id = $1) as receipt`,
    [(await calls.row()).id],
  );
  assert.equal(receipts?.seqs, '{[1,951)}');
  const [total] = await bench.db.query(`select sum(count)::int as count from prune where dataset_id = $1`, [
    (await calls.row()).id,
  ]);
  assert.deepEqual(total, { count: 950 });
  await assertCounted(calls);
});

test('a prune that races saves of the same records never removes a newer payload', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 200));
  const until = await calls.cursorOf(200);
  await Promise.all([
    ...Array.from({ length: 10 }, () => calls.prune(until, 20)),
    ...Array.from({ length: 10 }, (_, n) => calls.save(rows(1 + n * 20, 20 + n * 20, 'second'))),
  ]);
  const all = await calls.listAll();
  assert.equal(all.length, 200);
  assert.ok(all.every(({ text }) => text === 'second'));
  await assertCounted(calls);
});

test('a prune that waits for a writer counts what that writer left', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 5));
  const { id } = await calls.row();
  const until = await calls.cursorOf(5);
  const { promise: held, resolve: release } = Promise.withResolvers<void>();
  const { promise: locked, resolve: noteLocked } = Promise.withResolvers<void>();
  const writer = bench.db.transaction(async (tx) => {
    await tx.query('select from dataset where id = $1 for update', [id]);
    noteLocked();
    await tx.query('delete from payload where dataset_id = $1 and seq <= 2', [id]);
    await tx.query('update dataset set pruned = 2, prune_floor = 2 where id = $1', [id]);
    await held;
  });
  await locked;
  const prune = calls.prune(until, 3);
  await waitingForLock();
  release();
  await writer;
  assert.deepEqual(await prune, { count: 3, hasMore: false });
});

test('the first prune after the first save of a fresh table finds its rows by index', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 3000));
  const { id } = await calls.row();
  const plan = await bench.db.transaction(async (tx) => {
    const { lockDataset } = await import('../dataset.ts');
    await lockDataset(tx, id);
    return tx.query<{ 'QUERY PLAN': string }>(
      `explain delete from payload where dataset_id = ${id} and seq > 0 and seq <= 1000`,
    );
  });
  assert.match(plan.map((line) => line['QUERY PLAN']).join('\n'), /Index Scan using payload_pkey/);
});

async function waitingForLock(): Promise<void> {
  while ((await countWaiting(bench.db)) === 0);
}
