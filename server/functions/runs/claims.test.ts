// Slow: its functions run in processes of their own.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { openDatabaseCable } from '../../../test/support/database-cable.ts';
import { openDb, recordsDb } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { ensureDataset, lockDataset } from '../../records/dataset.ts';
import { deleteRecords } from '../../records/write/delete.ts';
import { saveCheckpoint } from '../context/checkpoint.ts';
import { fencedDb } from '../context/fence.ts';
import { acquireLock } from '../context/locks.ts';
import { addVariant, lockSyncs, resetSyncs } from '../syncs/syncs.ts';
import { type Claim, claimLost, claimWaiting, findStopped, renewLeases } from './claims.ts';
import { queueRuns } from './queue.ts';
import { openRunsBench, type RunsBench, syncOf } from './runs.fixture.ts';
import { cancelRun } from './runs.ts';
import { queueDue } from './schedule.ts';
import { settle } from './settle.ts';

let bench: RunsBench;
beforeEach(async () => {
  bench = await openRunsBench();
  await bench.deploy('rows', syncOf(''));
});
afterEach(() => bench.end());

const isLost = (error: unknown) => error instanceof AppError && error.code === 'run_lost';
const place = () => ({ ...bench.place, connectionId: undefined });
const claim = async (max = 10, leaseMs = 20_000): Promise<Claim[]> =>
  (await claimWaiting(bench.db, { now: bench.now(), max, after: 0, leaseMs })).claims;
const syncs = () => bench.db.transaction((tx) => lockSyncs(tx, { ...place(), wanted: [] }));
const endLeases = () => bench.db.query(`update run set lease_until = now() where state = 'running'`);

test('twenty triggers at once make one run, and a sync never runs twice at a time', async () => {
  await bench.connect('ada');
  await queueDue(bench.db, bench.now());
  const trigger = async () => {
    const ids = (await syncs()).map(({ id }) => id);
    return bench.db.transaction((tx) => queueRuns(tx, { syncIds: ids, at: bench.now() }));
  };
  await Promise.all(Array.from({ length: 20 }, trigger));
  assert.equal((await bench.runs()).length, 1);
  const claimed = await Promise.all(Array.from({ length: 20 }, () => claim()));
  assert.equal(claimed.flat().length, 1);
  await Promise.all(Array.from({ length: 20 }, trigger));
  assert.deepEqual([(await bench.runs()).length, (await claim()).length], [1, 0]);
});

test('a connection for which hundreds wait has its share, and the next connection its turn', async () => {
  const ada = await bench.connect('ada');
  for (let n = 0; n < 30; n += 1) {
    const at = {
      place: { ...bench.place, connectionId: 'ada' },
      name: 'rows',
      variant: `v${n}`,
      at: bench.now(),
    };
    await bench.db.transaction((tx) => addVariant(tx, at));
  }
  await bench.db.query('update sync set next_at = $1', [bench.now()]);
  await bench.connect('bob');
  await bench.connect('eve');
  bench.advance(1_000);
  await queueDue(bench.db, bench.now());
  const first = await claim(8);
  assert.deepEqual(first.map(({ connection }) => connection.connectionId).sort(), ['ada', 'bob', 'eve']);
  const rest: Claim[] = [];
  for (let more = await claim(8); more.length > 0; more = await claim(8)) rest.push(...more);
  assert.deepEqual(
    rest.map(({ connection }) => connection.id),
    [ada.id, ada.id, ada.id],
  );
});

test('a run whose lease has ended is taken over, once; before that it is not', async () => {
  await bench.connect('ada');
  await queueDue(bench.db, bench.now());
  const [held] = await claim();
  const take = () => claimLost(bench.db, { now: bench.now(), max: 10 });
  assert.deepEqual(await take(), []);
  await endLeases();
  const taken = (await Promise.all([take(), take(), take()])).flat();
  assert.deepEqual(
    taken.map(({ id, attempt, isResumed, trigger }) => [id, attempt, isResumed, trigger]),
    [[held!.id, 2, true, 'schedule']],
  );
  assert.notEqual(taken[0]!.owner, held!.owner);
  assert.deepEqual(await renewLeases(bench.db, [{ ...held!, counts: {} }]), []);
  assert.deepEqual(await findStopped(bench.db, [held!]), { lost: [held!.id], cancelled: [] });
});

