import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { brand, datasetCalls, openRecordBench, type RecordBench, rows } from '../../test/support/records.ts';
import type { Db } from '../db/pool.ts';
import { listDatasets } from './datasets.ts';
import { readPage } from './read/page.ts';
import { destroyLeftovers } from './retention/destroy.ts';
import { exportRecords } from './routes/routes.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

const expired = { code: 'cursor_expired', status: 410 };
const unlessEmptied = true;
const open = async () => datasetCalls(bench.db, await bench.connect());
const idsOf = ({ records }: { records: { id: string }[] }) => records.map(({ id }) => id);

test('a cursor from before a dataset was emptied is refused with `unlessEmptied`, and valid without it', async () => {
  const calls = await open();
  await calls.save(rows(1, 3));
  const [middle, last] = [await calls.cursorOf(2), await calls.cursorOf(3)];
  assert.deepEqual(idsOf(await calls.list({ cursor: middle, unlessEmptied })), ['r3']);
  await calls.empty();
  await calls.save(rows(4, 5));
  for (const cursor of [middle, last]) {
    // The second is read step by step.
    for (const request of [{}, { withChanges: true }]) {
      await assert.rejects(calls.list({ ...request, cursor, unlessEmptied }), expired);
      assert.deepEqual(idsOf(await calls.list({ ...request, cursor })), ['r4', 'r5']);
    }
  }
  assert.deepEqual(idsOf(await calls.list({ unlessEmptied })), ['r4', 'r5']);
  assert.deepEqual(idsOf(await calls.list({ cursor: await calls.cursorOf(4), unlessEmptied })), ['r5']);
});

test('a dataset that held nothing is emptied without a cursor being refused, one with tombstones alone is not', async () => {
  const calls = await open();
  await calls.save(rows(1, 2));
  await calls.empty();
  await calls.save(rows(3, 3));
  const cursor = await calls.cursorOf(3);
  // As a policy does it.
  await calls.delete('r3');
  await bench.db.query('delete from payload where dataset_id = $1', [(await calls.row()).id]);
  await bench.db.query('delete from record where dataset_id = $1', [(await calls.row()).id]);
  await bench.db.query('update dataset set deleted = 0 where id = $1', [(await calls.row()).id]);
  await calls.empty();
  assert.deepEqual(idsOf(await calls.list({ cursor, unlessEmptied })), []);
  await calls.save(rows(4, 4));
  await calls.delete('r4');
  await calls.empty();
  await assert.rejects(calls.list({ cursor, unlessEmptied }), expired);
});

test('positions that are raised leave those from before refused, and those from after good', async () => {
  const calls = await open();
  await calls.save(rows(1, 2));
  const before = await calls.cursorOf(2);
  await calls.empty();
  await calls.save(rows(3, 3));
  const behind = await calls.cursorOf(3);
  // `trellis restored`
  await bench.db.query('update dataset set last_seq = last_seq + 4294967296');
  await calls.save(rows(4, 4));
  await assert.rejects(calls.list({ cursor: before, unlessEmptied }), expired);
  assert.deepEqual(idsOf(await calls.list({ cursor: behind, unlessEmptied })), ['r4']);
  await calls.empty();
  await assert.rejects(calls.list({ cursor: behind, unlessEmptied }), expired);
});

test('a page that is under way when its dataset is emptied breaks off with `unlessEmptied`', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  const asked = { connection: async () => connection, model: 'Row', variant: 'base', limit: 3000 };
  for (const [refuses, parts] of [
    [true, 1],
    [false, 2],
  ] as const) {
    await calls.save(rows(1, 2000));
    const portions = readPage(bench.db, { ...asked, unlessEmptied: refuses });
    const taken: number[] = [];
    const take = async () => {
      for await (const { records } of portions) {
        taken.push(records.length);
        if (taken.length > 1) continue;
        await calls.empty();
        await calls.save(rows(1, 3));
      }
    };
    if (refuses) await assert.rejects(take(), expired);
    else await take();
    // One portion is read ahead.
    assert.ok(taken.length >= parts && taken.length <= parts + 1, String(taken));
    await calls.empty();
  }
});

test('an export refuses such a cursor, too', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 2));
  const cursor = await calls.cursorOf(2);
  await calls.empty();
  await calls.save(rows(3, 3));
  const exported = async (refuses: boolean) => {
    const asked = { connection: async () => connection, model: 'Row', variant: 'base', cursor, brand };
    const lines = await Array.fromAsync(exportRecords(bench.db, { ...asked, unlessEmptied: refuses }));
    return Buffer.concat(lines).toString('utf8').split('\n').length - 1;
  };
  await assert.rejects(exported(true), expired);
  assert.equal(await exported(false), 2);
});

