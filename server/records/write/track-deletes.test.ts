import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { placeEntries } from '../../../test/support/audit.ts';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../../test/support/records.ts';
import type { Db } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { destroyLeftovers } from '../retention/destroy.ts';
import { PositionSet, RunReads } from './run-positions.ts';
import { endTracking, startTracking } from './track-deletes.ts';

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
const live = async (calls: Calls) =>
  (await calls.listAll({ actions: ['ADDED', 'UPDATED'] })).map(({ id }) => id).sort();
const trackedRows = async (calls: Calls) =>
  bench.db.query('select seqs from tracked where dataset_id = $1 order by id', [(await calls.row()).id]);
/** As many runs leave them. */
const repeatMarks = async (calls: Calls) =>
  bench.db.query(
    // On a cluster, rows of one statement could have the same default.
    `insert into tracked (dataset_id, id, seqs)
     overriding system value
     select dataset_id, -(dataset_id * 1000000 + row_number() over ()), seqs
     from tracked, generate_series(1, 1000)
     where dataset_id = $1`,
    [(await calls.row()).id],
  );
const refusedAs = (code: string, payload?: object) => (error: unknown) => {
  assert.ok(error instanceof AppError);
  assert.equal(error.code, code);
  if (payload !== undefined) assert.deepEqual(error.payload, payload);
  return true;
};
const heldEvents = async (calls: Calls) => {
  await placeEntries(bench.db);
  const events = await bench.db.query<{ data: Record<string, unknown> }>(
    `select data
     from event
     join connection on connection.connection_id = data ->> 'connection_id'
     join dataset on dataset.connection = connection.id
     where type = 'records.mass_delete_held' and dataset.id = $1`,
    [(await calls.row()).id],
  );
  return events.map(({ data: { connection_id: _, ...data } }) => data);
};

test('the end deletes what no save named since the start, with its payload kept', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 6));
  await calls.delete('r6');
  assert.deepEqual(await calls.startTracking(), { isResumed: false });
  await calls.save(rows(1, 1));
  await calls.save([...rows(2, 2, 'changed'), ...rows(7, 7)]);
  assert.deepEqual(await calls.endTracking(), { count: 3, deletedKeys: ['r3', 'r4', 'r5'] });
  assert.deepEqual(await live(calls), ['r1', 'r2', 'r7']);
  const deleted = await calls.listAll({ actions: ['DELETED'] });
  assert.deepEqual(
    deleted.map(({ id, n }) => [id, n]),
    [
      ['r6', 6],
      ['r3', 3],
      ['r4', 4],
      ['r5', 5],
    ],
  );
  await assertCounted(calls);
  assert.deepEqual(await trackedRows(calls), []);
});

test('without an open tracking the end is refused, also the second end', async () => {
  const calls = await fresh();
  await assert.rejects(calls.endTracking(), refusedAs('no_delete_tracking'));
  await calls.save(rows(1, 1));
  await assert.rejects(calls.endTracking(), refusedAs('no_delete_tracking'));
  await calls.startTracking();
  await calls.endTracking();
  await assert.rejects(calls.endTracking('mass_delete'), refusedAs('no_delete_tracking'));
});

test('a run that is resumed deletes nothing it saw before it was interrupted', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 9));
  await calls.startTracking();
  await calls.save(rows(1, 4));
  assert.deepEqual(await calls.startTracking(), { isResumed: true });
  await calls.save(rows(5, 8));
  assert.deepEqual(await calls.endTracking(), { count: 1, deletedKeys: ['r9'] });
});

test('the end of tracking discards the saved keys: the next tracking starts empty', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 3));
  await calls.startTracking();
  await calls.save(rows(1, 3));
  await calls.endTracking();
  assert.deepEqual(await calls.startTracking(), { isResumed: false });
  await calls.save(rows(1, 1));
  assert.deepEqual((await calls.endTracking()).deletedKeys, ['r2', 'r3']);
});

