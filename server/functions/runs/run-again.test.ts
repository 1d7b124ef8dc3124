import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import type { Tx } from '../../db/pool.ts';
import { type Span, within } from '../../tracing/tracing.ts';
import { listSyncs } from '../syncs/sync-list.ts';
import { lockSyncs, pauseSyncs, resetSyncs, type Sync } from '../syncs/syncs.ts';
import { type Claim, claimLost, claimWaiting, release } from './claims.ts';
import { queueFollowing, queueRuns, queueSyncsSoon } from './queue.ts';
import { openRunsBench, type RunsBench, syncOf } from './runs.fixture.ts';
import { cancelRun } from './runs.ts';
import { queueDue } from './schedule.ts';
import { cancelled, type Ending, settle } from './settle.ts';

/** Of a sync that is asked for while a run of it goes on. */
let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
});
after(() => bench.end());
beforeEach(async () => {
  await bench.db.query('delete from run');
  await bench.db.query('delete from function');
  await bench.db.query('delete from connection');
  await bench.deploy('rows', syncOf('', `webhookSubscriptions: ['*'],`));
});

const locked = (change: (tx: Tx, syncs: Sync[]) => Promise<unknown>) =>
  bench.db.transaction(async (tx) => {
    await change(tx, await lockSyncs(tx, { ...bench.place, connectionId: undefined, wanted: [] }));
  });
const idsOf = (syncs: Sync[]) => syncs.map(({ id }) => id);
const trigger = () => locked((tx, syncs) => queueRuns(tx, { syncIds: idsOf(syncs), at: bench.now() }));
const pause = () => locked((tx, syncs) => pauseSyncs(tx, { syncIds: idsOf(syncs) }));
/** As each node looks, twice a second. */
const look = async () => {
  await queueFollowing(bench.db, bench.now());
  await queueDue(bench.db, bench.now());
};
const claim = async (): Promise<Claim> => {
  const { claims } = await claimWaiting(bench.db, { now: bench.now(), max: 10, after: 0 });
  assert.equal(claims.length, 1);
  return claims[0]!;
};
/** A sync whose first run goes on. */
const begun = async (): Promise<Claim> => {
  await bench.connect('ada');
  await look();
  return claim();
};
const succeeded: Ending = { state: 'succeeded', output: null };
const settled = (of: Claim, ending: Ending = succeeded) =>
  settle(bench.db, { claim: of, ending, now: bench.now(), random: 0 });
const states = async () => (await bench.runs()).map(({ state, trigger: by }) => `${state} ${by}`);

test('a change during a run is seen by the run that a trigger requests', async () => {
  await bench.deploy(
    'rows',
    syncOf(`await nango.batchSave((await nango.get({ endpoint: '/rows' })).data, 'Row');`),
  );
  const { id } = await bench.connect('ada');
  let rows = [{ id: 'a' }];
  const isAsked = Promise.withResolvers<void>();
  const isTriggered = Promise.withResolvers<void>();
  bench.serve(async (_request, response) => {
    const read = JSON.stringify(rows);
    isAsked.resolve();
    await isTriggered.promise;
    response.setHeader('content-type', 'application/json').end(read);
  });
  const running = bench.one.runner.runDue();
  await isAsked.promise;
  rows = [...rows, { id: 'b' }];
  await Promise.all(Array.from({ length: 20 }, trigger));
  isTriggered.resolve();
  await running;
  assert.deepEqual(await bench.records(id), ['a', 'b']);
  assert.deepEqual(
    (await bench.runs()).map(({ state, trigger: by }) => [state, by]),
    [
      ['succeeded', 'schedule'],
      ['succeeded', 'manual'],
    ],
  );
});

test('twenty triggers during a run, and at its end, make one more run, whichever node looks', async () => {
  const of = await begun();
  const many = <T>(act: () => Promise<T>) => Promise.all(Array.from({ length: 20 }, act));
  await many(trigger);
  await look();
  assert.deepEqual(await states(), ['running schedule']);
  const { syncs } = await listSyncs(bench.db, {
    environmentId: bench.environment.id,
    vault: bench.one.vault,
    after: 0,
    limit: 1,
  });
  assert.equal(syncs[0]?.state, 'running');
  await Promise.all([many(trigger), settled(of), many(look)]);
  await many(look);
  assert.deepEqual(await states(), ['succeeded schedule', 'waiting manual']);
  await settled(await claim());
  await many(look);
  assert.deepEqual(await states(), ['succeeded schedule', 'succeeded manual']);
});

