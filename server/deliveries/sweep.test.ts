import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { countingBlocks } from '../../test/support/blocks.ts';
import type { Db } from '../db/pool.ts';
import { placeAll, placeNext } from '../db/sequencer.ts';
import { exampleConnection } from '../events/event-types.ts';
import { eventSequence } from '../events/sequence.ts';
import { answer, type DeliveryBench, dayMs, ok, openDeliveryBench } from './deliveries.fixture.ts';
import { deleteEndpoint, disableEndpoint, enableEndpoint } from './endpoints.ts';
import { deliverySweepJob } from './sweep.ts';

let bench: DeliveryBench;
beforeEach(async () => {
  bench = await openDeliveryBench();
});
afterEach(() => bench.drop());

const now = () => new Date(bench.nowMs());
const sweep = () =>
  deliverySweepJob({ db: bench.db, now, keptDays: 7 }).run({}, new AbortController().signal);
const at = (id: number) => ({ id, environmentId: bench.environmentId });

test('delivered events are kept for some days; waiting and dead deliveries stay', async () => {
  const receiver = await bench.receiver((response, { n }) => response.writeHead(n === 2 ? 500 : 204).end());
  await bench.endpoint(receiver.url);
  await bench.raise([0, 1, 2, 3]);
  await bench.deliverer().deliverDue();
  bench.advance(7 * dayMs - 60_000);
  await sweep();
  assert.equal(await bench.count('delivered'), 2);
  bench.advance(120_000);
  await sweep();
  assert.deepEqual([await bench.count('delivered'), await bench.count('waiting')], [0, 2]);
});

test('the deliveries of a deleted endpoint are deleted, then the endpoint, and other endpoints stay', async () => {
  const [gone, other] = [await bench.receiver(answer(500)), await bench.receiver(answer(500))];
  const id = await bench.endpoint(gone.url);
  await bench.endpoint(other.url);
  await bench.raise([0, 1, 2]);
  await bench.db.transaction((tx) => deleteEndpoint(tx, { at: at(id), now: now() }));
  await bench.deliverer().deliverDue();
  assert.equal(gone.got.length, 0);
  bench.advance(120_000);
  await sweep();
  assert.equal((await bench.db.query('select from delivery')).length, 3);
  assert.equal((await bench.db.query('select from endpoint')).length, 1);
});

test('deliveries of a disabled endpoint expire, and are not sent when it is enabled', async () => {
  const receiver = await bench.receiver(ok);
  const id = await bench.endpoint(receiver.url);
  await bench.raise([0, 1]);
  await bench.db.transaction((tx) => disableEndpoint(tx, { at: at(id), cause: 'operator', now: now() }));
  const worker = bench.deliverer();
  bench.advance(2 * dayMs);
  await sweep();
  assert.equal(await bench.count('waiting'), 2);
  bench.advance(2 * dayMs);
  await sweep();
  assert.equal(await bench.count('dead'), 2);
  assert.equal((await bench.db.query('select from delivery_lane')).length, 0);
  await bench.db.transaction((tx) => enableEndpoint(tx, { at: at(id), now: now() }));
  await bench.raise([2]);
  await worker.deliverDue();
  assert.deepEqual(
    receiver.got.map(({ n }) => n),
    [2],
  );
  assert.equal((await bench.db.query('select from delivery_lane')).length, 0);
});

test('a lane of a disabled endpoint in which something waits for its time stays open', async () => {
  const id = await bench.endpoint('https://receiver.invalid/');
  await bench.raise([0]);
  bench.advance(2 * dayMs);
  await bench.raise([1]);
  await bench.db.transaction((tx) => disableEndpoint(tx, { at: at(id), cause: 'operator', now: now() }));
  bench.advance(1.5 * dayMs);
  await sweep();
  assert.deepEqual([await bench.count('dead'), await bench.count('waiting')], [1, 1]);
  assert.equal((await bench.db.query('select from delivery_lane')).length, 1);
});

test("a connection's address is not forgotten while an event is queued for it", async () => {
  const receiver = await bench.receiver(ok);
  const { db, environmentId } = bench;
  const raise = () =>
    db.query(
      `insert into event (id, environment_id, type, data, override)
       values (gen_random_uuid(), $1, 'connection.created', $2, $3)`,
      [environmentId, { ...exampleConnection, missing_scopes: [] }, receiver.url],
    );
  await raise();
  await placeAll(db, eventSequence);
  await bench.deliverer().deliverDue();
  await raise();
  // The step has found the endpoint there, and has not queued for it yet.
  const found = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  const slow: Db = {
    ...db,
    transaction: (work) =>
      db.transaction((tx) =>
        work({
          ...tx,
          async query<R extends object>(text: string, values?: readonly unknown[]) {
            if (text.includes('insert into delivery (')) {
              found.resolve();
              await go.promise;
            }
            return tx.query<R>(text, values);
          },
        }),
      ),
  };
  const placing = placeNext(slow, eventSequence);
  await found.promise;
  const other = bench.anotherPool();
  const sweeping = sweep();
  const isHeld = async () => {
    const look = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
    while ((await other.query(look)).length === 0) await sleep(5);
  };
  await Promise.race([sweeping, isHeld()]);
  go.resolve();
  assert.equal(await placing, 1);
  await sweeping;
  await bench.deliverer().deliverDue();
  assert.equal(receiver.got.length, 2);
});

test('a sweep reads only expired rows, however many others exist', async () => {
  const ids: number[] = [];
  for (let n = 0; n < 5; n += 1) ids.push(await bench.endpoint(`https://receiver.invalid/${n}`));
  await bench.db.query(
    `insert into event (id, environment_id, type, data)
     select gen_random_uuid(), $1, 'connection.created', $2 from generate_series(1, 4000)`,
    [bench.environmentId, { ...exampleConnection, missing_scopes: [] }],
  );
  await placeAll(bench.db, eventSequence);
  await bench.db.transaction(async (tx) => {
    await disableEndpoint(tx, { at: at(ids[0]!), cause: 'operator', now: now() });
    await deleteEndpoint(tx, { at: at(ids[1]!), now: now() });
  });
  await sweep();
  await bench.db.query('vacuum analyze delivery');
  const { db, reads } = countingBlocks(bench.db);
  await deliverySweepJob({ db, now, keptDays: 7 }).run({}, new AbortController().signal);
  const total = reads.reduce((sum, { blocks }) => sum + blocks, 0);
  assert.ok(total < 100, `a run with nothing to do read ${total} blocks`);
});
