import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { asOwnerOfAudit, placeEntries } from '../../../test/support/audit.ts';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../../test/support/records.ts';
import type { Db } from '../../db/pool.ts';
import { deleteRecords } from '../write/delete.ts';
import { acknowledge, findConsumer, rewind } from './consumers.ts';
import { type RetentionPolicy, removePolicy, setPolicy } from './policy.ts';
import { runRetention } from './retention.ts';

let bench: RecordBench;
let environmentId: number;
before(async () => {
  bench = await openRecordBench();
  const [row] = await bench.db.query<{ id: number }>(
    `select id from environment where name = 'records-test'`,
  );
  environmentId = (row as { id: number }).id;
});
after(() => bench.end());
const empty = () =>
  asOwnerOfAudit(bench.db, [
    'truncate retention, event, audit, dataset_outbox, record, payload, dataset cascade',
  ]);
beforeEach(empty);

const place = (integrationKey?: string) => ({ environmentId, integrationKey });
const policy = (given: Partial<RetentionPolicy>): RetentionPolicy => ({
  pruneAfterDays: null,
  removeTombstonesAfterDays: null,
  waitForConsumers: true,
  ...given,
});
/** The time `days` from now: records are made now and grow old by it. */
const inDays = (days: number) => new Date(Date.now() + days * 86_400_000 + 60_000);

async function newDataset(count: number) {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, count));
  const name = { connection: connection.id, model: 'Row', variant: 'base' };
  return { calls, name, connection };
}

const setAge = async (calls: ReturnType<typeof datasetCalls>, until: number, days: number) => {
  const { id } = await calls.row();
  await bench.db.query(
    `update record
     set
       first_seen_at = (first_seen_at at time zone 'UTC' - make_interval(days => $3)) at time zone 'UTC',
       last_modified_at = (last_modified_at at time zone 'UTC' - make_interval(days => $3)) at time zone 'UTC'
     where dataset_id = $1 and seq <= $2`,
    [id, until, days],
  );
};
const prunedIds = async (calls: ReturnType<typeof datasetCalls>) =>
  (await calls.listAll()).filter((one) => one._trellis_metadata.pruned_at !== null).map(({ id }) => id);
const eventsOf = async (type: string) => {
  await placeEntries(bench.db);
  return bench.db.query<{ data: Record<string, unknown> }>('select data from event where type = $1', [type]);
};
const receipts = async () => {
  await placeEntries(bench.db);
  return bench.db.query<{ actor: string; action: string; target: string; details: Record<string, unknown> }>(
    `select actor, action, target, details from audit where action like 'records.%' order by id`,
  );
};

test("payloads older than the policy's limit are deleted, newer payloads are kept, and no cursor changes", async () => {
  const { calls } = await newDataset(10);
  await setAge(calls, 6, 8);
  const before = (await calls.listAll()).map(({ _trellis_metadata }) => _trellis_metadata.cursor);
  await setPolicy(bench.db, place(), policy({ pruneAfterDays: 7 }));
  const went = await runRetention(bench.db, { now: new Date() });
  assert.equal(went.payloads, 6);
  assert.deepEqual(await prunedIds(calls), ['r1', 'r2', 'r3', 'r4', 'r5', 'r6']);
  assert.deepEqual(
    (await calls.listAll()).map(({ _trellis_metadata }) => _trellis_metadata.cursor),
    before,
  );
  const { records, deleted, pruned, payload_bytes } = await calls.row();
  assert.deepEqual({ records, deleted, pruned, payload_bytes }, await calls.recount());
  assert.equal((await runRetention(bench.db, { now: new Date() })).payloads, 0);
});

