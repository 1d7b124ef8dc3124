// Every statement that finds rows by their owner, in the plan that PostgreSQL makes of it.
// Slow: its tests take seconds each.

import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import { keepDays } from '../../server/activity/partitions.ts';
import type { Db } from '../../server/db/pool.ts';
import { queueFollowing } from '../../server/functions/runs/queue.ts';
import { listDatasets } from '../../server/records/datasets.ts';
import { acknowledge, listConsumers } from '../../server/records/retention/consumers.ts';
import { closeOrphans, destroyLeftovers, destroyOrphans } from '../../server/records/retention/destroy.ts';
import { removePolicy, setPolicy } from '../../server/records/retention/policy.ts';
import { runRetention } from '../../server/records/retention/retention.ts';
import type { RecordOwner } from '../../server/records/rows.ts';
import { findOpenTrackings } from '../../server/records/write/track-deletes.ts';
import { DataKey } from '../../server/vault.ts';
import { prepareScenarios, scenarios } from '../journeys/scenarios.ts';
import { fillOtherOwners } from '../support/other-owners.ts';
import { allowed, normal } from '../support/portable-statements.ts';
import { recordStatements, type Sent } from '../support/recorder.ts';
import { datasetCalls, rows } from '../support/records.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';
import { type Explained, faultsOf, readTables } from './plan.ts';

const names = [
  'record',
  'payload',
  'tracked',
  'prune',
  'consumer',
  'dataset',
  'connection',
  'run',
  'run_line',
  'event',
  'delivery',
  'delivery_lane',
  'operation',
  'operation_message',
  'audit',
  'operation_count',
  'connection_name',
];

let trellis: TestTrellis;
let sent: Sent[];

before(async () => {
  trellis = await openTrellis();
  const { db } = trellis;
  await keepDays(db, { now: new Date(), keptDays: 15 });
  for (const name of await relations(db))
    await db.query(`alter table ${name} set (autovacuum_enabled = off)`);
  // As many datasets as the statistics list: one that they do not know is expected to have a single row.
  await fillOtherOwners(db, { connections: 5_000, datasets: 100, rows: 20_000 });
  await analyze(db);
  const recorder = recordStatements();
  await runScenarios();
  await keepRecords(db);
  recorder.end();
  sent = distinct(recorder.sent);
  // What is true: the newest owner has a tenth of all.
  const datasetId = '(select max(id) from dataset)';
  for (const [table, columns, values] of [
    [
      'record',
      'first_seen_at, last_modified_at, size, hash, external_id',
      `now(), now(), 1, '\\x00', 'more-' || n`,
    ],
    ['payload', 'body', `'\\x00'`],
  ])
    await db.query(
      `insert into ${table} (dataset_id, seq, ${columns})
       select ${datasetId}, 1000000 + n, ${values} from generate_series(1, 20000) as n`,
    );
});
after(async () => {
  // What was filled in is not read through for secrets.
  await trellis.db.transaction(async (tx) => {
    await tx.query('set local session_replication_role = replica');
    await tx.query(`truncate ${names.join()} cascade`);
  });
  await trellis.close();
});

async function runScenarios(): Promise<void> {
  const given = await prepareScenarios(trellis);
  // A node sends it only while a sync is to run once more.
  await queueFollowing(trellis.db, new Date());
  for (const [name, { request }] of Object.entries(scenarios)) {
    const { path, ...options } = request(given);
    await trellis.call(name.split(' ', 1)[0]!, path, options);
  }
  for (const query of [
    'text=none',
    'step_s=900',
    'step_s=86400&sync=none',
    'step_s=900&text=none',
    'by=function',
  ])
    await trellis.call('GET', `/operations/stats?${query}`);
}

/** Every way in which records are written, read and removed. */
async function keepRecords(db: Db): Promise<void> {
  const [place] = await db.query<{ environmentId: number; integration: number }>(
    `select environment.id as "environmentId", integration.id as integration
     from environment
     join integration on integration.environment_id = environment.id and integration.key = 'google-sheet'
     where environment.name = 'dev'`,
  );
  const { environmentId, integration } = place!;
  const connect = async (): Promise<RecordOwner> => {
    const [row] = await db.query<{ id: number }>(
      `insert into connection (environment_id, integration_id, connection_id, data_key)
       values ($1, $2, gen_random_uuid()::text, gen_random_uuid())
       returning id`,
      [environmentId, integration],
    );
    return { id: row!.id, dataKey: new DataKey(randomBytes(32)) };
  };
  const [connection, ending] = [await connect(), await connect()];
  const calls = datasetCalls(db, connection);
  await calls.set({ ignoreFields: ['text'] });
  await calls.save(rows(1, 60));
  await calls.saveBy(rows(1, 3), { ignoreFields: [], withChangedFields: true });
  await calls.prune(await calls.cursorOf(20), 5);
  await calls.save(rows(4, 20, 'another'));
  await calls.set({ ignoreFields: [], keepPrevious: true });
  await calls.save(rows(21, 24, 'other'));
  await calls.update([{ id: 'r25', n: 0 }]);
  await calls.startTracking();
  await calls.startTracking();
  await calls.save(rows(1, 30));
  await calls.save(rows(21, 40));
  await calls.endTracking('mass_delete');
  await calls.delete('r1', 'r2');
  const cursor = await calls.cursorOf(30);
  await calls.list({ cursor });
  await calls.list({ ids: ['r1', 'r3'] });
  await calls.list({ actions: ['UPDATED'], withChanges: true });
  await calls.list({ modifiedAfter: new Date(0).toISOString() });
  await calls.estimate(cursor);
  await calls.prune(cursor, 5);
  await calls.listAll();
  const name = { connection: connection.id, model: 'Row', variant: 'base' };
  await acknowledge(db, { by: 'service', ...name, name: 'billing', cursor });
  await listConsumers(db, connection.id);
  await listDatasets(db, connection.id);
  await findOpenTrackings(db, { ...name, trackings: [randomUUID()] });
  const policy = { pruneAfterDays: 1, removeTombstonesAfterDays: 1, waitForConsumers: true };
  await setPolicy(db, { environmentId, integrationKey: undefined }, policy);
  const later = new Date(Date.now() + 40 * 86_400_000);
  // The datasets of others come first.
  await runRetention(db, { now: later });
  assert.ok((await runRetention(db, { now: later })).tombstones > 0);
  await removePolicy(db, { environmentId, integrationKey: undefined });
  const gone = datasetCalls(db, ending);
  await gone.save(rows(1, 10));
  await gone.empty();
  await gone.list();
  await destroyLeftovers(db);
  await gone.save(rows(1, 10));
  await db.query('update connection set data_key = null, deleted_at = now() where id = $1', [ending.id]);
  await closeOrphans(db);
  assert.ok((await destroyOrphans(db)) > 0);
}