test('a node that lost a run writes no record, checkpoint, lock or end for it any more', async () => {
  const { id, dataKey } = await bench.connect('ada');
  await queueDue(bench.db, bench.now());
  const [late] = await claim();
  await endLeases();
  const [current] = await claimLost(bench.db, { now: bench.now(), max: 10 });
  const at = { connectionId: id, functionId: late!.function.id, variant: 'base' };
  const datasetId = await ensureDataset(bench.db, { connection: id, model: 'Row', variant: 'base' });
  const writes = (right: Claim) => {
    const db = fencedDb(bench.db, right);
    const read = { runId: right.id, coverage: { own: [], trackings: [], touched: undefined } };
    return [
      () => saveCheckpoint(db, { at, dataKey, ...read, value: { page: 1 }, version: 0 }),
      () =>
        db.transaction((tx) => acquireLock(tx, { ...bench.place, runId: right.id, key: 'k', ttlMs: 1_000 })),
      () => db.transaction((tx) => tx.query('update connection set metadata = metadata where id = $1', [id])),
      () => recordsDb(db, datasetId).transaction((tx) => lockDataset(tx, datasetId)),
    ];
  };
  for (const write of writes(late!)) await assert.rejects(write, isLost);
  for (const write of writes(current!)) await write();
  // What needs no row touches none.
  await deleteRecords(fencedDb(bench.db, late!), {
    connection: id,
    model: 'Empty',
    variant: 'base',
    ids: ['x'],
  });
  const ending = {
    ending: { state: 'succeeded', output: null },
    now: bench.now(),
    random: 0,
  } as const;
  assert.equal(await settle(bench.db, { claim: late!, ...ending }), undefined);
  assert.equal((await bench.runs())[0]?.state, 'running');
  assert.equal(await settle(bench.db, { claim: current!, ...ending }), 'ended');
  assert.deepEqual(await bench.db.query('select key from function_lock'), []);
  for (const write of writes(current!)) await assert.rejects(write, isLost);
});

test('a write that is under way is whole before its run is taken over', async () => {
  const { id } = await bench.connect('ada');
  const datasetId = await ensureDataset(bench.db, { connection: id, model: 'Row', variant: 'base' });
  await queueDue(bench.db, bench.now());
  const [held] = await claim();
  await endLeases();
  const take = () => claimLost(bench.db, { now: bench.now(), max: 10 });
  const fenced = fencedDb(bench.db, held!);
  for (const db of [fenced, recordsDb(fenced, datasetId)]) {
    const entered = Promise.withResolvers<void>();
    const leave = Promise.withResolvers<void>();
    const writing = db.transaction(async () => {
      entered.resolve();
      await leave.promise;
    });
    await entered.promise;
    assert.deepEqual(await take(), []);
    // The renewal of a lease waits for no write.
    assert.deepEqual(await renewLeases(bench.db, [{ ...held!, counts: {} }], 0), [held!.id]);
    leave.resolve();
    await writing;
  }
  assert.equal((await take()).length, 1);
});

test('writes to a worker that does not answer take no connection to the coordinator', async (t) => {
  const { id } = await bench.connect('ada');
  const datasetId = await ensureDataset(bench.db, { connection: id, model: 'Row', variant: 'base' });
  await queueDue(bench.db, bench.now());
  const [held] = await claim();
  const cable = await openDatabaseCable(bench.target);
  t.after(() => cable.close());
  await using coordinator = openDb(bench.target, { maxConnections: 2 });
  const worker = openDb(cable.target, { maxConnections: 2, workerOf: coordinator.database });
  const fenced = fencedDb({ ...coordinator, records: () => worker }, held!);
  const write = () => recordsDb(fenced, datasetId).transaction((tx) => lockDataset(tx, datasetId));
  await Promise.all([write(), write()]);
  cable.silence();
  const writing = Promise.allSettled(Array.from({ length: 20 }, write));
  while (worker.load().waiting + coordinator.load().waiting < 18) await sleep(10);
  assert.equal(coordinator.load().waiting, 0);
  await coordinator.query('select');
  cable.pull();
  await worker.end();
  assert.ok((await writing).every(({ status }) => status === 'rejected'));
});

test('a waiting run is cancelled at once, a running one is signalled, and a finished one is unchanged', async () => {
  await bench.connect('ada');
  await bench.connect('bob');
  await queueDue(bench.db, bench.now());
  const [running] = await claim(1);
  const [waiting] = (await bench.runs()).filter(({ state }) => state === 'waiting');
  const cancel = (id: string, environmentId = bench.environment.id) =>
    bench.db.transaction((tx) => cancelRun(tx, { environmentId, id, at: bench.now() }));
  await assert.rejects(cancel(waiting!.id, 4711), { code: 'not_found' });
  for (const id of [running!.id, waiting!.id, waiting!.id]) await cancel(id);
  assert.deepEqual((await findStopped(bench.db, [running!])).cancelled, [running!.id]);
  assert.deepEqual((await bench.runs()).map(({ state }) => state).sort(), ['cancelled', 'running']);
  assert.equal((await claim()).length, 0);
});

test('a reset ends the current run, which then writes nothing', async () => {
  const { id, dataKey } = await bench.connect('ada');
  await queueDue(bench.db, bench.now());
  const [held] = await claim();
  const at = { connectionId: id, functionId: held!.function.id, variant: 'base' };
  const db = fencedDb(bench.db, held!);
  const read = { runId: held!.id, coverage: { own: [], trackings: [], touched: undefined } };
  await saveCheckpoint(db, { at, dataKey, ...read, value: { page: 7 }, version: 0 });
  const found = await syncs();
  await bench.db.transaction((tx) => resetSyncs(tx, { syncs: found, records: 'kept', at: bench.now() }));
  await assert.rejects(saveCheckpoint(db, { at, dataKey, ...read, value: { page: 8 }, version: 1 }), isLost);
  assert.deepEqual(await bench.db.query('select from function_checkpoint'), []);
  assert.deepEqual(
    (await bench.runs()).map(({ state }) => state),
    ['cancelled'],
  );
});
