import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { placeEntries } from '../../test/support/audit.ts';
import { isCluster, isDirect } from '../../test/support/citus.ts';
import { normal } from '../../test/support/portable-statements.ts';
import { onEachStatement } from '../../test/support/recorder.ts';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../test/support/records.ts';
import { writeAudit } from '../activity/audit.ts';
import { auditSequence, verifyAudit } from '../activity/audit-chain.ts';
import { destroyConnection } from '../connections/store/save.ts';
import { type Db, openDb } from '../db/pool.ts';
import { placeNext, type Sequence } from '../db/sequencer.ts';
import { queueEvent } from '../events/outbox.ts';
import { eventSequence } from '../events/sequence.ts';
import { stops } from './outbox-node.fixture.ts';
import { acknowledge, removeConsumer } from './retention/consumers.ts';
import { destroyOrphans } from './retention/destroy.ts';
import { setPolicy } from './retention/policy.ts';
import { createPace, retainDataset } from './retention/retention-steps.ts';

let bench: RecordBench;
/** Of another node. */
let other: Db;
before(async () => {
  bench = await openRecordBench();
  other = openDb(bench.target);
});
after(async () => {
  await other.end();
  await bench.end();
});

const fresh = async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  await calls.save(rows(1, 20));
  return { connection, calls, id: (await calls.row()).id };
};
const waiting = (db: Db = bench.db) => db.query('select from dataset_outbox');
/** What arrived about records, in order. */
async function arrived(db: Db = bench.db): Promise<{ audit: string[]; events: string[] }> {
  const audit = await db.query<{ text: string }>(
    `select action || ' ' || (details ->> 'count') as text
     from audit
     where action like 'records.%' and position is not null
     order by position`,
  );
  const events = await db.query<{ text: string }>(
    'select type as text from event where position is not null order by position',
  );
  return { audit: audit.map(({ text }) => text), events: events.map(({ text }) => text) };
}
const since = (all: string[], before: string[]) => all.slice(before.length);
/** The log holds, no position of the feed is left out, and nothing waits. */
async function assertWhole(db: Db = bench.db): Promise<void> {
  const { fault, waiting: inAudit } = await verifyAudit(db);
  assert.deepEqual([fault, inAudit, await waiting(db)], [undefined, 0, []]);
  const [feed] = await db.query<{ gaps: number }>(
    `select last_position - (select count(*) from event where position is not null) as gaps
     from sequencer
     where name = 'event'`,
  );
  assert.equal(feed?.gaps, 0);
}

test('a save, update, delete, tracking and prune changes rows of its dataset alone', async () => {
  const { calls, id } = await fresh();
  const changed = new Set<string>();
  const end = onEachStatement(({ text, values }) => {
    for (const part of normal(text).split(/; ?/)) {
      const table = /\b(?:insert into|update|delete from|^copy) (\w+)(?= |\b)/.exec(part)?.[1];
      if (table === undefined || / to stdout/.test(part)) continue;
      changed.add(table);
      // Of another dataset it could change nothing: `portable-statements.ts` sees to the rest.
      assert.ok(table === 'payload' || values.length === 0 || values.includes(id), part);
    }
  });
  try {
    await writeAndTrack(calls);
    await calls.prune(await calls.cursorOf(30));
    await calls.empty();
  } finally {
    end();
  }
  assert.deepEqual([...changed].sort(), [
    'dataset',
    'dataset_outbox',
    'payload',
    'prune',
    'record',
    'tracked',
  ]);
  await placeEntries(bench.db);
  await assertWhole();
});

