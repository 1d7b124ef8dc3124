// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { randomUUIDv7 } from 'node:crypto';
import { after, before, beforeEach, test } from 'node:test';
import { destroyConnection } from '../../connections/store/save.ts';
import { fencedDb } from '../context/fence.ts';
import { acquireLock, releaseLock } from '../context/locks.ts';
import { getFunction, removeFunction } from '../deploys/store.ts';
import { type Claim, claimLost, claimWaiting, release } from './claims.ts';
import { beginRun, queueRun } from './queue.ts';
import { createRunLog } from './run-log.ts';
import { openRunsBench, type RunsBench, syncOf } from './runs.fixture.ts';
import { cancelRun, runSweepJob } from './runs.ts';
import { queueDue } from './schedule.ts';
import { settle } from './settle.ts';

/** How runs end, and what is told of it: whatever happened in between. */
let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
});
after(() => bench.end());
beforeEach(async () => {
  await bench.db.query('delete from run');
  await bench.db.query('delete from event');
  await bench.db.query('delete from function');
});

let connections = 0;
const connect = () => {
  connections += 1;
  return bench.connect(`c-${connections}`);
};
const claim = async (): Promise<Claim> => {
  await queueDue(bench.db, bench.now());
  const { claims } = await claimWaiting(bench.db, { now: bench.now(), max: 1, after: 0 });
  return claims[0]!;
};
const lose = async (): Promise<Claim> => {
  await bench.db.query(`update run set lease_until = now() where state = 'running'`);
  const [taken] = await claimLost(bench.db, { now: bench.now(), max: 1 });
  return taken!;
};
const cancel = (id: string) =>
  bench.db.transaction((tx) => cancelRun(tx, { environmentId: bench.environment.id, id, at: bench.now() }));
const states = async () => (await bench.runs()).map(({ state, error }) => [state, error?.code]);
const action = `exports.default = { type: 'action', description: 'A test.', async exec() { return 1; } };`;
/** Left to run, without a caller who waits. */
async function leave() {
  const connection = await connect();
  const found = await getFunction(bench.db, { ...bench.place, name: 'act' });
  const of = { ...connection, environmentId: bench.environment.id, integrationKey: 'api' };
  const id = await bench.db.transaction((tx) =>
    queueRun(tx, {
      connection: of,
      found,
      kind: 'action',
      trigger: 'action',
      priority: 20,
      input: null,
      maxAttempts: 1,
      now: bench.now(),
    }),
  );
  return { id, connection, found };
}

test('a cancelled run is not started again, neither after the loss of its node nor after an outage', async () => {
  await bench.deploy('rows', syncOf(`await nango.log('began');`));
  await connect();
  const held = await claim();
  await cancel(held.id);
  await bench.db.query(`update run set lease_until = now() where state = 'running'`);
  await bench.one.runner.runDue();
  assert.deepEqual([await states(), await bench.lines()], [[['cancelled', 'cancelled']], []]);

  await bench.db.query(`update sync set next_at = now() - interval '1 second'`);
  const next = await claim();
  await cancel(next.id);
  const outage = { code: 'unavailable', message: 'An outage.' };
  const ending = { state: 'failed', error: outage, mayPass: true } as const;
  await settle(bench.db, { claim: next, ending, now: bench.now(), random: 0 });
  assert.deepEqual((await states()).at(-1), ['cancelled', 'cancelled']);
});

test('a run outlives the loss of nodes with its attempts, and not of any number of nodes', async () => {
  await bench.deploy('rows', syncOf(''));
  await connect();
  const first = await claim();
  const resumed = await lose();
  const outage = { code: 'unavailable', message: 'An outage.' };
  const ending = { state: 'failed', error: outage, mayPass: true } as const;
  const settling = { ending, now: bench.now(), random: 0 };
  assert.deepEqual([first.maxAttempts - first.attempt, resumed.maxAttempts - resumed.attempt], [2, 2]);
  assert.equal(await settle(bench.db, { claim: resumed, ...settling }), 'waits');
  await bench.db.query(
    `update run
     set state = 'running', attempt = 25, owner = gen_random_uuid(), lease_until = now()
     where state = 'waiting'`,
  );
  await bench.one.runner.runDue();
  assert.deepEqual(await states(), [['failed', 'function_unavailable']]);
});

test('the log lines of a resumed run follow those before its release', async () => {
  await bench.deploy('rows', syncOf(''));
  await connect();
  const logging = async ({ id, attempt }: Claim, text: string) => {
    const onFailure = (error: unknown) => assert.fail(String(error));
    const log = createRunLog({ db: bench.db, runId: id, attempt, now: bench.now, onFailure });
    log.write({ level: 'info', text });
    await log.end();
  };
  const first = await claim();
  await logging(first, 'one');
  await release(bench.db, first);
  const second = await claim();
  assert.deepEqual([second.id, second.attempt], [first.id, first.attempt]);
  await logging(second, 'two');
  await logging(await lose(), 'three');
  assert.deepEqual(await bench.lines(), ['one', 'two', 'three']);
});