/** The rows of the dataset in all tables. */
const stored = async (calls: Awaited<ReturnType<typeof open>>) => {
  const { id } = await calls.row();
  const counts = ['record', 'payload', 'prune'].map((table) =>
    bench.db.query<{ count: number }>(`select count(*) as count from ${table} where dataset_id = $1`, [id]),
  );
  return (await Promise.all(counts)).map(([row]) => row?.count);
};

test('no reader sees records from before, whose rows are removed in steps, also after a kill between two', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 1_200));
  await calls.prune(await calls.cursorOf(100), 100);
  await calls.delete('r1199');
  const cursor = await calls.cursorOf(5);
  await destroyLeftovers(bench.db);
  await calls.empty();
  assert.deepEqual(await stored(calls), [1_200, 1_100, 1]);
  const assertEmpty = async () => {
    for (const request of [
      {},
      { cursor },
      { ids: ['r200'] },
      { withChanges: true },
      { actions: ['DELETED'] },
    ])
      assert.deepEqual(idsOf(await calls.list(request as object)), []);
    const [dataset] = await listDatasets(bench.db, connection.id);
    assert.deepEqual(
      [dataset?.records, dataset?.deleted, dataset?.firstCursor, dataset?.lastCursor],
      [0, 0, undefined, undefined],
    );
  };
  await assertEmpty();
  // A step more each time, until a step finds nothing.
  const sizes: unknown[] = [];
  for (let isOver = false; !isOver; ) {
    isOver = true;
    const aborted = new AbortController();
    const db: Db = {
      ...bench.db,
      records: undefined,
      async transaction(work, mode) {
        aborted.abort();
        isOver = false;
        return bench.db.transaction(work, mode);
      },
    };
    await destroyLeftovers(db, { signal: aborted.signal });
    sizes.push(await stored(calls));
  }
  assert.deepEqual(sizes, [
    [1_200, 600, 1],
    [1_200, 100, 1],
    [1_200, 0, 1],
    [700, 0, 1],
    [200, 0, 1],
    [0, 0, 1],
    [0, 0, 0],
    [0, 0, 0],
    [0, 0, 0],
  ]);
  await assertEmpty();
});

test('a write after a dataset was emptied sees nothing from before', async () => {
  const calls = await open();
  for (const write of [
    async () => {
      const { added, unchangedCount } = await calls.save(rows(1, 700));
      assert.deepEqual([added.length, unchangedCount], [700, 0]);
    },
    async () => assert.deepEqual((await calls.delete('r1')).missing, ['r1']),
    async () => assert.deepEqual((await calls.update([{ id: 'r1', n: 0 }])).missing, ['r1']),
    async () => {
      await calls.startTracking();
      assert.equal((await calls.endTracking('mass_delete')).count, 0);
    },
  ]) {
    await calls.save(rows(1, 700));
    await calls.empty();
    await write();
    const { records, deleted, pruned, payload_bytes } = await calls.row();
    assert.deepEqual({ records, deleted, pruned, payload_bytes }, await calls.recount());
  }
});

test('while twenty write and empty at once a reader who begins again where it is refused misses nothing', async () => {
  const calls = await open();
  await calls.save(rows(1, 5));
  const held = new Set<string>();
  let cursor: string | undefined;
  const read = async () => {
    for (;;) {
      const page = await calls.list({ cursor, limit: 2, unlessEmptied }).catch((error: { code?: string }) => {
        assert.equal(error.code, 'cursor_expired');
      });
      if (page === undefined) {
        cursor = undefined;
        held.clear();
        continue;
      }
      for (const { id, _trellis_metadata: about } of page.records) {
        if (about.last_action === 'DELETED') held.delete(id);
        else held.add(id);
        cursor = about.cursor;
      }
      if (page.next_cursor === null) return;
    }
  };
  const write = async (n: number) => {
    for (let turn = 0; turn < 5; turn += 1) {
      if ((n + turn) % 5 === 0) await calls.empty();
      else await calls.save(rows(n, n + 3, `turn ${turn}`));
    }
  };
  let isWriting = true;
  const writing = Promise.all(Array.from({ length: 20 }, (_, n) => write(n))).finally(() => {
    isWriting = false;
  });
  while (isWriting) await read();
  await writing;
  await read();
  assert.deepEqual([...held].sort(), idsOf(await calls.list()).sort());
});
