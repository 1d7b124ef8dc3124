import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { isCluster, isDirect } from '../../../test/support/citus.ts';
import { runCommand } from '../../../test/support/command.ts';
import {
  openEmptyCluster,
  openTestDatabase,
  type TestDatabase,
  urlOf,
} from '../../../test/support/database.ts';
import { datasetCalls, openRecordBench, rows } from '../../../test/support/records.ts';
import { migrate } from '../../db/migrate.ts';
import type { Db } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { databaseChecks } from '../doctor/database.ts';
import { type ClusterState, checkCluster, requireSoundCluster } from './checks.ts';
import { distributedTables, isDistributed } from './distribute.ts';
import { readClusterStatus } from './status.ts';

/** Those that need a cluster run by `npm run test:citus`. */
const skip = isCluster ? false : 'needs a Citus cluster: npm run test:citus';

const sound: ClusterState = {
  version: '13.2-1',
  recoveryMs: 5_000,
  isCoordinatorAdded: true,
  workers: 2,
  unsynced: [],
  copiedShards: 0,
};

test('a cluster that cannot keep records is refused, with the remedy', () => {
  assert.equal(checkCluster(sound).state, 'ok');
  const faults: [Partial<ClusterState>, 'fail' | 'warn', RegExp][] = [
    [{ version: '12.1-1' }, 'fail', /Citus 13 or later/],
    [{ isCoordinatorAdded: false }, 'fail', /citus_set_coordinator_host/],
    [{ workers: 0 }, 'fail', /citus_add_node/],
    [{ unsynced: ['db2:5432'] }, 'fail', /start_metadata_sync_to_all_nodes/],
    [{ copiedShards: 32 }, 'fail', /shard_replication_factor = 1/],
    [{ recoveryMs: -1 }, 'fail', /recover_2pc_interval/],
    [{ recoveryMs: 60_000 }, 'warn', /recover_2pc_interval/],
  ];
  for (const [fault, state, fix] of faults) {
    const result = checkCluster({ ...sound, ...fault });
    assert.equal(result.state, state);
    assert.match(result.fix ?? '', fix);
  }
});

test('without Citus the records are not distributed, and the command says what is missing', {
  skip: isCluster,
}, async () => {
  const database = await openTestDatabase();
  try {
    assert.equal(await isDistributed(database.db), false);
    await requireSoundCluster(database.db);
    const env = { DATABASE_URL: urlOf(database.target) };
    const refused = await runCommand(['cluster', 'distribute'], env);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /create extension citus/);
    const keys = `k1:${randomBytes(32).toString('base64')}`;
    const direct = { ...env, TRELLIS_ENCRYPTION_KEYS: keys, TRELLIS_RECORDS_DIRECT: 'on', PORT: '0' };
    const start = await runCommand(['start'], { ...direct, TRELLIS_SANDBOX: 'off' });
    assert.equal(start.code, 1);
    assert.match(start.stderr, /TRELLIS_RECORDS_DIRECT=on requires records on a Citus cluster/);
    const { code, stdout } = await runCommand(['cluster', 'status', '--json'], env);
    assert.deepEqual([code, JSON.parse(stdout)], [1, { distributed: false, workers: [] }]);
  } finally {
    await database.drop();
  }
});

/** The rows of all datasets, whatever tables they are in. */
async function contentOf(db: Db): Promise<Record<string, unknown>> {
  const content: Record<string, unknown> = {};
  for (const table of ['dataset_name', ...distributedTables.map(([name]) => name)]) {
    // Order of writes and transaction of an entry are of one machine.
    const texts = await db.query<{ text: string }>(
      `select (to_jsonb(${table}) - 'written_in')::text as text from ${table}`,
    );
    content[table] = texts.map(({ text }) => text).sort();
  }
  return content;
}

