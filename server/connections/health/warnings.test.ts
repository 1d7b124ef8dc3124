import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { after, before, beforeEach, test } from 'node:test';
import { shippedCatalog as catalog } from '../../../test/support/catalog.ts';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import { ensureEnvironment } from '../../environments/store.ts';
import { createIntegration, type Integration } from '../../integrations/store.ts';
import { createLog } from '../../log.ts';
import { openVault } from '../../vault.ts';
import { insertConnection, replaceCredentials } from '../store/save.ts';
import type { Connection } from '../store/store.ts';
import { expiryOf, noticeMs, warnOfExpiries, warnOfSunsets } from './warnings.ts';

const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
const google = catalog.get('google-sheet');
const start = new Date('2026-11-21T12:00:00Z');
const hourMs = 3600_000;
const log = createLog({ level: 'silent', format: 'json' });
const later = (ms: number) => new Date(start.getTime() + ms);

let database: TestDatabase;
let integration: Integration;
before(async () => {
  database = await openTestDatabase();
  const environmentId = (await ensureEnvironment(database.db, { name: 'dev', vault })).environment.id;
  integration = await createIntegration(database.db, {
    vault,
    catalog,
    testClient: undefined,
    environmentId,
    key: 'sheets',
    provider: 'google-sheet',
    client: { clientId: 'id', clientSecret: 'secret' },
  });
});
after(() => database.drop());
beforeEach(async () => {
  await database.db.query('delete from connection');
  await database.db.query('delete from event');
});

const tokenOf = (refresh: string) =>
  ({ type: 'OAUTH2', access_token: 'access', refresh_token: refresh, raw: {} }) as const;
const connect = (refreshExpiresAt: Date | undefined) =>
  insertConnection(database.db, {
    vault,
    integration,
    credentials: tokenOf('first'),
    grant: { refreshExpiresAt },
    at: start,
  });
const reconnect = (current: Connection, { refresh, at, end }: { refresh: string; at: Date; end: Date }) =>
  replaceCredentials(database.db, {
    vault,
    current,
    credentials: tokenOf(refresh),
    grant: { refreshExpiresAt: end },
    at,
  });
const warn = (now: Date) =>
  warnOfExpiries(database.db, { catalog, log, now, signal: new AbortController().signal });
const events = () =>
  database.db.query<{ type: string; data: Record<string, unknown> }>('select type, data from event');
const week = later(604_799_000);

test('a life of seven days is that of a client under test, any other one was chosen by the user', () => {
  const causeOf = (refreshExpiresAt: Date) => expiryOf({ refreshExpiresAt, grantedAt: start }, google)?.cause;
  assert.equal(causeOf(week), 'testing_expiry');
  assert.equal(causeOf(later(24 * hourMs)), 'time_based_expiry');
  assert.equal(causeOf(later(90 * 24 * hourMs)), 'time_based_expiry');
  assert.equal(expiryOf({ refreshExpiresAt: undefined, grantedAt: start }, google), undefined);
});

test('the end of a grant is reported 48 hours before, with cause, date and next step', async () => {
  const connection = await connect(week);
  assert.equal(await warn(new Date(week.getTime() - noticeMs - 1)), 0);
  assert.equal(await warn(new Date(week.getTime() - noticeMs)), 1);
  const [reported] = await events();
  assert.equal(reported?.type, 'connection.expiring');
  assert.equal(reported.data.connection_id, connection.connectionId);
  assert.equal(reported.data.cause, 'testing_expiry');
  assert.equal(reported.data.expires_at, week.toISOString());
  assert.match(String(reported.data.next_step), /Publish the application/);
});

test('it is reported once per grant, whichever node checks and however often', async () => {
  const connection = await connect(week);
  const near = new Date(week.getTime() - hourMs);
  await Promise.all(Array.from({ length: 20 }, () => warn(near)));
  await warn(near);
  assert.equal((await events()).length, 1);
  // The same grant, from a provider that counts the seconds again in each response.
  await reconnect(connection, { refresh: 'first', at: near, end: later(604_798_000) });
  assert.equal(await warn(near), 0);
  await reconnect(connection, { refresh: 'second', at: near, end: new Date(near.getTime() + 604_799_000) });
  assert.equal(await warn(near), 0);
  assert.equal(await warn(new Date(near.getTime() + 600_000_000)), 1);
  assert.equal((await events()).length, 2);
});

test('it is reported again if the provider extends the grant at each refresh', async () => {
  const connection = await connect(later(40 * hourMs));
  assert.equal(await warn(start), 1);
  const slide = (end: Date) =>
    database.db.query('update connection set refresh_expires_at = $1 where id = $2', [end, connection.id]);
  await slide(later(40 * hourMs + 1000));
  assert.equal(await warn(start), 0);
  await slide(later(720 * hourMs));
  assert.equal(await warn(later(hourMs)), 0);
  const near = later(700 * hourMs);
  assert.equal(await warn(near), 1);
  assert.equal(await warn(near), 0);
});

test('the end of a new grant is reported, however near it is to that of the previous grant', async () => {
  const connection = await connect(later(24 * hourMs));
  assert.equal(await warn(start), 1);
  await reconnect(connection, { refresh: 'second', at: later(hourMs), end: later(25 * hourMs) });
  assert.equal(await warn(later(hourMs)), 1);
});

test('a warning that cannot be written does not stop the others', async () => {
  const bad = await connect(later(hourMs));
  await connect(later(2 * hourMs));
  await database.db.query(
    `alter table connection add constraint broken check (id <> ${bad.id} or expiry_told_for is null)`,
  );
  assert.equal(await warn(start), 1);
  await database.db.query('alter table connection drop constraint broken');
});

test('grants that have ended, are dead, deleted or without an end are not reported', async () => {
  await connect(undefined);
  await connect(later(-1));
  const dead = await connect(later(hourMs));
  const gone = await connect(later(hourMs));
  await database.db.query("update connection set status = 'needs_reauth' where id = $1", [dead.id]);
  await database.db.query(
    'update connection set deleted_at = now(), data_key = null, credentials = null where id = $1',
    [gone.id],
  );
  assert.equal(await warn(start), 0);
  assert.deepEqual(await events(), []);
});

test('an announced end is reported once for each integration, 90 days before and not earlier', async () => {
  const { db } = database;
  const shop = await createIntegration(db, {
    vault,
    catalog,
    testClient: undefined,
    environmentId: integration.environmentId,
    key: 'shop',
    provider: 'shopify',
    client: { clientId: 'id', clientSecret: 'secret' },
  });
  const { on } = shop.provider.sunset[0]!;
  const before = (days: number) => new Date(Date.parse(on) - days * 24 * hourMs);
  const look = (now: Date) => warnOfSunsets(db, { catalog, log, now, signal: new AbortController().signal });
  assert.equal(await look(before(80)), 0, 'no connection needs the feature');
  const lasting = { type: 'OAUTH2', access_token: 'access', raw: {} } as const;
  await insertConnection(db, { vault, integration: shop, credentials: lasting, grant: {}, at: start });
  assert.equal(await look(before(91)), 0);
  const looks = await Promise.all(Array.from({ length: 20 }, () => look(before(90))));
  assert.equal(
    looks.reduce((sum, each) => sum + each, 0),
    1,
  );
  assert.equal(await look(before(1)), 0);
  const [reported, ...others] = await events();
  assert.equal(others.length, 0);
  assert.partialDeepStrictEqual(reported, {
    type: 'integration.sunset',
    data: { provider_config_key: 'shop', on, connections: 1 },
  });
});