test('restored, updated and pruned records that were named count as seen', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 6));
  await calls.prune(await calls.cursorOf(3));
  await calls.startTracking();
  await calls.save(rows(1, 1));
  await calls.save(rows(2, 2), 'on_change');
  await calls.update([
    { id: 'r3', text: 'pruned' },
    { id: 'r4', text: 'other' },
    { id: 'r5', text: 'first' },
  ]);
  assert.deepEqual((await calls.endTracking()).deletedKeys, ['r6']);
  await assertCounted(calls);
});

test('a pruned record that the end deletes stays pruned since the same time', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 2));
  await calls.prune(await calls.cursorOf(1));
  const before = (await calls.listAll())[0]?._trellis_metadata.pruned_at;
  await calls.startTracking();
  await calls.endTracking();
  const [r1, r2] = await calls.listAll();
  assert.equal(r1?._trellis_metadata.pruned_at, before);
  assert.equal(r2?._trellis_metadata.pruned_at, null);
  await assertCounted(calls);
});

test('an unchanged save writes one row while a tracking is open, and nothing else', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 50));
  await calls.startTracking();
  const { id } = await calls.row();
  const tableState = () =>
    bench.db.query(
      `select 'r', xmin::text, ctid::text from record where dataset_id = $1
       union all select 'p', xmin::text, ctid::text from payload where dataset_id = $1
       union all select 'd', xmin::text, ctid::text from dataset where id = $1`,
      [id],
    );
  const before = await tableState();
  await calls.save(rows(1, 30));
  await calls.save(rows(31, 50));
  assert.deepEqual(await tableState(), before);
  assert.deepEqual(
    (await trackedRows(calls)).map(({ seqs }) => (seqs as unknown[]).length),
    [30, 20],
  );
  await calls.save(rows(1, 50, 'changed'));
  assert.equal((await trackedRows(calls)).length, 2);
});

test('a mass deletion is held: nothing is deleted, the tracking stays open, and one event is written', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 202));
  await calls.startTracking();
  await calls.save(rows(1, 100));
  const payload = { would_delete: 102, live: 202 };
  const before = await calls.row();
  await assert.rejects(calls.endTracking(), refusedAs('mass_delete_held', payload));
  await assert.rejects(calls.endTracking(), refusedAs('mass_delete_held', payload));
  assert.deepEqual(await calls.row(), before);
  assert.deepEqual(await heldEvents(calls), [
    { provider_config_key: 'sheets', model: 'Row', variant: 'base', ...payload },
  ]);
  // A later run that sees enough goes on, with what was seen before.
  assert.deepEqual(await calls.startTracking(), { isResumed: true });
  await calls.save(rows(101, 101));
  assert.equal((await calls.endTracking()).count, 101);
  assert.equal((await calls.row()).records, 101);
  await assertCounted(calls);
});

test('a held deletion is carried out with an override', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 150));
  await calls.startTracking();
  await assert.rejects(calls.endTracking(), refusedAs('mass_delete_held', { would_delete: 150, live: 150 }));
  assert.equal((await calls.endTracking('mass_delete')).count, 150);
  assert.deepEqual(await live(calls), []);
  await assertCounted(calls);
});

test('what runs see while a deletion is held is kept in few rows', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 300));
  await calls.startTracking();
  for (let run = 0; run < 2; run += 1) {
    await calls.save(rows(1, 60));
    await calls.save(rows(41, 100));
    await repeatMarks(calls);
    await assert.rejects(
      calls.endTracking(),
      refusedAs('mass_delete_held', { would_delete: 200, live: 300 }),
    );
    assert.deepEqual(
      (await trackedRows(calls)).map(({ seqs }) => (seqs as unknown[]).length),
      [100],
    );
  }
  assert.equal((await heldEvents(calls)).length, 1);
});

test('a tracking that is continued many times keeps few rows of seen records', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 4));
  await calls.startTracking();
  await calls.save(rows(1, 1));
  await repeatMarks(calls);
  await calls.save(rows(3, 3));
  assert.deepEqual(await calls.startTracking(), { isResumed: true });
  assert.equal((await trackedRows(calls)).length, 1);
  assert.deepEqual((await calls.endTracking()).deletedKeys, ['r2', 'r4']);
});

