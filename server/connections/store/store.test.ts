import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { shippedCatalog as catalog } from '../../../test/support/catalog.ts';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import { ensureEnvironment } from '../../environments/store.ts';
import { createIntegration, type Integration } from '../../integrations/store.ts';
import { openVault } from '../../vault.ts';
import { endConnection } from '../health/status-transitions.ts';
import { importConnection } from '../import.ts';
import { sealKept } from '../refresh/previous-refresh-tokens.ts';
import { listConnections } from './list.ts';
import {
  changeMetadata,
  destroyConnection,
  insertConnection,
  replaceCredentials,
  swapCredentials,
} from './save.ts';
import { findConnection, getConnection, holdConnection } from './store.ts';

const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
let database: TestDatabase;
let integration: Integration;
before(async () => {
  database = await openTestDatabase();
  const { environment } = await ensureEnvironment(database.db, { name: 'dev', vault });
  integration = await createIntegration(database.db, {
    vault,
    catalog,
    testClient: undefined,
    environmentId: environment.id,
    key: 'google-sheet',
    provider: 'google-sheet',
    client: { clientId: 'id', clientSecret: 'secret' },
  });
});
after(() => database.drop());

const token = (access: string, refresh = 'refresh-1') =>
  ({ type: 'OAUTH2', access_token: access, refresh_token: refresh, raw: { access_token: access } }) as const;
const makeConnection = () =>
  insertConnection(database.db, {
    vault,
    integration,
    credentials: token('access-1'),
    grant: { refreshExpiresAt: new Date('2026-12-01T00:00:00Z') },
    metadata: { kept: true },
    at: new Date(),
  });
const placeOf = ({ connectionId }: { connectionId: string }) => ({
  environmentId: integration.environmentId,
  integrationKey: integration.key,
  connectionId,
  vault,
});

test('a deletion waits for writers that hold the connection, and writers after it are refused', async () => {
  const connection = await makeConnection();
  const order: string[] = [];
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  let held = () => {};
  const isHeld = new Promise<void>((resolve) => {
    held = resolve;
  });
  const writer = database.db.transaction(async (tx) => {
    await holdConnection(tx, connection.id);
    held();
    await released;
    order.push('written');
  });
  await isHeld;
  const deletion = database.db
    .transaction((tx) => destroyConnection(tx, { id: connection.id, at: new Date() }))
    .then(() => order.push('deleted'));
  // After another statement has returned, the deletion waits in the database.
  for (let waiting = 0; waiting === 0; ) {
    const rows = await database.db.query(
      'select from pg_stat_activity where wait_event_type = $1 and datname = current_database()',
      ['Lock'],
    );
    waiting = rows.length;
  }
  release();
  await Promise.all([writer, deletion]);
  assert.deepEqual(order, ['written', 'deleted']);
  await assert.rejects(
    database.db.transaction((tx) => holdConnection(tx, connection.id)),
    { code: 'unknown_connection' },
  );
});

test('of twenty writers that swap the same credentials, one wins', async () => {
  const current = await makeConnection();
  const swaps = await Promise.all(
    Array.from({ length: 20 }, (_, index) =>
      swapCredentials(database.db, {
        current,
        credentials: token(`access-${index}`),
        grant: {},
        at: new Date(),
      }),
    ),
  );
  assert.equal(swaps.filter(Boolean).length, 1);
  const stored = await getConnection(database.db, placeOf(current));
  assert.equal(stored.credentialsVersion, current.credentialsVersion + 1);
});

test('a swap verifies a connection, unless the provider has neither issued nor accepted the credentials', async () => {
  const { id, ...place } = await makeConnection();
  const at = new Date();
  await database.db.query('update connection set is_unverified = true where id = $1', [id]);
  for (const [isUnproven, isUnverified] of [
    [true, true],
    [false, false],
    [true, false],
  ] as const) {
    const current = await getConnection(database.db, placeOf(place));
    assert.ok(
      await swapCredentials(database.db, { current, credentials: token('next'), grant: {}, isUnproven, at }),
    );
    assert.equal((await getConnection(database.db, placeOf(place))).isUnverified, isUnverified);
  }
});

test('a fault counts only for the credentials that failed, and is news once', async () => {
  const current = await makeConnection();
  const note = () =>
    endConnection(database.db, { connection: current, cause: 'grant_dead', evidence: {}, at: new Date() });
  assert.deepEqual([await note(), await note()], [true, false]);
  await replaceCredentials(database.db, {
    vault,
    current,
    credentials: token('access-2', 'refresh-2'),
    grant: {},
    at: new Date(),
  });
  assert.equal(await note(), false);
  const renewed = await getConnection(database.db, placeOf(current));
  assert.deepEqual([renewed.status, renewed.fault], ['active', undefined]);
  assert.equal(renewed.refreshExpiresAt, undefined, 'the old end is gone with the old token');
  assert.deepEqual(renewed.metadata, { kept: true });
});