test('former payloads are deleted with their payloads and tombstones, and their bytes are reported', async () => {
  const { calls } = await newDataset(6);
  await calls.set({ keepPrevious: true });
  await calls.save(rows(1, 6, 'second'));
  await calls.delete('r1', 'r2');
  const { payload_bytes: before } = await calls.row();
  await setPolicy(bench.db, place(), policy({ removeTombstonesAfterDays: 7 }));
  const removed = await runRetention(bench.db, { now: inDays(8) });
  const { payload_bytes: between, ...counters } = await calls.recount();
  assert.deepEqual(removed, { payloads: 0, bytes: before - between, tombstones: 2 });
  assert.deepEqual(counters, { records: 4, deleted: 0, pruned: 0 });
  assert.equal((await calls.row()).payload_bytes, between);
  await setPolicy(bench.db, place(), policy({ pruneAfterDays: 7 }));
  const pruned = await runRetention(bench.db, { now: inDays(8) });
  assert.deepEqual(pruned, { payloads: 4, bytes: between, tombstones: 0 });
  assert.equal((await calls.row()).payload_bytes, 0);
  assert.deepEqual(
    (await receipts()).map(({ details }) => details.bytes),
    [before - between, between],
  );
});

test('without a policy nothing is deleted, however old it is', async () => {
  const { calls } = await newDataset(3);
  assert.deepEqual(await runRetention(bench.db, { now: inDays(10_000) }), {
    payloads: 0,
    bytes: 0,
    tombstones: 0,
  });
  assert.deepEqual(await prunedIds(calls), []);
});

test("an integration's policy replaces its environment's policy", async () => {
  const { calls } = await newDataset(3);
  await setPolicy(bench.db, place(), policy({ pruneAfterDays: 1 }));
  await setPolicy(bench.db, place('sheets'), policy({ pruneAfterDays: 100 }));
  await runRetention(bench.db, { now: inDays(50) });
  assert.deepEqual(await prunedIds(calls), []);
  await removePolicy(bench.db, place('sheets'));
  await runRetention(bench.db, { now: inDays(50) });
  assert.deepEqual(await prunedIds(calls), ['r1', 'r2', 'r3']);
  await assert.rejects(setPolicy(bench.db, place('nothing'), policy({ pruneAfterDays: 1 })), {
    code: 'unknown_provider_config',
  });
});

test('a record that changed has its age from then', async () => {
  const { calls } = await newDataset(3);
  await setAge(calls, 3, 30);
  await calls.save([{ id: 'r1', n: 100 }]);
  await setPolicy(bench.db, place(), policy({ pruneAfterDays: 7 }));
  await runRetention(bench.db, { now: new Date() });
  assert.deepEqual(await prunedIds(calls), ['r2', 'r3']);
});

test('every step is small and leaves a receipt: who, what, until where, count, bytes', async () => {
  const { calls, connection } = await newDataset(1200);
  await setPolicy(bench.db, place(), policy({ pruneAfterDays: 7 }));
  const { payload_bytes } = await calls.row();
  // No time passes: steps that are slow would be followed by smaller ones.
  const went = await runRetention(bench.db, { now: inDays(8), clock: () => 0 });
  const [row] = await bench.db.query<{ target: string }>(
    `select 'sheets/' || connection_id as target from connection where id = $1`,
    [connection.id],
  );
  const own = await receipts();
  assert.ok(own.every(({ target }) => target === row?.target));
  assert.deepEqual(
    own.map(({ actor, action, details }) => [actor, action, details.count, details.until_cursor]),
    [
      ['retention', 'records.pruned', 500, await calls.cursorOf(500)],
      ['retention', 'records.pruned', 500, await calls.cursorOf(1000)],
      ['retention', 'records.pruned', 200, await calls.cursorOf(1200)],
    ],
  );
  assert.equal(
    own.reduce((sum, { details }) => sum + Number(details.bytes), 0),
    payload_bytes,
  );
  assert.ok(own.every(({ details }) => details.model === 'Row' && details.variant === 'base'));
  const [event] = await eventsOf('records.retention_done');
  assert.deepEqual([event?.data.pruned, event?.data.bytes], [went.payloads, went.bytes]);
});