test('a tracking that is dropped deletes nothing, and one that is held stays', async () => {
  const calls = await fresh();
  await calls.dropTracking();
  await calls.save(rows(1, 200));
  await calls.startTracking();
  await calls.save(rows(1, 1));
  await calls.dropTracking();
  assert.deepEqual(await trackedRows(calls), []);
  await assert.rejects(calls.endTracking(), refusedAs('no_delete_tracking'));
  assert.equal((await live(calls)).length, 200);
  await calls.startTracking();
  await calls.save(rows(1, 1));
  await assert.rejects(calls.endTracking(), refusedAs('mass_delete_held'));
  await calls.dropTracking();
  assert.equal((await calls.endTracking('mass_delete')).count, 199);
});

test('a tracking that becomes whole does not hold what the reader that made it partial read before', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 4));
  const reader = { trackings: [] as string[] };
  const open = async () =>
    (
      await bench.db.query<{ id: string }>('select tracking_id as id from dataset where id = $1', [
        (await calls.row()).id,
      ])
    )[0]!.id;
  await calls.startTracking({ beginning: reader });
  reader.trackings = [await open()];
  await calls.save(rows(3, 3));
  await calls.startTracking({ beginning: 'start' });
  await calls.save(rows(1, 1));
  assert.deepEqual(await calls.endTracking('none', { beginning: reader }), {
    count: 0,
    deletedKeys: [],
    isPartial: true,
  });
});

test('share and number of the guard are settings; both must be exceeded', async () => {
  const outcome = async (settings: { massDeleteShare?: number; massDeleteNumber?: number }, seen: number) => {
    const calls = await fresh();
    await calls.set(settings);
    await calls.save(rows(1, 10));
    await calls.startTracking();
    if (seen > 0) await calls.save(rows(1, seen));
    return calls.endTracking().then(
      ({ count }) => count,
      (error: AppError) => error.code,
    );
  };
  assert.equal(await outcome({}, 0), 10);
  assert.equal(await outcome({ massDeleteNumber: 0 }, 5), 5);
  assert.equal(await outcome({ massDeleteNumber: 0 }, 4), 'mass_delete_held');
  assert.equal(await outcome({ massDeleteNumber: 5 }, 4), 'mass_delete_held');
  assert.equal(await outcome({ massDeleteNumber: 6 }, 4), 6);
  assert.equal(await outcome({ massDeleteNumber: 0, massDeleteShare: 0 }, 9), 'mass_delete_held');
  assert.equal(await outcome({ massDeleteNumber: 0, massDeleteShare: 0 }, 10), 0);
  assert.equal(await outcome({ massDeleteNumber: 0, massDeleteShare: 1 }, 0), 10);
});

test('of twenty concurrent ends one deletes, and nineteen find no open tracking', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 40));
  await calls.startTracking();
  await calls.save(rows(1, 10));
  const results = await Promise.allSettled(Array.from({ length: 20 }, () => calls.endTracking()));
  assert.deepEqual(
    results.filter((result) => result.status === 'fulfilled').map(({ value }) => value.count),
    [30],
  );
  await assertCounted(calls);
});

test('twenty starts at once open one tracking, also of a dataset that is not there yet', async () => {
  const calls = await fresh();
  const results = await Promise.all(Array.from({ length: 20 }, () => calls.startTracking()));
  assert.equal(results.filter(({ isResumed }) => !isResumed).length, 1);
});

test('saves that race the end are never lost: what they name is live when both are done', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 40));
  await calls.startTracking();
  await Promise.all([
    ...Array.from({ length: 19 }, (_, n) => calls.save(rows(n + 1, n + 2))),
    calls.endTracking(),
  ]);
  const ids = await live(calls);
  for (const { id } of rows(1, 20)) assert.ok(ids.includes(id), id);
  await assertCounted(calls);
});

