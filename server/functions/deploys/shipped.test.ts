import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { Tx } from '../../db/pool.ts';
import { createLog } from '../../log.ts';
import { openRunsBench, type RunsBench, syncOf } from '../runs/runs.fixture.ts';
import { startNewSyncs } from '../runs/schedule.ts';
import { describeHere } from './examine.ts';
import { createShipped, type ShippedBundle } from './shipped.ts';
import { getFunction, lockFunctions } from './store.ts';

let bench: RunsBench;
const reported: string[] = [];
before(async () => {
  bench = await openRunsBench();
});
after(() => bench.end());
beforeEach(async () => {
  reported.length = 0;
  await bench.db.query('delete from function');
});

const provider = 'unauthenticated';
const bundle = (name: string, version: number): ShippedBundle => {
  const code = `// ${version}${syncOf('')}`;
  return { provider, kind: 'sync', name, code, source: code };
};
const shippedWith = (...bundles: ShippedBundle[]) =>
  createShipped({
    db: bench.db,
    describe: describeHere(bench.one.runtime),
    now: bench.now,
    afterDeploy: startNewSyncs,
    log: createLog({ level: 'warn', format: 'json' }, { write: (line: string) => void reported.push(line) }),
    bundles: async () => bundles,
  });
const which = (name: string) => ({ ...bench.place, kind: 'sync' as const, name, actor: 'key:1' });
const found = (name: string) => getFunction(bench.db, { ...bench.place, name });
const versions = async () => {
  const [row] = await bench.db.query<{ count: number }>(
    'select count(*)::int as count from function_version',
  );
  return row!.count;
};

/** Starts `work`, which waits for the lock of the environment's functions, does `meanwhile` under the lock, and releases it. */
async function amid<T>(work: () => Promise<T>, meanwhile: (tx: Tx) => Promise<unknown>): Promise<T> {
  let working: Promise<T> | undefined;
  await bench.db.transaction(async (tx) => {
    await lockFunctions(tx, bench.environment.id);
    working = work();
    // It may fail before it is awaited.
    working.catch(() => {});
    for (;;) {
      const [waiting] = await bench.db.query(
        `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
      );
      if (waiting !== undefined) break;
      await pause(10);
    }
    await meanwhile(tx);
  });
  return working!;
}
const taken = (tx: Tx) => tx.query(`update function set origin = 'deploy'`);

test('twenty nodes that start at once make one version, which is the newest', async () => {
  await shippedWith(bundle('rows', 1)).enable(which('rows'));
  const nodes = Array.from({ length: 20 }, () => shippedWith(bundle('rows', 2)));
  await Promise.all(nodes.map((node) => node.upgrade()));
  assert.deepEqual([await versions(), (await found('rows')).number], [2, 2]);
  // A node of the release before starts last.
  assert.equal(await shippedWith(bundle('rows', 1)).upgrade(), 0);
  assert.equal((await found('rows')).number, 2);
});

test('a function that cannot be updated does not prevent the update of the others', async () => {
  await shippedWith(bundle('bad', 1), bundle('rows', 1)).enable(which('bad'));
  await shippedWith(bundle('rows', 1)).enable(which('rows'));
  const broken = { ...bundle('bad', 2), code: 'throw new Error("of the bundle")' };
  assert.equal(await shippedWith(broken, bundle('rows', 2)).upgrade(), 1);
  assert.deepEqual([(await found('bad')).number, (await found('rows')).number], [1, 2]);
  assert.ok(reported.some((line) => line.includes('bad')));
});

test('a function that a user deployed under the name stays, and a removed one is not restored', async () => {
  await shippedWith(bundle('rows', 1)).enable(which('rows'));
  const next = shippedWith(bundle('rows', 2));
  await assert.rejects(
    amid(() => next.enable(which('rows')), taken),
    { code: 'function_exists' },
  );
  await bench.db.query(`update function set origin = 'shipped'`);
  assert.equal(await amid(() => next.upgrade(), taken), 0);
  assert.deepEqual([await versions(), (await found('rows')).origin], [1, 'deploy']);
  await bench.db.query(`update function set origin = 'shipped'`);
  const removed = (tx: Tx) => tx.query('delete from function');
  assert.equal(await amid(() => next.upgrade(), removed), 0);
  assert.equal(await versions(), 0);
});

test('one that is off is brought up to date and stays off', async () => {
  await shippedWith(bundle('rows', 1)).enable(which('rows'));
  await bench.db.query('update function set is_enabled = false');
  assert.equal(await shippedWith(bundle('rows', 2)).upgrade(), 1);
  const { number, isEnabled } = await found('rows');
  assert.deepEqual([number, isEnabled], [2, false]);
});