test('a step of large payloads is cut by their size', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 5).map((row) => ({ ...row, text: 'x'.repeat(1_500_000) })));
  await setPolicy(bench.db, place(), policy({ pruneAfterDays: 7 }));
  await runRetention(bench.db, { now: inDays(8) });
  const counts = (await receipts()).map(({ details }) => details.count);
  assert.deepEqual(counts.slice(-3), [2, 2, 1]);
});

test('old tombstones go with their payloads, and a cursor before the last of them is 410', async () => {
  const { calls, name, connection } = await newDataset(6);
  await deleteRecords(bench.db, { ...name, ids: ['r2', 'r4'] });
  await setAge(calls, 8, 30);
  await deleteRecords(bench.db, { ...name, ids: ['r5'] });
  await acknowledge(bench.db, { by: 'service', ...name, name: 'late', cursor: await calls.cursorOf(8) });
  await setPolicy(bench.db, place(), policy({ removeTombstonesAfterDays: 7 }));
  const went = await runRetention(bench.db, { now: new Date() });
  assert.deepEqual([went.tombstones, went.payloads], [2, 0]);
  assert.deepEqual(
    (await calls.listAll()).map(({ id }) => id),
    ['r1', 'r3', 'r6', 'r5'],
  );
  const { records, deleted, pruned, payload_bytes } = await calls.row();
  assert.deepEqual({ records, deleted, pruned, payload_bytes }, await calls.recount());
  // Positions 7 and 8 were theirs.
  for (const seq of [1, 6, 7]) {
    const cursor = await calls.cursorOf(seq);
    await assert.rejects(calls.list({ cursor }), { code: 'cursor_expired', status: 410 });
    await assert.rejects(acknowledge(bench.db, { by: 'service', ...name, name: 'new', cursor }), {
      code: 'cursor_expired',
    });
    await assert.rejects(rewind(bench.db, { by: 'service', ...name, name: 'late', cursor }), {
      code: 'cursor_expired',
    });
  }
  assert.deepEqual(
    (await calls.list({ cursor: await calls.cursorOf(8) })).records.map(({ id }) => id),
    ['r5'],
  );
  // A position is still a position for a prune.
  assert.equal((await calls.prune(await calls.cursorOf(6))).count, 3);
  const [receipt] = (await receipts()).filter(({ action }) => action === 'records.tombstones_removed');
  assert.deepEqual([receipt?.details.count, receipt?.details.until_cursor], [2, await calls.cursorOf(8)]);
  // The id is new again.
  const saved = await datasetCalls(bench.db, connection).save([{ id: 'r2', n: 1 }]);
  assert.deepEqual(saved.added, ['r2']);
});

test('a reader that begins after the deletion of tombstones reads to the end, follows and acknowledges', async () => {
  const { calls, name } = await newDataset(12);
  const early = await calls.list({ limit: 5 });
  await deleteRecords(bench.db, { ...name, ids: ['r12'] });
  await setPolicy(bench.db, place(), policy({ removeTombstonesAfterDays: 1 }));
  assert.equal((await runRetention(bench.db, { now: inDays(2) })).tombstones, 1);
  const ids: string[] = [];
  let cursor: string | undefined;
  for (let hasMore = true; hasMore; ) {
    const page = await calls.list({ limit: 5, ...(cursor !== undefined && { cursor }) });
    ids.push(...page.records.map(({ id }) => id));
    hasMore = page.next_cursor !== null;
    cursor = page.records.at(-1)?._trellis_metadata.cursor;
    assert.ok(cursor !== undefined && cursor.length <= 64);
    await acknowledge(bench.db, { by: 'service', ...name, name: 'young', cursor });
  }
  assert.deepEqual(
    ids,
    Array.from({ length: 11 }, (_, index) => `r${index + 1}`),
  );
  assert.ok(cursor !== undefined);
  const kept = await acknowledge(bench.db, { by: 'service', ...name, name: 'young', cursor });
  assert.deepEqual([kept.cursor, kept.behind], [cursor, 0]);
  assert.deepEqual((await calls.list({ cursor })).records, []);
  await calls.save([{ id: 'r1', n: 'changed' }]);
  const [changed] = (await calls.list({ cursor })).records;
  assert.equal(changed?.id, 'r1');
  // Past where it began a reader needs no more than its position.
  assert.equal(changed?._trellis_metadata.cursor, await calls.cursorOf(14));
  // Who began before saw r12 alive and would never learn of its end.
  assert.ok(early.next_cursor);
  await assert.rejects(calls.list({ cursor: early.next_cursor }), { code: 'cursor_expired' });
});