/** Runs `before` in front of the transaction with this number, counted from 1. */
function beforeTransaction(at: number, before: () => Promise<unknown>): Db {
  let begun = 0;
  return {
    ...bench.db,
    records: undefined,
    async transaction(work, mode) {
      begun += 1;
      if (begun === at) await before();
      return bench.db.transaction(work, mode);
    },
  };
}

/** The number of tombstones of each transaction. */
async function deletedTogether(calls: Calls): Promise<number[]> {
  const counts = await bench.db.query<{ count: number }>(
    `select count(*) as count
     from record
     where dataset_id = $1 and deleted_at is not null
     group by deleted_at
     order by deleted_at`,
    [(await calls.row()).id],
  );
  return counts.map(({ count }) => count);
}

test('many records are deleted in several transactions, without those that are saved between two of them', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 2_500));
  await calls.startTracking();
  await calls.save(rows(1, 100));
  // The first transaction reads, the third deletes the second thousand.
  const db = beforeTransaction(3, async () => {
    await calls.save(rows(2_499, 2_499));
    await calls.save(rows(2_500, 2_500, 'changed'));
    await calls.delete('r2498');
  });
  const { count, deletedKeys } = await datasetCalls(db, connection).endTracking('mass_delete');
  assert.equal(count, 2_397);
  assert.deepEqual(
    deletedKeys,
    rows(101, 2_497).map(({ id }) => id),
  );
  assert.deepEqual(await deletedTogether(calls), [1_000, 1, 1_000, 397]);
  assert.deepEqual((await live(calls)).length, 102);
  await assertCounted(calls);
  assert.deepEqual(await trackedRows(calls), []);
  await assert.rejects(calls.endTracking(), refusedAs('no_delete_tracking'));
});

test('an end that was killed between two transactions is continued by the next one, without a new override', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 2_500));
  await calls.startTracking();
  await calls.save(rows(1, 100));
  await assert.rejects(calls.endTracking(), refusedAs('mass_delete_held'));
  const killed = new Error('killed');
  const db = beforeTransaction(3, () => Promise.reject(killed));
  await assert.rejects(datasetCalls(db, connection).endTracking('mass_delete'), killed);
  assert.deepEqual(await deletedTogether(calls), [1_000]);
  assert.deepEqual(await calls.startTracking(), { isResumed: true });
  await calls.save(rows(2_401, 2_500));
  assert.equal((await calls.endTracking()).count, 1_300);
  assert.deepEqual(await deletedTogether(calls), [1_000, 1_000, 300]);
  await assertCounted(calls);
});

test('marks are merged in steps: if one fails, the same records count as read', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 6));
  await calls.startTracking();
  await calls.save(rows(1, 2));
  await calls.save(rows(4, 4));
  await repeatMarks(calls);
  const killed = new Error('killed');
  const marked = async () => {
    const found = await bench.db.query<{ seq: number }>(
      'select distinct unnest(seqs) as seq from tracked where dataset_id = $1 order by seq',
      [(await calls.row()).id],
    );
    return found.map(({ seq }) => seq);
  };
  // The first transaction reads, the second inserts, and the others remove up to 500 rows each.
  for (const at of [2, 3, 4]) {
    const db = beforeTransaction(at, () => Promise.reject(killed));
    await assert.rejects(datasetCalls(db, connection).startTracking(), killed);
    assert.deepEqual(await marked(), [1, 2, 4], `${at}`);
  }
  assert.ok((await trackedRows(calls)).length > 1000);
  assert.deepEqual(await calls.startTracking(), { isResumed: true });
  assert.equal((await trackedRows(calls)).length, 1);
  assert.deepEqual((await calls.endTracking()).deletedKeys, ['r3', 'r5', 'r6']);
});

test('marks that are merged while the tracking ends and another begins do not count for that one', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 6));
  await calls.startTracking();
  await calls.save(rows(1, 5));
  await repeatMarks(calls);
  const db = beforeTransaction(2, async () => {
    await calls.dropTracking();
    await calls.startTracking();
    await calls.save(rows(6, 6));
  });
  await datasetCalls(db, connection).startTracking();
  assert.deepEqual(
    (await calls.endTracking()).deletedKeys,
    rows(1, 5).map(({ id }) => id),
  );
});