/** One of each text and way of planning: the last, whose owner is the newest. */
function distinct(all: readonly Sent[]): Sent[] {
  const mentions = new RegExp(`\\b(from|join|update|into) (only )?"?(${names.join('|')})\\b`);
  const asked = all.filter(
    ({ text }) => /^(select|with|insert|update|delete)/.test(text) && mentions.test(text),
  );
  return [...new Map(asked.map((one) => [`${one.text} ${one.planning}`, one])).values()];
}

async function relations(db: Db): Promise<string[]> {
  return [...(await readTables(db, names)).keys()];
}
async function analyze(db: Db): Promise<void> {
  for (const name of await relations(db)) await db.query(`analyze ${name}`);
}

/** Statements that may have other plans, by a part of their text, and why that is harmless. */
const exempt: Record<string, string> = {
  'from sync_again as again\n     join sync':
    'reads the unfinished runs of syncs once for all syncs that run again',
  'left join run as current\n    on current.sync_id = sync.id':
    'may read the unfinished runs of all syncs once, at most one of each, where that is cheaper than a look at each sync',
  'with recursive busy (connection_id, nth)': 'reads running runs alone: no more than all nodes run at once',
  'as "hour", "status", count(*)':
    'reads what an environment logged on the days that it counts, each a partition',
  'left join connection on connection.id = dataset_name.connection':
    'looks at all datasets once, for those without a connection',
  '(select id from connection where integration_id = $1)':
    'reads all connections for those of a deleted integration, which no index has',
  'select ctid as row_id from connection where': 'the same, to delete them',
  'join dataset on dataset.id = kept.id': 'looks at 5,000 datasets, for what a policy removes',
  'policy.remove_tombstones_after_days as "removeDays"': 'reads the policies of 5,000 datasets',
  'from (select "id", "created_at", "type"': 'reads what one environment logged on one day, a partition',
  'and event.position <= $4': 'gives events their deliveries, by their positions',
  'with placed as materialized (\n       \n  select':
    'replays events of one endpoint, 1,000 a statement; each reads its deliveries once',
};

/** What the planner may know. The tables are as large in all of them. */
const statistics: Record<string, (db: Db) => Promise<void>> = {
  'of other owners': async () => {},
  'that are true': analyze,
  'of tables of records that were empty': (db) =>
    forget(db, {
      of: ['record', 'payload', 'tracked', 'prune'],
      set: 'relpages = 10000, reltuples = 0',
    }),
  'that are none': (db) => forget(db, { of: names, set: 'relpages = 0, reltuples = -1' }),
};

async function forget(db: Db, { of, set }: { of: string[]; set: string }): Promise<void> {
  for (const name of (await readTables(db, of)).keys()) {
    await db.query('delete from pg_statistic where starelid = $1::regclass', [name]);
    await db.query(
      `update pg_class
       set ${set}
       where oid = $1::regclass or oid in (select indexrelid from pg_index where indrelid = $1::regclass)`,
      [name],
    );
  }
}

for (const [what, prepare] of Object.entries(statistics)) {
  test(`with statistics ${what} every statement finds an owner's rows by an index for its conditions`, async () => {
    const { db } = trellis;
    await prepare(db);
    const tables = await readTables(db, names);
    assert.deepEqual(
      [...tables]
        .filter(([name, { bytes }]) => names.includes(name) && bytes < 100_000)
        .map(([name]) => name),
      [],
    );
    const faults: string[] = [];
    for (const one of sent) {
      if (Object.keys(exempt).some((part) => one.text.includes(part))) continue;
      const found = faultsOf(await explain(db, one), tables);
      if (found.length > 0)
        faults.push([one.text, JSON.stringify(one.values).slice(0, 300), ...found].join('\n'));
    }
    assert.equal(faults.join('\n\n'), '');
  });
}

test('every statement that is exempt is one that the service sends', () => {
  for (const part of Object.keys(exempt))
    assert.ok(
      sent.some(({ text }) => text.includes(part)),
      part,
    );
});

test('every statement that may join datasets or leave them out is one that the service sends', () => {
  const texts = sent.map(({ text }) => normal(text));
  const parts = Object.keys(allowed).filter((part) => !allowed[part]!.endsWith('for an operator'));
  assert.deepEqual(
    parts.filter((part) => !texts.some((text) => text.includes(part))),
    [],
  );
});

async function explain(db: Db, { text, values, planning }: Sent): Promise<Explained> {
  return db.transaction(async (tx) => {
    if (planning !== undefined) await tx.query(planning);
    const [row] = await tx.query<{ 'QUERY PLAN': [Explained] }>(`explain (format json) ${text}`, values);
    return row!['QUERY PLAN'][0];
  });
}