test('the removal of a policy, or its change to wait, ends a running purge', async () => {
  for (const change of [
    () => removePolicy(bench.db, place()),
    () => setPolicy(bench.db, place(), { ...policy({ pruneAfterDays: 1 }), waitForConsumers: true }),
  ]) {
    const { calls, name } = await newDataset(1200);
    await setPolicy(bench.db, place(), { ...policy({ pruneAfterDays: 1 }), waitForConsumers: false });
    await acknowledge(bench.db, { by: 'service', ...name, name: 'slow', cursor: await calls.cursorOf(1) });
    let transactions = 0;
    const db: Db = {
      ...bench.db,
      records: undefined,
      async transaction(work, mode) {
        const result = await bench.db.transaction(work, mode);
        transactions += 1;
        // Stale consumers, what is due, and one step.
        if (transactions === 3) await change();
        return result;
      },
    };
    await runRetention(db, { now: inDays(2) });
    assert.equal((await prunedIds(calls)).length, 500);
    await empty();
  }
});

test('tombstones without a payload, of pruned records, are counted right', async () => {
  const { calls, name } = await newDataset(4);
  await calls.prune(await calls.cursorOf(2));
  await deleteRecords(bench.db, { ...name, ids: ['r2', 'r3'] });
  await setPolicy(bench.db, place(), policy({ removeTombstonesAfterDays: 1 }));
  assert.equal((await runRetention(bench.db, { now: inDays(2) })).tombstones, 2);
  const { records, deleted, pruned, payload_bytes } = await calls.row();
  assert.deepEqual({ records, deleted, pruned, payload_bytes }, await calls.recount());
});

test('nothing is deleted before the slowest consumer has acknowledged it, unless the policy does not wait', async () => {
  const { calls, name } = await newDataset(10);
  await acknowledge(bench.db, { by: 'service', ...name, name: 'slow', cursor: await calls.cursorOf(3) });
  await acknowledge(bench.db, { by: 'service', ...name, name: 'fast', cursor: await calls.cursorOf(9) });
  await setPolicy(bench.db, place(), policy({ pruneAfterDays: 7 }));
  await runRetention(bench.db, { now: inDays(8) });
  assert.deepEqual(await prunedIds(calls), ['r1', 'r2', 'r3']);
  await acknowledge(bench.db, { by: 'service', ...name, name: 'slow', cursor: await calls.cursorOf(5) });
  await runRetention(bench.db, { now: inDays(8) });
  assert.deepEqual((await prunedIds(calls)).length, 5);
  await setPolicy(bench.db, place(), policy({ pruneAfterDays: 7, waitForConsumers: false }));
  await runRetention(bench.db, { now: inDays(8) });
  assert.deepEqual((await prunedIds(calls)).length, 10);
});