test('twenty starts at once merge marks, and lose none', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 6));
  await calls.startTracking();
  await calls.save(rows(1, 3));
  await repeatMarks(calls);
  await Promise.all([
    ...Array.from({ length: 20 }, () => calls.startTracking()),
    ...Array.from({ length: 5 }, () => calls.save(rows(5, 5))),
  ]);
  assert.deepEqual((await calls.endTracking()).deletedKeys, ['r4', 'r6']);
});

test('a tracking with many marks is closed at once, and the next one does not see them', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 6));
  await calls.startTracking();
  await calls.save(rows(1, 5));
  await repeatMarks(calls);
  assert.deepEqual((await calls.endTracking()).deletedKeys, ['r6']);
  assert.ok((await trackedRows(calls)).length > 0);
  assert.equal((await calls.list()).records.length, 6);
  assert.deepEqual(await calls.startTracking(), { isResumed: false });
  assert.deepEqual(await trackedRows(calls), []);
  await calls.save(rows(1, 1));
  await repeatMarks(calls);
  await calls.dropTracking();
  await destroyLeftovers(bench.db);
  assert.deepEqual(await trackedRows(calls), []);
  // A node of an earlier version takes the rest for removed.
  await calls.startTracking();
  await calls.save(rows(1, 5));
  await repeatMarks(calls);
  await calls.dropTracking();
  await bench.db.query('update dataset set has_leftovers = false where id = $1', [(await calls.row()).id]);
  await calls.startTracking();
  assert.deepEqual(await trackedRows(calls), []);
});

test('what a run has read before it starts a tracking is marked in parts, and the tracking is partial until the last', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 3));
  await bench.db.query('update dataset set last_seq = 200000 where id = $1', [(await calls.row()).id]);
  await calls.save(rows(2, 2, 'at the end'));
  const read = async () => {
    const reads = new RunReads();
    const { last_seq: lastSeq } = await calls.row();
    const dataset = { lastSeq, records: 3, trackingId: null } as Parameters<RunReads['add']>[0];
    reads.add(dataset, [...Array.from({ length: 50_000 }, (_, n) => n + 1), lastSeq]);
    return reads;
  };
  const name = { connection: connection.id, model: 'Row', variant: 'base' };
  const killed = new Error('killed');
  // The first transaction looks for marks to merge, the three after it mark 20,000 positions at most.
  for (const at of [3, 4]) {
    const db = beforeTransaction(at, () => Promise.reject(killed));
    await assert.rejects(startTracking(db, { ...name, reads: await read() }), killed);
    assert.deepEqual(await calls.endTracking('mass_delete'), { count: 0, deletedKeys: [], isPartial: true });
  }
  const reads = await read();
  const ended = beforeTransaction(3, () => calls.endTracking('mass_delete'));
  assert.deepEqual(await startTracking(ended, { ...name, reads }), { isResumed: false });
  assert.deepEqual(
    (await trackedRows(calls)).map(({ seqs }) => (seqs as unknown[]).length),
    [20_000, 20_000, 10_001],
  );
  assert.deepEqual(await calls.endTracking('mass_delete'), { count: 0, deletedKeys: [] });
  // A run that ends the tracking of another caller.
  await calls.startTracking();
  assert.deepEqual(await endTracking(bench.db, { ...name, override: 'none', reads: await read() }), {
    count: 0,
    deletedKeys: [],
  });
});

test('a set of positions contains the added ones, also beyond 2^32, and no others', () => {
  const set = new PositionSet();
  const added = [1, 7, 8, 65_535, 65_536, 2 ** 32, 2 ** 32 + 9, 2 ** 40 + 65_535];
  for (const seq of added) set.add(seq);
  for (const seq of added) {
    assert.ok(set.has(seq), String(seq));
    for (const other of [seq - 1, seq + 1, seq + 2 ** 16, seq + 2 ** 33]) {
      assert.equal(set.has(other), added.includes(other), String(other));
    }
  }
});
