import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { destroyConnection } from '../../connections/store/save.ts';
import { openRunsBench, syncOf } from './runs.fixture.ts';

/** What a run may not do once it was told to stop, or its connection is another account's. */
let bench: Awaited<ReturnType<typeof openRunsBench>>;
beforeEach(async () => {
  bench = await openRunsBench();
});
afterEach(() => bench.end());

async function until(isSo: () => Promise<boolean>): Promise<void> {
  while (!(await isSo())) await pause(20);
}

test('a sync that returns after a stop signal does not delete records that it did not reach', async () => {
  await bench.deploy(
    'rows',
    syncOf(
      `const rows = Array.from({ length: 10 }, (_, n) => ({ id: 'r' + n }));
       for (const row of rows) {
         if (nango.signal.aborted) return;
         await nango.batchSave([row], 'Row');
         if (row.id !== 'r7' || nango.lastSyncDate === undefined) continue;
         await nango.saveCheckpoint({ at: 'r7' });
         while (!nango.signal.aborted) await new Promise((resolve) => setTimeout(resolve, 20));
       }`,
      'trackDeletes: true,',
    ),
  );
  const { id } = await bench.connect('ada');
  await bench.one.runner.runDue();
  const all = await bench.records(id);
  assert.equal(all.length, 10);
  await bench.db.query('update sync set next_at = now()');
  bench.one.runner.start();
  await until(async () => (await bench.db.query('select from function_checkpoint')).length === 1);
  await bench.one.runner.stop(5_000);
  assert.deepEqual(await bench.records(id), all);
  assert.deepEqual(
    (await bench.runs()).map(({ state }) => state),
    ['succeeded', 'waiting'],
  );
});

test('a run ends with its connection, also if its ID then belongs to another account', async () => {
  await bench.deploy(
    'rows',
    syncOf(
      `await nango.batchSave([{ id: 'first' }], 'Row');
       for (;;) {
         await nango.getCheckpoint();
         await new Promise((resolve) => setTimeout(resolve, 20));
       }`,
    ),
  );
  const former = await bench.connect('ada');
  bench.one.runner.start();
  await until(async () => (await bench.records(former.id)).length === 1);
  await bench.db.transaction((tx) => destroyConnection(tx, { id: former.id, at: bench.now() }));
  const later = await bench.connect('ada');
  await bench.db.query(`update sync set next_at = null where connection_id = $1`, [later.id]);
  await until(async () =>
    (await bench.runs()).some(({ state }) => state === 'cancelled' || state === 'failed'),
  );
  assert.deepEqual(await bench.records(later.id), []);
  await bench.one.runner.stop(0);
});
