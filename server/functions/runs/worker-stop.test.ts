// Slow: its functions run in processes of their own.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { destroyConnection } from '../../connections/store/save.ts';
import { getFunction } from '../deploys/store.ts';
import { beginRun } from './queue.ts';
import { openRunsBench, type RunsBench, syncOf } from './runs.fixture.ts';
import { cancelRun } from './runs.ts';

let bench: RunsBench;
beforeEach(async () => {
  bench = await openRunsBench();
});
afterEach(() => bench.end());

const outcomes = async () => (await bench.runs()).map(({ state, error }) => [state, error?.code]);
const until = async (isSo: () => Promise<boolean>) => {
  while (!(await isSo())) await pause(20);
};

test('a cancelled run ends within one poll, and its sync continues at its next time', async () => {
  await bench.deploy(
    'rows',
    syncOf(
      `await nango.log('begun'); await new Promise((done) => nango.signal.addEventListener('abort', done)); throw new Error('told');`,
    ),
  );
  await bench.connect('ada');
  const { runner } = bench.one;
  runner.start();
  await until(async () => (await bench.runs())[0]?.state === 'running');
  const [{ id } = { id: '' }] = await bench.runs();
  await bench.db.transaction((tx) =>
    cancelRun(tx, { environmentId: bench.environment.id, id, at: bench.now() }),
  );
  await until(async () => (await bench.runs())[0]?.state === 'cancelled');
  assert.deepEqual(await outcomes(), [['cancelled', 'cancelled']]);
  const [sync] = await bench.db.query<{ at: Date; failures: number }>(
    'select next_at as at, failures from sync',
  );
  assert.ok(sync!.at.getTime() > Date.now());
  assert.equal(sync!.failures, 0);
});

test('a node that stops releases its runs, and another node continues them', async () => {
  await bench.deploy(
    'rows',
    syncOf(`
      if (await nango.getCheckpoint()) return;
      await nango.saveCheckpoint({ half: true });
      await new Promise((done) => nango.signal.addEventListener('abort', () => done()));
      throw new Error('stopped');
    `),
  );
  await bench.connect('ada');
  const { runner } = bench.one;
  runner.start();
  await until(async () => (await bench.db.query('select from function_checkpoint')).length === 1);
  await runner.stop();
  assert.deepEqual(
    (await bench.runs()).map(({ state, attempt }) => [state, attempt]),
    [['waiting', 0]],
  );
  const other = await bench.node();
  await other.runner.runDue();
  assert.deepEqual(
    (await bench.runs()).map(({ state, attempt }) => [state, attempt]),
    [['succeeded', 1]],
  );
});

test('a run that does not end when its node stops is released nevertheless, and writes nothing more', async () => {
  await bench.deploy(
    'rows',
    syncOf(`
      if (await nango.getCheckpoint()) return;
      await nango.saveCheckpoint({ half: true });
      for (;;) await nango.batchSave([{ id: String(Math.random()) }], 'Row').catch(() => new Promise((done) => setTimeout(done, 10)));
    `),
  );
  const { id } = await bench.connect('ada');
  const { runner } = bench.one;
  runner.start();
  await until(async () => (await bench.records(id)).length > 0);
  await runner.stop(100);
  assert.deepEqual(
    (await bench.runs()).map(({ state, attempt }) => [state, attempt]),
    [['waiting', 0]],
  );
  const saved = await bench.records(id);
  await pause(300);
  assert.deepEqual(await bench.records(id), saved);
  const other = await bench.node();
  await other.runner.runDue();
  assert.deepEqual(
    (await bench.runs()).map(({ state }) => state),
    ['succeeded'],
  );
});

test('a run of a connection that is deleted meanwhile ends as cancelled', async () => {
  await bench.deploy(
    'rows',
    syncOf(`for (;;) { await nango.batchSave([{ id: '1' }], 'Row'); await nango.saveCheckpoint({ n: 1 }); }`),
  );
  const { id } = await bench.connect('ada');
  const { runner } = bench.one;
  runner.start();
  await until(async () => (await bench.records(id)).length > 0);
  await bench.db.transaction((tx) => destroyConnection(tx, { id, at: bench.now() }));
  await until(async () => (await bench.runs())[0]?.state === 'cancelled');
  assert.deepEqual(await outcomes(), [['cancelled', 'connection_deleted']]);
  assert.deepEqual(await bench.events('sync.%'), []);
});

async function act(exec: string) {
  await bench.deploy(
    'act',
    `exports.default = { type: 'action', description: '', async exec(nango) { ${exec} } };`,
    'action',
  );
  const connection = await bench.connect('ada');
  const found = await getFunction(bench.db, { ...bench.place, name: 'act' });
  return () =>
    beginRun(bench.db, {
      connection: { ...connection, environmentId: bench.environment.id, integrationKey: 'api' },
      found,
      environment: 'dev',
      kind: 'action',
      priority: 20,
      input: null,
      now: bench.now(),
    });
}

test('a node that stops starts no awaited run, which fails as temporary', async () => {
  const begin = await act(`await nango.log('began');`);
  const { runner } = bench.one;
  const stopped = runner.stop();
  const ending = await runner.runNow(await begin());
  assert.equal(ending?.state === 'failed' && ending.mayPass, true);
  assert.deepEqual(await outcomes(), [['failed', 'function_unavailable']]);
  assert.deepEqual(await bench.lines(), []);
  await stopped;
});

test('an action that does not end when its node stops is over with it, and not when its lease ends', async () => {
  const begun = Promise.withResolvers<void>();
  bench.serve((_request, response) => {
    begun.resolve();
    response.end('{}');
  });
  const begin = await act(
    `await nango.get({ endpoint: '/begun' }); for (;;) await new Promise((done) => setTimeout(done, 50));`,
  );
  const { runner } = bench.one;
  const asked = runner.runNow(await begin());
  await begun.promise;
  await runner.stop(100);
  assert.deepEqual(await outcomes(), [['failed', 'function_unavailable']]);
  await bench.one.runtime.close();
  assert.equal(await asked, undefined);
});