async function openFilled(): Promise<TestDatabase> {
  const database = await openEmptyCluster();
  const { db } = database;
  await migrate(db);
  for (const statement of [
    `insert into dataset (connection, model, variant, last_seq, records, payload_bytes)
     select n, 'Row', 'base', 20, 20, 1000 from generate_series(1, 100) as n`,
    `insert into record (dataset_id, seq, first_seen_at, last_modified_at, size, hash, external_id)
     select id, n, now(), now(), 50, '\\x00', 'r' || n from dataset, generate_series(1, 20) as n`,
    `insert into payload (dataset_id, seq, body)
     select id, n, decode(repeat('ab', 50), 'hex') from dataset, generate_series(2, 20) as n`,
    `insert into prune (dataset_id, pruned_at, seqs, count, bytes) select id, now(), '{[1,2)}', 1, 50 from dataset`,
    `insert into tracked (dataset_id, seqs) select id, '{1,2}' from dataset`,
    `insert into consumer (dataset_id, name, seq, acknowledged_at) select id, 'app', 1, now() from dataset`,
    `insert into dataset_outbox (dataset_id, id, sequence, entry)
     select id, gen_random_uuid(), 'audit', '{"actor": "a", "action": "b", "target": "c"}' from dataset`,
  ])
    await db.query(statement);
  return database;
}

test('a filled database is distributed whole, also after a kill at each step', { skip }, async () => {
  const { db, target, drop } = await openFilled();
  try {
    const before = await contentOf(db);
    const file = join(import.meta.dirname, 'distribute.fixture.ts');
    let isDone = false;
    for (let stopAt = 1; !isDone; stopAt += 1) {
      const child = spawn(process.execPath, [file, JSON.stringify(target), String(stopAt)], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const gone = once(child, 'exit');
      for await (const line of createInterface({ input: child.stdout })) {
        isDone = line === 'done';
        if (!isDone) child.kill('SIGKILL');
      }
      await gone;
      assert.deepEqual(await contentOf(db), before);
    }
    assert.equal(await isDistributed(db), true);
    const [left] = await db.query<{ bytes: number }>(
      `select sum(pg_relation_size(name::regclass))::bigint as bytes from unnest($1::text[]) as name`,
      [distributedTables.map(([name]) => name)],
    );
    assert.equal(left?.bytes, 0);
    const { code, stdout } = await runCommand(['cluster', 'distribute'], { DATABASE_URL: urlOf(target) });
    assert.deepEqual([code, stdout], [0, 'The records were distributed already.\n']);
    for (const check of databaseChecks(db, { isEmbedded: false, processes: 1 })) await check.run();
    const { workers } = await readClusterStatus(db);
    assert.deepEqual(
      workers.map(({ groups, isReachable, inDoubt }) => [groups, isReachable, inDoubt]),
      [
        [16, true, 0],
        [16, true, 0],
      ],
    );
  } finally {
    await drop();
  }
});

test('a worker that is away stops its own datasets alone, with unavailable', {
  skip: isDirect ? 'in direct.test.ts' : skip,
}, async () => {
  const bench = await openRecordBench();
  const { db } = bench;
  try {
    const connection = await bench.connect();
    const models = Array.from({ length: 12 }, (_, n) => datasetCalls(db, connection, { model: `M${n}` }));
    for (const calls of models) await calls.save(rows(1, 5));
    const [worker] = await db.query<{ id: number; port: number }>(
      'select nodeid as id, nodeport as port from pg_dist_node where groupid > 0 order by groupid limit 1',
    );
    const move = (port: number) =>
      db.query('select citus_update_node($1, nodename, $2) from pg_dist_node where nodeid = $1', [
        worker!.id,
        port,
      ]);
    await move(1);
    const results = await Promise.allSettled(models.map((calls) => calls.save(rows(3, 8))));
    const reasons = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
    assert.ok(reasons.length > 0 && reasons.length < models.length, `${reasons.length} of 12 failed`);
    for (const reason of reasons) {
      assert.ok(reason instanceof AppError, String(reason));
      assert.deepEqual([reason.code, reason.retryAfterS], ['unavailable', 5]);
    }
    const status = await readClusterStatus(db);
    assert.deepEqual(
      status.workers.map(({ isReachable }) => isReachable),
      [false, true],
    );
    await move(worker!.port);
    for (const calls of models) {
      await calls.save(rows(3, 8));
      assert.equal((await calls.listAll()).length, 8);
    }
  } finally {
    await bench.end();
  }
});
