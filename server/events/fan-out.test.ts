import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Db, openDb } from '../db/pool.ts';
import { placeAll, placeNext } from '../db/sequencer.ts';
import { exampleConnection } from './event-types.ts';
import { type FeedBench, openFeedBench } from './feed.fixture.ts';
import { queueEvent } from './outbox.ts';
import { eventSequence } from './sequence.ts';

let bench: FeedBench | undefined;
let feed: FeedBench;
let other: Db;
beforeEach(async () => {
  await close();
  bench = feed = await openFeedBench();
  other = openDb(feed.target);
});
after(close);

async function close(): Promise<void> {
  if (bench === undefined) return;
  await other.end();
  await bench.drop();
}

const insertEndpoint = async (kind: string, url = 'https://example.com/') => {
  const [row] = await feed.db.query<{ id: number }>(
    'insert into endpoint (environment_id, kind, url) values ($1, $2, $3) returning id',
    [feed.dev.environmentId, kind, url],
  );
  return row!.id;
};
const queue = (connection = 'ada') =>
  queueEvent(feed.db, {
    environmentId: feed.dev.environmentId,
    type: 'connection.created',
    data: { ...exampleConnection, connection_id: connection, missing_scopes: [] },
  });
const count = async (table: 'delivery' | 'delivery_lane') =>
  (await feed.db.query(`select from ${table}`)).length;
/** Until one of this database's statements waits for a lock. */
async function someoneWaits(): Promise<void> {
  const look = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
  while ((await other.query(look)).length === 0) await sleep(5);
}

test('a lane that is closed while an event comes into it is opened again', async () => {
  await insertEndpoint('events');
  await queue();
  await placeAll(feed.db, eventSequence);
  await feed.db.query(`update delivery set status = 'delivered', settled_at = now()`);
  await queue();
  let placing: Promise<number> | undefined;
  // A transaction that holds a lane and finds it empty removes it.
  await other.transaction(async (tx) => {
    await tx.query('select from delivery_lane for update');
    placing = placeNext(feed.db, eventSequence);
    await Promise.race([placing, someoneWaits()]);
    await tx.query('delete from delivery_lane');
  });
  assert.equal(await placing, 1);
  assert.equal(await count('delivery_lane'), 1);
});

test('a lane in the hands of a node that froze holds up no reader, and no event is lost', async () => {
  await insertEndpoint('events');
  await queue();
  await placeAll(feed.db, eventSequence);
  await queue();
  await other.transaction(async (tx) => {
    await tx.query('select from delivery_lane for update');
    const readers = Array.from({ length: 20 }, () => placeAll(feed.db, eventSequence));
    await someoneWaits();
    await feed.db.query('select 1');
    assert.equal((await Promise.all(readers)).includes(true), false);
    assert.equal((await feed.read()).events.length, 1);
  });
  await placeAll(feed.db, eventSequence);
  assert.deepEqual([(await feed.read()).events.length, await count('delivery')], [2, 2]);
});

test('an event is sent to the address that its connection had when the event was written', async () => {
  const primary = await insertEndpoint('primary');
  const [integration] = await feed.db.query<{ id: number }>(
    `insert into integration (environment_id, key, provider, display_name)
     values ($1, $2, 'google-sheet', 'Sheets')
     returning id`,
    [feed.dev.environmentId, exampleConnection.provider_config_key],
  );
  await feed.db.query(
    `insert into connection (environment_id, integration_id, connection_id, data_key, webhook_url_override)
     values ($1, $2, 'ada', gen_random_uuid(), 'https://own.example/hook')`,
    [feed.dev.environmentId, integration!.id],
  );
  await queue('ada');
  await queue('bob');
  await feed.db.query(
    'update connection set deleted_at = now(), data_key = null, webhook_url_override = null',
  );
  await placeAll(feed.db, eventSequence);
  const rows = await feed.db.query<{ connection: string; url: string; endpoint: number }>(
    `select event.data ->> 'connection_id' as connection, endpoint.url, endpoint.id as endpoint
     from delivery
     join event on event.id = delivery.event_id
     join endpoint on endpoint.id = delivery.endpoint_id
     order by delivery.position`,
  );
  assert.deepEqual(
    rows.map(({ connection, url }) => [connection, url]),
    [
      ['ada', 'https://own.example/hook'],
      ['bob', 'https://example.com/'],
    ],
  );
  assert.equal(rows[1]?.endpoint, primary);
});