test('a consumer that is inactive for 30 days is reported once and ignored until it returns', async () => {
  const { calls, name } = await newDataset(4);
  await acknowledge(bench.db, { by: 'service', ...name, name: 'dead', cursor: await calls.cursorOf(1) });
  await acknowledge(bench.db, { by: 'service', ...name, name: 'idle', cursor: await calls.cursorOf(4) });
  await setPolicy(bench.db, place(), policy({ pruneAfterDays: 7 }));
  await runRetention(bench.db, { now: inDays(29) });
  assert.deepEqual(await prunedIds(calls), ['r1']);
  assert.equal((await eventsOf('consumer.stale')).length, 0);
  await runRetention(bench.db, { now: inDays(31) });
  await runRetention(bench.db, { now: inDays(32) });
  assert.deepEqual(await prunedIds(calls), ['r1', 'r2', 'r3', 'r4']);
  // Who has taken all there was is not stale.
  const told = await eventsOf('consumer.stale');
  assert.deepEqual(
    told.map(({ data }) => [data.consumer, data.model, data.provider_config_key, data.cursor]),
    [['dead', 'Row', 'sheets', await calls.cursorOf(1)]],
  );
  await calls.save(rows(5, 6));
  await acknowledge(bench.db, { by: 'service', ...name, name: 'dead', cursor: await calls.cursorOf(5) });
  await acknowledge(bench.db, { by: 'service', ...name, name: 'idle', cursor: await calls.cursorOf(6) });
  await runRetention(bench.db, { now: inDays(8) });
  assert.deepEqual(await prunedIds(calls), ['r1', 'r2', 'r3', 'r4', 'r5']);
});

test('twenty runs at once let each record go once, and their counts add up', async () => {
  const { calls } = await newDataset(1500);
  await setPolicy(bench.db, place(), policy({ pruneAfterDays: 7 }));
  const runs = await Promise.all(
    Array.from({ length: 20 }, () => runRetention(bench.db, { now: inDays(8) })),
  );
  assert.equal(
    runs.reduce((sum, { payloads }) => sum + payloads, 0),
    1500,
  );
  assert.equal((await calls.row()).pruned, 1500);
  assert.equal(
    (await receipts()).reduce((sum, { details }) => sum + Number(details.count), 0),
    1500,
  );
});

test('retention that races saves, prunes and consumers keeps the counters exact', async () => {
  const { calls, name } = await newDataset(300);
  await deleteRecords(bench.db, { ...name, ids: ['r10', 'r20', 'r30'] });
  await setPolicy(bench.db, place(), policy({ pruneAfterDays: 7, removeTombstonesAfterDays: 7 }));
  const until = await calls.cursorOf(150);
  await Promise.all(
    Array.from({ length: 20 }, (_, round) => [
      runRetention(bench.db, { now: inDays(8) }),
      calls.save(rows(round * 10 + 1, round * 10 + 40, `round ${round}`)),
      calls.prune(until, 50),
      rewind(bench.db, { by: 'service', ...name, name: `c${round % 3}`, cursor: undefined }),
    ]).flat(),
  );
  const { records, deleted, pruned, payload_bytes } = await calls.row();
  assert.deepEqual({ records, deleted, pruned, payload_bytes }, await calls.recount());
});

test('a stopped run ends after its step, and the next run continues', async () => {
  const { calls } = await newDataset(700);
  await setPolicy(bench.db, place(), policy({ pruneAfterDays: 7 }));
  const stopped = await runRetention(bench.db, { now: inDays(8), signal: AbortSignal.abort() });
  assert.equal(stopped.payloads, 0);
  await runRetention(bench.db, { now: inDays(8) });
  assert.equal((await calls.row()).pruned, 700);
});

test('a consumer that rewinds prevents the deletion of what follows its cursor', async () => {
  const { calls, name } = await newDataset(4);
  await acknowledge(bench.db, { by: 'service', ...name, name: 'a', cursor: await calls.cursorOf(4) });
  await rewind(bench.db, { by: 'service', ...name, name: 'a', cursor: await calls.cursorOf(2) });
  await setPolicy(bench.db, place(), policy({ pruneAfterDays: 7 }));
  await runRetention(bench.db, { now: inDays(8) });
  assert.deepEqual(await prunedIds(calls), ['r1', 'r2']);
  assert.equal((await findConsumer(bench.db, { ...name, name: 'a' }))?.behind, 2);
});
