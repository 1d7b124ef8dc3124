import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { destroyConnection } from '../../connections/store.ts';
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

test('a cancelled run ends within a look, and its sync goes on at its next time', async () => {
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

test('a node that stops gives its runs back, and another goes on', async () => {
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

test('what does not end when its node stops is given back all the same, and writes nothing more', async () => {
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