test('the caller of an asynchronous action gets its end, also if it never started', async () => {
  await bench.deploy('act', action, 'action');
  const cancelled = await leave();
  await cancel(cancelled.id);
  await cancel(cancelled.id);
  const held = await leave();
  await bench.db.query(`update connection set status = 'needs_reauth' where id = $1`, [held.connection.id]);
  await bench.one.runner.runDue();
  const removed = await leave();
  await bench.db.transaction((tx) =>
    removeFunction(tx, { environmentId: bench.environment.id, functionId: removed.found.id }),
  );
  const told = (await bench.events('action.%')).map(({ type, data }) => [
    type,
    data.run,
    (data.error as { code: string }).code,
  ]);
  assert.deepEqual(told, [
    ['action.failed', cancelled.id, 'cancelled'],
    ['action.failed', held.id, 'connection_needs_reauth'],
    ['action.failed', removed.id, 'function_removed'],
  ]);
});

test('a model may be called as something that every object has', async () => {
  await bench.deploy(
    'rows',
    `const z = require('zod');
     const model = z.object({ id: z.string() });
     exports.default = {
       type: 'sync', description: 'A test.', frequency: 'every hour',
       models: { constructor: model, toString: model, hasOwnProperty: model },
       async exec(nango) {
         for (const name of ['constructor', 'toString']) await nango.batchSave([{ id: '1' }, { id: '2' }], name);
       },
     };`,
  );
  await connect();
  await bench.one.runner.runDue();
  assert.deepEqual(await states(), [['succeeded', undefined]]);
  assert.deepEqual(
    (await bench.events('sync.%')).map(({ type, data }) => [type, data.model, data.added]).sort(),
    [
      ['sync.changed', 'constructor', 2],
      ['sync.changed', 'toString', 2],
      ['sync.unchanged', 'hasOwnProperty', undefined],
    ],
  );
  assert.equal('added' in Object, false);
});

test('a node that lost a run releases none of its locks, and a deleted run holds none', async () => {
  await bench.deploy('rows', syncOf(''));
  await connect();
  const at = { environmentId: bench.environment.id, key: 'k' };
  const late = await claim();
  const acquire = (runId: string) =>
    bench.db.transaction((tx) => acquireLock(tx, { ...at, runId, ttlMs: 60_000 }));
  assert.equal(await acquire(late.id), true);
  const current = await lose();
  const released = fencedDb(bench.db, late).transaction((tx) => releaseLock(tx, { ...at, runId: late.id }));
  await assert.rejects(released, { code: 'run_lost' });
  assert.equal(await acquire(randomUUIDv7()), false);
  await bench.db.query('delete from run where id = $1', [current.id]);
  assert.equal(await acquire(randomUUIDv7()), true);
});

test('the data that functions store for a connection are deleted with it', async () => {
  await bench.deploy('keeps', syncOf(''));
  const [gone, there] = await Promise.all(['gone', 'there'].map((name) => bench.connect(name)));
  await bench.db.query(
    `insert into function_state (function_id, connection_id, variant, value)
     select function_id, connection_id, variant, 'sealed' from sync`,
  );
  const job = runSweepJob({ db: bench.db, now: bench.now, keptDays: 1 });
  const sweep = async () => {
    await job.run({}, new AbortController().signal);
    const rows = await bench.db.query<{ id: number }>(
      'select distinct connection_id as id from function_state where connection_id = any($1)',
      [[gone!.id, there!.id]],
    );
    return rows.map(({ id }) => id);
  };
  await bench.db.transaction((tx) => destroyConnection(tx, { id: gone!.id, at: bench.now() }));
  assert.deepEqual(await sweep(), [there!.id]);
  // The next run of the job looks at connections that were deleted since.
  await bench.db.transaction((tx) => destroyConnection(tx, { id: there!.id, at: bench.now() }));
  assert.deepEqual(await sweep(), []);
});

test('a judgement whose node was lost is over by the next sweep', async () => {
  await bench.deploy(
    'judge',
    `exports.default = { type: 'onEvent', description: 'A test.', event: 'validate-connection', async exec() {} };`,
    'on_event',
  );
  const found = await getFunction(bench.db, { ...bench.place, name: 'judge' });
  await beginRun(bench.db, {
    connection: { id: null, environmentId: bench.environment.id, integrationKey: 'api', connectionId: 'x' },
    found,
    environment: 'dev',
    kind: 'on_event',
    priority: 15,
    input: null,
    now: bench.now(),
    leaseMs: 0,
  });
  await runSweepJob({ db: bench.db, now: bench.now, keptDays: 1 }).run({}, new AbortController().signal);
  assert.deepEqual(await states(), [['failed', 'function_unavailable']]);
});
