import assert from 'node:assert/strict';
import { randomUUIDv7 } from 'node:crypto';
import { after, before, beforeEach, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import type { Tx } from '../../db/pool.ts';
import { createIntegration } from '../../integrations/store.ts';
import { getFunction } from '../deploys/store.ts';
import { lockSyncs, resetSyncs, type Sync } from '../syncs/syncs.ts';
import { type Claim, claimWaiting, integrationOf, type Share } from './claims.ts';
import { queueRuns } from './queue.ts';
import { openRunsBench, type RunsBench, syncOf } from './runs.fixture.ts';
import { queueDue } from './schedule.ts';
import { settle } from './settle.ts';

/** Who waits for whom: nobody for each other, and no connection for ever. */
let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
});
after(() => bench.end());
beforeEach(async () => {
  await bench.db.query('delete from run');
  await bench.db.query('delete from function');
  await bench.deploy('rows', syncOf(''));
});

const claim = async (max = 10, share?: Share): Promise<Claim[]> =>
  (await claimWaiting(bench.db, { now: bench.now(), max, after: 0, ...(share && { share }) })).claims;
const settling = (of: Claim) =>
  settle(bench.db, {
    claim: of,
    ending: { state: 'succeeded', output: null },
    now: bench.now(),
    random: 0,
  });

/** Resolves when a statement of this database waits for a lock. */
async function somebodyWaits(): Promise<void> {
  for (;;) {
    const waiting = await bench.db.query(
      `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
    );
    if (waiting.length > 0) return;
    await pause(10);
  }
}

/** `inside` while all syncs are locked, as a trigger locks them, and `beside` has come up against these locks or is done. */
async function whileLocked(
  inside: (tx: Tx, syncs: Sync[]) => Promise<unknown>,
  beside: () => Promise<unknown>,
): Promise<void> {
  let besides: Promise<unknown> = Promise.resolve();
  await bench.db.transaction(async (tx) => {
    const found = await lockSyncs(tx, { ...bench.place, connectionId: undefined, wanted: [] });
    besides = beside();
    await Promise.race([somebodyWaits(), besides]);
    await inside(tx, found);
  });
  await besides;
}

test('a trigger and a reset wait for no run that waits for them', async () => {
  await bench.connect('ada');
  const queued = async () => {
    await bench.db.query('delete from run');
    await bench.db.query('update sync set next_at = $1', [bench.now()]);
    await queueDue(bench.db, bench.now());
  };
  const trigger = (tx: Tx, found: Sync[]) =>
    queueRuns(tx, { syncIds: found.map(({ id }) => id), at: bench.now() });
  const reset = (tx: Tx, syncs: Sync[]) => resetSyncs(tx, { syncs, records: 'kept', at: bench.now() });

  await queued();
  await whileLocked(trigger, () => claim());
  for (const inside of [trigger, reset]) {
    await queued();
    const [held] = await claim();
    await whileLocked(inside, () => settling(held!));
  }
});

test('connections that webhooks flood keep no other from its turn', async () => {
  const flooding: number[] = [];
  for (let n = 0; n < 3; n += 1) flooding.push((await bench.connect(`flood-${n}`)).id);
  await bench.db.query('delete from sync');
  const { id: functionId, versionId } = await getFunction(bench.db, { ...bench.place, name: 'rows' });
  const sent = (connection: number, kind: string, priority: number) =>
    bench.db.query(
      `insert into run (id, environment_id, function_id, version_id, connection_id, kind, trigger, priority, not_before)
       values ($1, $2, $3, $4, $5, $6, 'webhook', $7, $8)`,
      [randomUUIDv7(), bench.environment.id, functionId, versionId, connection, kind, priority, bench.now()],
    );
  const quiet = await bench.connect('quiet');
  await bench.db.query('delete from sync');
  // Each second four webhooks come for each of the three, and one node of four slots ends two runs.
  const underWay: Claim[] = [];
  for (let second = 0; second < 120; second += 1) {
    if (second === 5) await sent(quiet.id, 'sync', 0);
    for (const id of flooding) for (let n = 0; n < 4; n += 1) await sent(id, 'webhook', 10);
    for (const over of underWay.splice(0, 2)) await settling(over);
    const claimed = await claim(4 - underWay.length);
    if (claimed.some(({ connection }) => connection.id === quiet.id)) return;
    underWay.push(...claimed);
    bench.advance(1_000);
  }
  assert.fail('the quiet connection had no turn in two minutes');
});

test('an integration whose runs take long keeps no other waiting, and leaves places free for them', async () => {
  const other = await createIntegration(bench.db, {
    ...bench.one.reading,
    environmentId: bench.environment.id,
    key: 'quiet',
    provider: 'unauthenticated',
    integrationConfig: { base_url: bench.apiUrl },
  });
  const { id: functionId, versionId } = await getFunction(bench.db, { ...bench.place, name: 'rows' });
  const waiting = (connection: number) =>
    bench.db.query(
      `insert into run (id, environment_id, function_id, version_id, connection_id, kind, trigger, priority, not_before)
       values ($1, $2, $3, $4, $5, 'sync', 'schedule', 0, $6)`,
      [randomUUIDv7(), bench.environment.id, functionId, versionId, connection, bench.now()],
    );
  for (let n = 0; n < 12; n += 1) await waiting((await bench.connect(`slow-${n}`)).id);
  const busy = integrationOf(bench.place);
  const share = (runs: number): Share => ({ max: 8, held: new Map([[busy, runs]]) });
  assert.equal((await claim(12, share(0))).length, 8, 'its share of a node, and no more');
  assert.equal((await claim(4, share(8))).length, 0);

  // Those of the busy one have waited for an hour by now.
  bench.advance(3_600_000);
  const { id: quiet } = await bench.connect('quiet', other);
  await waiting(quiet);
  const [first] = await claim(1, share(7));
  assert.equal(first?.connection.id, quiet);
  assert.equal((await claim(1, share(7)))[0]?.connection.integrationKey, 'api');
});
