import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { afterEach, beforeEach, test } from 'node:test';
import { Nango } from '@nangohq/node';
import { type Queryable, tables } from '../db/pool.ts';
import { placeAll } from '../db/sequencer.ts';
import { exampleConnection } from '../events/event-types.ts';
import { queueEvent } from '../events/outbox.ts';
import { eventSequence } from '../events/sequence.ts';
import { type DeliveryBench, openDeliveryBench } from './deliveries.fixture.ts';
import { setAddress, writeSettings } from './settings.ts';
import { signingKeys } from './signing.ts';
import { deliverySweepJob } from './sweep.ts';

let bench: DeliveryBench;
beforeEach(async () => {
  bench = await openDeliveryBench();
});
afterEach(() => bench.drop());

const now = () => new Date(bench.nowMs());
const address = (kind: 'primary' | 'secondary', url: string | undefined) =>
  bench.db.transaction((tx) => setAddress(tx, { environmentId: bench.environmentId, kind, url, now: now() }));

/** A connection's row, as far as deliveries look at it. */
async function insertConnection(db: Queryable, id: string, override: string | null): Promise<void> {
  const { environmentId: environment_id } = bench;
  await db.query(
    `insert into integration (environment_id, key, provider, display_name)
     values ($1, 'google-sheet', 'google-sheet', 'Sheets')
     on conflict do nothing`,
    [environment_id],
  );
  const [integration] = await db.run(tables.selectFrom('integration').select('id'));
  await db.query(
    `insert into connection (environment_id, integration_id, connection_id, data_key, webhook_url_override)
     values ($1, $2, $3, gen_random_uuid(), $4)`,
    [environment_id, integration!.id, id, override],
  );
}

async function raiseAll(connection: string): Promise<void> {
  const { environmentId } = bench;
  const of = { ...exampleConnection, connection_id: connection, tags: { end_user_email: 'ada@example.com' } };
  const stopped = {
    cause: 'grant_dead' as const,
    evidence: { error: 'invalid_grant' },
    since: now().toISOString(),
    next_step: 'Ask the user to connect again.',
    reconnect: null,
  };
  await queueEvent(bench.db, {
    environmentId,
    type: 'connection.created',
    data: { ...of, missing_scopes: [] },
  });
  await queueEvent(bench.db, { environmentId, type: 'connection.needs_reauth', data: { ...of, ...stopped } });
  await queueEvent(bench.db, { environmentId, type: 'connection.deleted', data: of });
  await placeAll(bench.db, eventSequence);
}

test('both addresses of the settings get the bodies of official clients, with sorted keys', async () => {
  const [primary, secondary] = [await bench.receiver(), await bench.receiver()];
  await address('primary', primary.url);
  await address('secondary', secondary.url);
  await raiseAll('ada');
  await bench.deliverer().deliverDue();
  assert.deepEqual(
    secondary.got.map(({ body }) => body),
    primary.got.map(({ body }) => body),
  );
  const bodies = primary.got.map(({ body }) => JSON.parse(body) as Record<string, unknown>);
  assert.deepEqual(bodies, [
    {
      authMode: 'OAUTH2',
      connectionId: 'ada',
      endUser: {
        endUserEmail: 'ada@example.com',
        endUserId: 'ada',
        tags: { end_user_email: 'ada@example.com' },
      },
      environment: 'dev',
      from: 'nango',
      operation: 'creation',
      provider: 'google-sheet',
      providerConfigKey: 'google-sheet',
      success: true,
      tags: { end_user_email: 'ada@example.com' },
      type: 'auth',
    },
    {
      ...bodies[0],
      error: { description: 'Ask the user to connect again.', type: 'grant_dead' },
      operation: 'refresh',
      success: false,
    },
  ]);
  for (const body of bodies) assert.deepEqual(Object.keys(body), Object.keys(body).sort());

  const [{ secret }] = await signingKeys(bench.db, { ...bench, now: now() });
  const client = new Nango({ apiKey: 'x', webhookSigningKey: secret } as never);
  const { body, headers } = primary.got[0]!;
  assert.equal(client.verifyIncomingWebhookRequest(body, headers as Record<string, unknown>), true);
  const older = createHash('sha256')
    .update(secret + body)
    .digest('hex');
  assert.equal(headers['x-nango-signature'], older);
});

test('a switch that is off keeps its events from the addresses, and from no endpoint', async () => {
  const [primary, all] = [await bench.receiver(), await bench.receiver()];
  await address('primary', primary.url);
  await bench.endpoint(all.url);
  await bench.db.transaction((tx) =>
    writeSettings(tx, {
      environmentId: bench.environmentId,
      change: { switches: { on_auth_creation: false }, overlapHours: undefined },
    }),
  );
  await raiseAll('ada');
  await bench.deliverer().deliverDue();
  assert.equal(all.got.length, 3);
  assert.deepEqual(
    primary.got.map(({ body }) => (JSON.parse(body) as { operation: string }).operation),
    ['refresh'],
  );
});

test("a connection's address replaces those of the settings, for that connection alone", async () => {
  const [primary, own] = [await bench.receiver(), await bench.receiver()];
  await address('primary', primary.url);
  await insertConnection(bench.db, 'own', own.url);
  await insertConnection(bench.db, 'ordinary', null);
  await raiseAll('own');
  await raiseAll('ordinary');
  const worker = bench.deliverer();
  await worker.deliverDue();
  const connections = (got: { body: string }[]) =>
    got.map(({ body }) => (JSON.parse(body) as { connectionId: string }).connectionId);
  assert.deepEqual(connections(own.got), ['own', 'own']);
  assert.deepEqual(connections(primary.got), ['ordinary', 'ordinary']);

  // It is forgotten once no connection has it, and comes back with the next one.
  await bench.db.query('delete from connection');
  const sweep = deliverySweepJob({ db: bench.db, now, keptDays: 7 });
  await sweep.run({}, new AbortController().signal);
  const overrides = () =>
    bench.db.query(`select from endpoint where kind = 'override' and deleted_at is null`);
  assert.equal((await overrides()).length, 0);
  await insertConnection(bench.db, 'own', own.url);
  await raiseAll('own');
  await worker.deliverDue();
  assert.deepEqual(connections(own.got), ['own', 'own', 'own', 'own']);
  await sweep.run({}, new AbortController().signal);
  assert.equal((await overrides()).length, 1);
});

test('an address that is cleared gets nothing more, also of what waits', async () => {
  const receiver = await bench.receiver();
  await address('primary', receiver.url);
  await raiseAll('ada');
  await address('primary', undefined);
  await raiseAll('bob');
  await bench.deliverer().deliverDue();
  assert.equal(receiver.got.length, 0);
});
