import assert from 'node:assert/strict';
import { after, before, beforeEach, type TestContext, test } from 'node:test';
import { openDatabaseCable } from '../../../test/support/database-cable.ts';
import { openDb } from '../../db/pool.ts';
import { getFunction } from '../deploys/store.ts';
import { beginRun } from './queue.ts';
import { openRunsBench, type RunsBench } from './runs.fixture.ts';
import { type Ending, settleWhileHeld } from './settle.ts';

let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
  await bench.deploy(
    'act',
    `exports.default = { type: 'action', description: 'A test.', async exec() { return 1; } };`,
    'action',
  );
});
after(() => bench.end());
beforeEach(() => bench.db.query('delete from run'));

let connections = 0;
async function begin() {
  connections += 1;
  const connection = await bench.connect(`c-${connections}`);
  const found = await getFunction(bench.db, { ...bench.place, name: 'act' });
  return beginRun(bench.db, {
    connection: { ...connection, environmentId: bench.environment.id, integrationKey: 'api' },
    found,
    environment: 'dev',
    kind: 'action',
    priority: 20,
    input: null,
    now: bench.now(),
  });
}
async function cut(t: TestContext) {
  const cable = await openDatabaseCable(bench.target);
  const db = openDb(cable.target);
  t.after(async () => {
    await db.end();
    await cable.close();
  });
  return { cable, db };
}
const succeeded: Ending = { state: 'succeeded', output: Buffer.from('sealed') };
const rows = async () => (await bench.runs()).map(({ state }) => state);

test('what a run came to is written when the database is back', async (t) => {
  const { cable, db } = await cut(t);
  const claim = await begin();
  cable.pull();
  const reported: unknown[] = [];
  const ending = await settleWhileHeld(
    db,
    { claim, ending: succeeded, now: bench.now(), random: 0 },
    {
      vault: bench.one.vault,
      isHeld: () => true,
      onFailure(error) {
        reported.push(error);
        if (reported.length === 2) cable.plug();
      },
    },
  );
  assert.equal(ending, succeeded);
  assert.deepEqual([reported.length, await rows()], [2, ['succeeded']]);
});

test('a write whose response was lost is kept', async (t) => {
  const { cable, db } = await cut(t);
  const claim = await begin();
  cable.loseAnswerTo('commit');
  const ending = await settleWhileHeld(
    db,
    { claim, ending: succeeded, now: bench.now(), random: 0 },
    { vault: bench.one.vault, isHeld: () => true, onFailure: () => {} },
  );
  assert.deepEqual(ending, succeeded);
  assert.deepEqual(await rows(), ['succeeded']);
});

test('nothing is written of a run that is another node’s by then, nor once it is held no more', async (t) => {
  const { cable, db } = await cut(t);
  const claim = await begin();
  const settling = { claim, ending: succeeded, now: bench.now(), random: 0 };
  cable.pull();
  await assert.rejects(
    settleWhileHeld(db, settling, {
      vault: bench.one.vault,
      isHeld: () => false,
      onFailure: () => assert.fail('it is tried again'),
    }),
    /database does not answer/,
  );
  await bench.db.query('update run set owner = gen_random_uuid()');
  const onFailure = () => cable.plug();
  assert.equal(
    await settleWhileHeld(db, settling, { vault: bench.one.vault, isHeld: () => true, onFailure }),
    undefined,
  );
  assert.deepEqual(await rows(), ['running']);
});
