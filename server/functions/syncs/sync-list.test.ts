// Slow: it fills tables with many rows.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { countingBlocks } from '../../../test/support/blocks.ts';
import { listConnections } from '../../connections/store/list.ts';
import { openRunsBench, type RunsBench, syncOf } from '../runs/runs.fixture.ts';
import { listRuns, runStates, runSweepJob } from '../runs/runs.ts';
import { bringNearer } from '../runs/schedule.ts';
import { countSyncs, listFailingSyncs, listSyncs, syncStates } from './sync-list.ts';

let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
});
after(() => bench.end());

test('lists, counts and the jobs of each minute read few blocks, however many syncs there are', async () => {
  await bench.db.query(
    `insert into connection (environment_id, integration_id, connection_id, data_key, deleted_at)
     select $1, $2, 'c' || n, case when n % 1000 > 0 then gen_random_uuid() end, case when n % 1000 = 0 then now() end
     from generate_series(1, 30000) as n`,
    [bench.environment.id, bench.integration.id],
  );
  await bench.deploy('rows', syncOf(''));
  await bench.deploy('others', syncOf(''));
  await bench.db.query(
    `update sync
     set failures = case when id % 3000 = 7 then 1 else 0 end, state = case when id % 3000 = 8 then 'paused' else 'active' end`,
  );
  await bench.db.query(
    `insert into run
       (id, environment_id, function_id, version_id, connection_id, sync_id, kind, trigger, state, ended_at)
     select
       lpad(to_hex(hashint8extended(sync.id, 0)), 32, '0')::uuid, $1, function_id, version_id, connection_id, sync.id, 'sync', 'schedule',
       case when sync.id % 5000 = 7 then 'failed' when sync.id % 5000 = 8 then 'cancelled' else 'succeeded' end, now()
     from sync
     join function on function.id = function_id
     order by 1`,
    [bench.environment.id],
  );
  await bench.db.query('vacuum analyze');
  const { db, reads } = countingBlocks(bench.db);
  const environmentId = bench.environment.id;
  const all = { environmentId, vault: bench.one.vault, after: 0, limit: 25 };
  for (const state of [undefined, ...syncStates]) await listSyncs(db, { ...all, state });
  await listSyncs(db, { ...all, function: 'others' });
  await listSyncs(db, { ...all, connectionId: 'c29000' });
  assert.deepEqual(await countSyncs(db, { environmentId }), {
    running: 0,
    paused: 20,
    held: 0,
    failing: 20,
    active: 9_960,
  });
  await countSyncs(db, { environmentId, function: 'others' });
  await listFailingSyncs(db, { environmentId, limit: 100 });
  for (const state of [undefined, ...runStates]) await listRuns(db, { environmentId, state, limit: 50 });
  const failing = { environmentId, hasFailingSync: true };
  await listConnections(db, { vault: all.vault, filter: failing, sort: 'created', limit: 50, page: 0 });
  for (const { blocks, plan } of reads) assert.ok(blocks < 150, plan);
  await bringNearer(db, bench.now());
  await runSweepJob({ db, now: bench.now, keptDays: 14 }).run({}, new AbortController().signal);
  for (const { blocks, plan } of reads) assert.ok(blocks < 250, plan);
});

test('a page is short where a connection was just deleted, and the next one follows it', async () => {
  const page = { environmentId: bench.environment.id, vault: bench.one.vault, function: 'rows', limit: 2 };
  const { syncs: first, next } = await listSyncs(bench.db, { ...page, after: 0 });
  const [gone, kept] = first;
  assert.equal(next, kept!.id);
  await bench.db.query(
    'update connection set deleted_at = now(), data_key = null where id = (select connection_id from sync where id = $1)',
    [gone!.id],
  );
  assert.deepEqual(await listSyncs(bench.db, { ...page, after: 0 }), { syncs: [kept], next });
});