test('a transaction about records reads and changes the tables of its dataset alone', async () => {
  const { calls, connection } = await fresh();
  const [all] = await bench.db.query<{ names: string[] }>(
    `select array_agg(table_name::text) as names from information_schema.tables where table_schema = 'public'`,
  );
  const [place] = await bench.db.query<{ environment: number }>(
    'select environment_id as environment from connection where id = $1',
    [connection.id],
  );
  const environmentId = place!.environment;
  const policy = { pruneAfterDays: 1, removeTombstonesAfterDays: 1, waitForConsumers: true };
  await setPolicy(bench.db, { environmentId, integrationKey: undefined }, policy);
  const consumer = { connection: connection.id, model: 'Row', variant: 'base', name: 'reader' };
  const by = {
    environmentId,
    actor: 'key:1',
    target: 'test',
    keyId: 1,
    mayRead: true,
    mayWrite: true,
  };
  const touched = new Set<string>();
  const inTransaction = new WeakSet<object>();
  const end = onEachStatement(({ client, text }) => {
    for (const part of normal(text).split(/; ?/)) {
      if (/^begin/.test(part)) inTransaction.add(client);
      if (/^(commit|rollback)/.test(part)) inTransaction.delete(client);
      if (!inTransaction.has(client)) continue;
      for (const [, name] of part.matchAll(/\b(?:from|join|into|update|copy) (\w+)\b(?! ?\()/g))
        touched.add(name!);
      for (const [, name] of part.matchAll(/^(?:insert into|copy) (\w+)/g)) touched.add(name!);
    }
  });
  try {
    await writeAndTrack(calls);
    await calls.list({ limit: 5 });
    await calls.list({ ids: ['r25'] });
    const cursor = await calls.cursorOf(30);
    await calls.estimate(cursor);
    await calls.prune(cursor);
    await acknowledge(bench.db, { ...consumer, cursor, by });
    await removeConsumer(bench.db, { ...consumer, by });
    const [due] = await bench.db.query<{ id: number }>('select id from dataset where connection = $1', [
      connection.id,
    ]);
    const dataset = { id: due!.id, model: 'Row', variant: 'base', connection: connection.id };
    const pace = createPace();
    const now = new Date(Date.now() + 2 * 86_400_000);
    const work = { due: { ...dataset, environmentId, target: 'test' }, now, signal: undefined, pace };
    const removed = await retainDataset(bench.db, { ...work, clock: () => performance.now() });
    assert.ok(removed.payloads > 0 && removed.tombstones > 0);
  } finally {
    end();
  }
  assert.deepEqual([...touched].filter((name) => all!.names.includes(name)).sort(), [
    // The lock of nodes without `dataset.closed`: see `lockForWrite`.
    ...(isDirect ? [] : ['connection']),
    'consumer',
    'dataset',
    'dataset_outbox',
    'payload',
    'prune',
    'record',
    'tracked',
  ]);
  await placeEntries(bench.db);
  await assertWhole();
});

test('twenty prunes at once leave twenty receipts, while two nodes copy them at once', async () => {
  const before = await arrived();
  const datasets = await Promise.all(Array.from({ length: 20 }, fresh));
  const cursors = await Promise.all(datasets.map(({ calls }) => calls.cursorOf(20)));
  let isOver = false;
  const copying = [bench.db, other].flatMap((db) =>
    [1, 2].map(async () => {
      while (!isOver) await Promise.all([auditSequence, eventSequence].map((one) => placeNext(db, one)));
    }),
  );
  const prunes = datasets.map(async ({ calls }, n) => {
    while ((await calls.prune(cursors[n]!, 5)).hasMore);
    await calls.empty();
  });
  await Promise.all(prunes);
  isOver = true;
  await Promise.all(copying);
  await placeEntries(other);
  const after = await arrived();
  assert.deepEqual(since(after.audit, before.audit), Array(80).fill('records.pruned 5'));
  assert.deepEqual(since(after.events, before.events), Array(20).fill('records.dataset_emptied'));
  await assertWhole();
});

for (const stop of stops) {
  test(`a node that is killed when it has ${stop} its entries loses none and doubles none`, async () => {
    const before = await arrived();
    const { calls, connection } = await fresh();
    const file = join(import.meta.dirname, 'outbox-node.fixture.ts');
    const given = [JSON.stringify(bench.target), String(connection.id), await calls.cursorOf(20), stop];
    const child = spawn(process.execPath, [file, ...given], { stdio: ['ignore', 'pipe', 'inherit'] });
    let seen = 0;
    for await (const _ of createInterface({ input: child.stdout })) {
      seen += 1;
      if (seen === 2) break;
    }
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
    // The database may need a moment to notice it.
    for (let look = 0; (await waiting()).length > 0; look += 1) {
      assert.ok(look < 500, 'the entries still wait');
      await Promise.all([placeEntries(bench.db), placeEntries(other)]);
      await sleep(20);
    }
    const after = await arrived();
    assert.deepEqual(since(after.audit, before.audit), ['records.pruned 20']);
    assert.deepEqual(since(after.events, before.events), ['records.dataset_emptied']);
    await assertWhole();
  });
}

test('entries arrive when connection and dataset are removed before they are copied', async () => {
  const before = await arrived();
  const { calls, connection, id } = await fresh();
  await calls.prune(await calls.cursorOf(20));
  await calls.empty();
  await calls.save(rows(1, 3));
  await bench.db.transaction((tx) => destroyConnection(tx, { id: connection.id, at: new Date() }));
  await destroyOrphans(bench.db);
  await bench.db.query('delete from connection where id = $1', [connection.id]);
  assert.deepEqual(await bench.db.query('select from dataset where id = $1', [id]), []);
  assert.deepEqual(await arrived(), before);
  await placeEntries(bench.db);
  const after = await arrived();
  assert.deepEqual(since(after.audit, before.audit), ['records.pruned 20', 'records.destroyed 3']);
  assert.deepEqual(since(after.events, before.events), ['records.dataset_emptied']);
  await assertWhole();
});

test('events of a removed environment go with it, and its audit entries arrive', async () => {
  const own = await openRecordBench();
  try {
    const calls = datasetCalls(own.db, await own.connect());
    await calls.save(rows(1, 5));
    await calls.prune(await calls.cursorOf(5));
    await calls.empty();
    await own.db.query('delete from connection');
    await own.db.query('delete from integration');
    await own.db.query('delete from environment');
    await placeEntries(own.db);
    assert.deepEqual(await arrived(own.db), { audit: ['records.pruned 5'], events: [] });
    await assertWhole(own.db);
    await own.db.query('delete from dataset');
  } finally {
    await own.end();
  }
});

test('a backup from between commit, copy and removal has each entry once after its restore', async () => {
  const { calls } = await fresh();
  const before = await arrived();
  const cursor = await calls.cursorOf(20);
  await calls.prune(cursor, 10);
  const keeping: Sequence = {
    name: 'audit',
    async place(tx, at) {
      const { count, isMore } = await auditSequence.place(tx, at);
      return { count, isMore };
    },
  };
  await placeNext(bench.db, keeping);
  await calls.prune(cursor, 10);
  assert.equal((await waiting()).length, 2);
  await calls.empty();
  await bench.db.query('select pg_sleep(0.1)');
  const restored = await bench.copy();
  try {
    for (const db of [restored.db, bench.db]) {
      await placeEntries(db);
      const after = await arrived(db);
      assert.deepEqual(since(after.audit, before.audit), ['records.pruned 10', 'records.pruned 10']);
      assert.deepEqual(since(after.events, before.events), ['records.dataset_emptied']);
      await assertWhole(db);
    }
  } finally {
    await restored.drop();
  }
});

test('an entry that is copied while a restore point of the cluster is made is removed afterwards', {
  skip: isCluster ? false : 'needs a Citus cluster: npm run test:citus',
}, async () => {
  const { calls } = await fresh();
  const before = await arrived();
  await bench.db.transaction(async (tx) => {
    // As `citus_create_restore_point` does.
    await tx.query('lock table pg_dist_transaction in exclusive mode');
    await calls.prune(await calls.cursorOf(20));
    await placeEntries(bench.db);
    assert.deepEqual(since((await arrived()).audit, before.audit), ['records.pruned 20']);
    assert.equal((await waiting()).length, 1);
  });
  await placeEntries(bench.db);
  assert.deepEqual(since((await arrived()).audit, before.audit), ['records.pruned 20']);
  await assertWhole();
});

test('entries of datasets and others come in the order of their writes', async () => {
  const { calls } = await fresh();
  const [environment] = await bench.db.query<{ id: number }>('select id from environment');
  const environmentId = environment!.id;
  const data = { datasets: 1, pruned: 0, bytes: 0, tombstones_removed: 0 };
  const before = await arrived();
  const expected: string[] = [];
  for (let n = 0; n < 3; n += 1) {
    await calls.empty();
    await calls.save(rows(1, 2));
    await queueEvent(bench.db, { environmentId, type: 'records.retention_done', data });
    expected.push('records.dataset_emptied', 'records.retention_done');
  }
  const cursor = await calls.cursorOf((await calls.row()).last_seq);
  await calls.prune(cursor, 1);
  const entry = { environmentId, actor: 'test', target: 'x', details: { count: 0 } };
  await writeAudit(bench.db, { ...entry, action: 'records.other' });
  await calls.prune(cursor);
  await placeEntries(bench.db);
  const after = await arrived();
  assert.deepEqual(since(after.events, before.events), expected);
  assert.deepEqual(since(after.audit, before.audit), [
    'records.pruned 1',
    'records.other 0',
    'records.pruned 1',
  ]);
  await assertWhole();
});

test('a text that would end a statement is a text', async () => {
  const hostile = `'); drop table audit; -- \\' \u{1f511} $1 "`;
  const calls = datasetCalls(bench.db, await bench.connect(), { model: hostile });
  await calls.save(rows(1, 2));
  await calls.prune(await calls.cursorOf(2));
  await calls.empty();
  await placeEntries(bench.db);
  const [entry] = await bench.db.query<{ model: string }>(
    `select details ->> 'model' as model from audit order by position desc limit 1`,
  );
  const [event] = await bench.db.query<{ model: string }>(
    `select data ->> 'model' as model from event order by position desc limit 1`,
  );
  assert.deepEqual([entry?.model, event?.model], [hostile, hostile]);
  await assertWhole();
});

async function writeAndTrack(calls: ReturnType<typeof datasetCalls>): Promise<void> {
  await calls.save(rows(10, 30, 'other'));
  await calls.update([{ id: 'r1', n: 0 }]);
  await calls.delete('r2');
  await calls.set({ massDeleteNumber: 2, massDeleteShare: 0 });
  await calls.startTracking();
  await calls.save(rows(3, 9));
  await assert.rejects(calls.endTracking(), { code: 'mass_delete_held' });
  await calls.endTracking('mass_delete');
}
