import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { resumeSyncsOf } from './queue.ts';
import { openRunsBench, type RunsBench, syncOf } from './runs.fixture.ts';

let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
});
after(() => bench.end());
beforeEach(async () => {
  for (const table of ['run', 'function', 'connection', 'event'])
    await bench.db.query(`delete from ${table}`);
});

const reconnect = async (connectionId: number) => {
  await bench.db.transaction(async (tx) => {
    await tx.query(`update connection set status = 'active' where id = $1`, [connectionId]);
    await resumeSyncsOf(tx, { connectionId, at: bench.now() });
  });
};
const syncs = () =>
  bench.db.query<{ held: { code: string } | null; failures: number; next: boolean }>(
    `select held, failures, next_at > $1 as next
     from sync
     join function on function.id = sync.function_id
     order by function.name`,
    [bench.now()],
  );

test('a sync that was held for its connection runs at once after a reconnect, also if the node still caches the old state', async () => {
  await bench.deploy('rows', syncOf(`await nango.batchSave([{ id: '1' }], 'Row');`));
  const { id, connectionId } = await bench.connect(crypto.randomUUID());
  await bench.db.query(`update connection set status = 'needs_reauth'`);
  await bench.one.runner.runDue();
  const [held] = await syncs();
  assert.deepEqual([held?.held?.code, held?.next], ['connection_needs_reauth', true]);
  await bench.one.reader.get({ ...bench.place, connectionId });
  await reconnect(id);
  assert.deepEqual((await syncs())[0]?.held, null);
  await bench.one.runner.runDue();
  assert.deepEqual(await bench.records(id), ['1']);
  assert.equal((await bench.events('sync.held')).length, 1);
});

test('one that failed for the connection runs at once and counts as well again; another failure, and a pause, stay', async () => {
  for (const [name, code] of [
    ['dead', 'connection_needs_reauth'],
    ['bug', 'function_threw'],
    ['paused', 'connection_refresh_failed'],
  ]) {
    await bench.deploy(
      name!,
      syncOf(
        `if (!(await nango.getMetadata()).well) throw Object.assign(new Error('m'), { code: '${code}' });`,
      ),
    );
  }
  const { id } = await bench.connect(crypto.randomUUID());
  await bench.one.runner.runDue();
  // No other run by the schedule.
  await bench.db.query('update sync set next_at = null');
  // What passes is tried again first.
  for (let n = 0; n < 3; n += 1) {
    bench.advance(60_000);
    await bench.one.runner.runDue();
  }
  await bench.db.query(
    `update sync set state = 'paused' where function_id = (select id from function where name = 'paused')`,
  );
  assert.deepEqual(
    (await syncs()).map(({ failures }) => failures),
    [1, 1, 1],
  );
  await reconnect(id);
  assert.deepEqual(
    (await syncs()).map(({ failures }) => failures),
    [1, 0, 0],
  );
  const waiting = await bench.db.query<{ name: string }>(
    `select name from run join function on function.id = run.function_id where run.state = 'waiting'`,
  );
  assert.deepEqual(waiting, [{ name: 'dead' }]);
});