test('a kept refresh token keeps its end', async () => {
  const current = await makeConnection();
  await replaceCredentials(database.db, {
    vault,
    current,
    credentials: token('access-2'),
    grant: {},
    at: new Date(),
  });
  const renewed = await getConnection(database.db, placeOf(current));
  assert.deepEqual(renewed.refreshExpiresAt, current.refreshExpiresAt);
});

test('twenty merges of metadata at once lose nothing', async () => {
  const connection = await makeConnection();
  await Promise.all(
    Array.from({ length: 20 }, (_, index) =>
      database.db.transaction((tx) =>
        changeMetadata(tx, { connection, change: (now) => ({ ...now, [`field${index}`]: index }) }),
      ),
    ),
  );
  const { metadata } = await getConnection(database.db, placeOf(connection));
  assert.equal(Object.keys(metadata).length, 21);
});

test('no sealed value is stored in plain text', async () => {
  const connection = await insertConnection(database.db, {
    vault,
    integration,
    credentials: token('very-secret-access', 'very-secret-refresh'),
    grant: {},
    metadata: { note: 'very-secret-note' },
    connectionConfig: { shop: 'very-secret-shop' },
    at: new Date(),
  });
  const [row] = await database.db.query('select connection::text as text from connection where id = $1', [
    connection.id,
  ]);
  const bytes = await database.db.query<{ all: Buffer }>(
    'select credentials || metadata || connection_config as all from connection where id = $1',
    [connection.id],
  );
  assert.ok(!JSON.stringify(row).includes('very-secret'));
  assert.ok(!bytes[0]?.all.includes('very-secret'));
  assert.equal(
    (await findConnection(database.db, placeOf(connection)))?.connectionConfig.shop,
    'very-secret-shop',
  );
});

test('a list shows metadata and never opens credentials', async () => {
  const { id, environmentId, connectionId } = await makeConnection();
  // These cannot be opened.
  await database.db.query(
    `update connection set credentials = '\\x00', connection_config = '\\x00' where id = $1`,
    [id],
  );
  const [listed] = await listConnections(database.db, {
    filter: { environmentId, connectionId },
    vault,
    sort: 'created',
    limit: 10,
    page: 0,
  });
  assert.deepEqual(listed?.metadata, { kept: true });
  await assert.rejects(getConnection(database.db, placeOf({ connectionId })));
});

test('an import sees what a refresh stores while it waits: the token that was replaced does not come back', async () => {
  const { db } = database;
  const before = await makeConnection();
  const { imported } = await db.transaction(async (tx) => {
    await tx.query('select from connection where id = $1 for update', [before.id]);
    const answer = db.transaction((other) =>
      importConnection(other, {
        caller: {
          kind: 'key',
          environmentId: integration.environmentId,
          environment: 'dev',
          keyId: 1,
          scopes: new Set(['*']),
        },
        integration,
        id: before.connectionId,
        reading: { vault, catalog, testClient: undefined },
        given: { credentials: token('imported'), grant: {}, metadata: {}, tags: {}, at: new Date() },
      }),
    );
    const waiting =
      "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    while ((await db.query(waiting)).length === 0) await pause(10);
    const credentials = token('access-2', 'refresh-2');
    await swapCredentials(tx, { current: before, credentials, grant: {}, at: new Date() });
    await tx.query('update connection set kept_tokens = $2 where id = $1', [
      before.id,
      sealKept(before, ['refresh-1']),
    ]);
    return { imported: answer };
  });
  const now = await imported;
  assert.deepEqual(now.credentials, token('access-2', 'refresh-2'));
  assert.deepEqual([now.grantedAt, now.metadata], [before.grantedAt, {}]);
});

test("a connection's own client is not stored or replaced while a node of an earlier version runs", async () => {
  const config_override = { client_id: 'own', client_secret: 'own secret' };
  const credentials = { ...token('access-1'), config_override };
  const given = { vault, integration, credentials, grant: {}, at: new Date() };
  const insert = () => database.db.transaction((tx) => insertConnection(tx, given));
  const plain = await makeConnection();
  const mine = await insert();
  const node = (migration: string, seen: string) =>
    database.db.query(
      `insert into node (id, name, role, version, migration, seen_at)
       values (gen_random_uuid(), 'one', 'api', '0.0.1', $1, clock_timestamp() - $2::interval)`,
      [migration, seen],
    );
  await node('0041_emptied_datasets.sql', '1 minute');
  await node('0042_own_client_ids.sql', '1 second');
  await insert();
  await node('0041_emptied_datasets.sql', '1 second');
  await assert.rejects(insert(), { code: 'unavailable' });
  const { db } = database;
  await assert.rejects(replaceCredentials(db, { ...given, current: plain }), { code: 'unavailable' });
  await makeConnection();
  assert.ok(await swapCredentials(db, { ...given, current: mine }), 'a refresh goes on');
  await db.query('delete from node');
  const replaced = await replaceCredentials(db, { ...given, current: plain });
  assert.equal(replaced.hasOwnClient, true);
});