test('a run that waits for its first time is due at once, and none follows it', async () => {
  await bench.connect('ada');
  await look();
  await bench.db.query('update run set not_before = $1', [new Date(bench.now().getTime() + 60_000)]);
  await trigger();
  await settled(await claim());
  await look();
  assert.deepEqual(await states(), ['succeeded manual']);
});

test('a run that has begun and waits to go on is due at once, and another one follows it', async () => {
  const failed: Ending = { state: 'failed', error: { code: 'unavailable', message: 'm' }, mayPass: true };
  const notice = (connection: number) =>
    bench.db.transaction((tx) => queueSyncsSoon(tx, { connection, types: undefined, at: bench.now() }));
  const of = await begun();
  for (const stop of [() => settled(of, failed), async () => release(bench.db, await claim())]) {
    await stop();
    // A notice of the provider is kept until that run is over.
    assert.equal((await notice(of.connection.id)).running, 1);
    await trigger();
    await look();
    assert.deepEqual(await states(), ['waiting manual']);
  }
  await settled(await claim());
  await look();
  assert.deepEqual(await states(), ['succeeded manual', 'waiting manual']);
});

test('the following run is linked to the trigger that requested it', async () => {
  const traceparent = `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`;
  const span: Span = { traceId: '1'.repeat(32), traceparent, set: () => {}, end: () => {} };
  const of = await begun();
  await within({ span }, trigger);
  await settled(of);
  await look();
  assert.equal((await claim()).traceparent, traceparent);
});

test('the schedule keeps its times after a requested run', async () => {
  const nextAt = async () => (await bench.db.query('select next_at from sync'))[0]?.next_at;
  const of = await begun();
  const at = await nextAt();
  await trigger();
  await settled(of);
  await look();
  await settled(await claim());
  await look();
  assert.deepEqual(await nextAt(), at);
  bench.advance(3_600_000);
  await look();
  assert.deepEqual(await states(), ['succeeded schedule', 'succeeded manual', 'waiting schedule']);
});

test('a run follows one that fails, that is cancelled or lost, and one that another version of the service ended', async () => {
  const ends: ((of: Claim) => Promise<unknown>)[] = [
    (of) => settled(of, { state: 'failed', error: { code: 'function_threw', message: 'm' }, mayPass: false }),
    (of) => settled(of, { state: 'held', error: { code: 'connection_blocked', message: 'm' } }),
    async (of) => {
      const { environmentId, id } = of;
      await bench.db.transaction((tx) => cancelRun(tx, { environmentId, id, at: bench.now() }));
      await settled(of, cancelled);
    },
    async () => {
      await bench.db.query(`update run set lease_until = now() where state = 'running'`);
      await look();
      const [of] = await claimLost(bench.db, { now: bench.now(), max: 10 });
      await settled(of!);
    },
    () =>
      bench.db.query(
        `update run set state = 'succeeded', owner = null, lease_until = null, ended_at = now() where state = 'running'`,
      ),
  ];
  let of = await begun();
  for (const end of ends) {
    await trigger();
    await end(of);
    await look();
    of = await claim();
    assert.equal(of.trigger, 'manual');
  }
});

test('a pause cancels the following run, and a trigger after it counts', async () => {
  const of = await begun();
  await trigger();
  await pause();
  await look();
  assert.deepEqual(await bench.db.query('select from sync_again'), []);
  await trigger();
  await settled(of);
  await look();
  assert.deepEqual(await states(), ['succeeded schedule', 'waiting manual']);
});

test('a reset starts the requested run, and no other run follows', async () => {
  await begun();
  await trigger();
  await locked(async (tx, syncs) => {
    await resetSyncs(tx, { syncs, records: 'kept', at: bench.now() });
    await queueRuns(tx, { syncIds: idsOf(syncs), at: bench.now() });
  });
  await settled(await claim());
  await look();
  assert.deepEqual(await states(), ['cancelled schedule', 'succeeded manual']);
});

test('nothing follows for a connection that was deleted', async () => {
  const of = await begun();
  await trigger();
  await bench.db.query('update connection set deleted_at = now(), data_key = null');
  await settled(of);
  await look();
  assert.deepEqual(await states(), ['succeeded schedule']);
});
