import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { createErrandDesk } from '../../nodes/errand-desk.ts';
import { createErrands } from '../../nodes/errands.ts';
import { getFunction } from '../deploys/store.ts';
import { beginRun } from './asked-run.ts';
import { takeClaim } from './claims.ts';
import { runElsewhere } from './elsewhere.ts';
import { openRunsBench, type RunsBench } from './runs.fixture.ts';

/** What becomes of runs that a node cannot run itself, where those that could do not. */
let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
});
after(() => bench.end());
beforeEach(async () => {
  await bench.db.query('delete from run');
  await bench.db.query('delete from function');
});

let connections = 0;
async function begin() {
  await bench.deploy(
    'act',
    `exports.default = { type: 'action', description: 'A test.', async exec() { return 1; } };`,
    'action',
  );
  connections += 1;
  const connection = await bench.connect(`c-${connections}`);
  const found = await getFunction(bench.db, { ...bench.place, name: 'act' });
  const of = { ...connection, environmentId: bench.environment.id, integrationKey: 'api' };
  const asked = {
    connection: of,
    found,
    environment: 'dev',
    kind: 'action',
    priority: 20,
    input: null,
  } as const;
  return beginRun(bench.db, { ...asked, now: bench.now() });
}
const elsewhere = (untakenAfterMs?: number) =>
  runElsewhere({
    db: bench.db,
    errands: createErrands(bench.db, { ...(untakenAfterMs && { untakenAfterMs }) }),
    now: bench.now,
  });
const states = async () => (await bench.runs()).map(({ state, error }) => [state, error?.code]);

test('a run that no node takes is over, and may be tried again', async () => {
  const ending = await elsewhere(1).runNow(await begin());
  assert.equal(ending?.state === 'failed' && ending.mayPass, true);
  assert.deepEqual(await states(), [['failed', 'function_unavailable']]);
});

test('a run whose caller is gone before any node took it is cancelled', async () => {
  const ending = await elsewhere().runNow(await begin(), AbortSignal.abort());
  assert.equal(ending?.state, 'cancelled');
  assert.deepEqual(await states(), [['cancelled', 'cancelled']]);
});

test('of a run that was lost with its node nothing is told, and the claim stands until its lease ends', async () => {
  const claim = await begin();
  const desk = createErrandDesk(bench.db, {
    kinds: { run: () => Promise.reject(new Error('lost')) },
    pollMs: 10,
    onError: () => {},
  });
  desk.start();
  assert.equal(await elsewhere().runNow(claim), undefined);
  await desk.stop(0);
  assert.deepEqual(await states(), [['running', undefined]]);
});

test('a claim that lapsed, or is of another node by now, is not taken up', async () => {
  const claim = await begin();
  assert.equal((await takeClaim(bench.db, claim))?.id, claim.id);
  assert.equal(await takeClaim(bench.db, { id: claim.id, owner: crypto.randomUUID() }), undefined);
  await bench.db.query('update run set lease_until = clock_timestamp()');
  assert.equal(await takeClaim(bench.db, claim), undefined);
});
