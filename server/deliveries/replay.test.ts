import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { placeAll } from '../db/sequencer.ts';
import { exampleConnection } from '../events/event-types.ts';
import { eventSequence } from '../events/sequence.ts';
import { type DeliveryBench, openDeliveryBench } from './deliveries.fixture.ts';
import { type ReplayRange, replayRange } from './deliveries.ts';
import { setAddress } from './settings.ts';

let bench: DeliveryBench;
beforeEach(async () => {
  bench = await openDeliveryBench();
});
afterEach(() => bench.drop());

const now = () => new Date(bench.nowMs());
const replay = (endpoint: { id: number; kind: string }, range: Partial<ReplayRange> = {}) =>
  bench.db.transaction((tx) =>
    replayRange(tx, {
      endpoint,
      environmentId: bench.environmentId,
      range: { after: 0, undeliveredOnly: false, ...range },
      now: now(),
    }),
  );
const insertEvents = async (count: number) => {
  await bench.db.query(
    `insert into event (id, environment_id, type, data)
     select gen_random_uuid(), $1, 'connection.created', $2 from generate_series(1, $3)`,
    [bench.environmentId, { ...exampleConnection, missing_scopes: [] }, count],
  );
  await placeAll(bench.db, eventSequence);
};

test('events of a deleted connection are replayed to its own address only', async () => {
  const { db, environmentId } = bench;
  const [primary, own] = [await bench.receiver(), await bench.receiver()];
  await db.transaction((tx) =>
    setAddress(tx, { environmentId, kind: 'primary', url: primary.url, now: now() }),
  );
  await db.query(
    `insert into integration (environment_id, key, provider, display_name)
     values ($1, 'google-sheet', 'google-sheet', 'Sheets')`,
    [environmentId],
  );
  await db.query(
    `insert into connection (environment_id, integration_id, connection_id, data_key, webhook_url_override)
     values ($1, (select id from integration), 'ada', gen_random_uuid(), $2)`,
    [environmentId, own.url],
  );
  await bench.raise([0]);
  await bench.deliverer().deliverDue();
  await db.query('update connection set deleted_at = now(), data_key = null, webhook_url_override = null');
  const endpoints = await db.query<{ id: number; kind: string }>('select id, kind from endpoint');
  const counts = new Map<string, number>();
  for (const endpoint of endpoints) counts.set(endpoint.kind, (await replay(endpoint)).count);
  assert.deepEqual([counts.get('primary'), counts.get('override')], [0, 1]);
  await bench.deliverer().deliverDue();
  assert.deepEqual([primary.got.length, own.got.length], [0, 2]);
});

test('a range with few wanted events is read in parts, and no event is missed', async () => {
  const id = await bench.endpoint('https://receiver.invalid/');
  await insertEvents(10_050);
  await bench.db.query(
    `update delivery set status = 'delivered', settled_at = now() where position not in (5, 10040)`,
  );
  await bench.db.query(`update delivery set status = 'dead', settled_at = now() where status = 'waiting'`);
  const endpoint = { id, kind: 'events' };
  const first = await replay(endpoint, { undeliveredOnly: true });
  assert.deepEqual(first, { count: 1, doneUpTo: 10_000 });
  const rest = await replay(endpoint, { undeliveredOnly: true, after: first.doneUpTo });
  assert.deepEqual(rest, { count: 1, doneUpTo: undefined });
});

test('an event that retention removes during a replay is left out of it', async () => {
  const id = await bench.endpoint('https://receiver.invalid/');
  await insertEvents(3);
  await bench.db.query('delete from delivery');
  await bench.anotherPool().transaction(async (tx) => {
    await tx.query('delete from event where position = 1');
    assert.deepEqual(await replay({ id, kind: 'events' }), { count: 2, doneUpTo: undefined });
  });
  const rows = await bench.db.query<{ position: number }>('select position from delivery order by position');
  assert.deepEqual(
    rows.map(({ position }) => position),
    [2, 3],
  );
});
