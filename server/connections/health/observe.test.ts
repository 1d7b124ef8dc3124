import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { after, before, beforeEach, test } from 'node:test';
import { shippedCatalog as catalog } from '../../../test/support/catalog.ts';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import { ensureEnvironment } from '../../environments/store.ts';
import { createIntegration } from '../../integrations/store.ts';
import { createLog } from '../../log.ts';
import { openVault } from '../../vault.ts';
import { createConnectionReader, type LiveConnection, placeOf } from '../store/reader.ts';
import { insertConnection, replaceCredentials, swapCredentials } from '../store/save.ts';
import { healthToWire } from './health.ts';
import { createObserver, type ObservedAnswer, type Observer } from './observe.ts';

const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
const reading = { vault, catalog, testClient: undefined };
const sheets = 'https://www.googleapis.com/auth/spreadsheets';
const drive = 'https://www.googleapis.com/auth/drive';

let database: TestDatabase;
let environmentId: number;
let time = new Date('2026-11-21T12:00:00Z');
let reader: ReturnType<typeof createConnectionReader>;
let observers: [Observer, Observer];
let one: LiveConnection;
let made = 0;
before(async () => {
  database = await openTestDatabase();
  const { db } = database;
  environmentId = (await ensureEnvironment(db, { name: 'dev', vault })).environment.id;
  reader = createConnectionReader({ db, reading });
  const log = createLog({ level: 'silent', format: 'json' });
  // Two nodes.
  const open = () => createObserver({ db, log, reader, now: () => time });
  observers = [open(), open()];
});
after(() => database.drop());
beforeEach(async () => {
  made += 1;
  const integration = await createIntegration(database.db, {
    ...reading,
    environmentId,
    key: `sheets-${made}`,
    provider: 'google-sheet',
    client: { clientId: 'id', clientSecret: 'secret' },
  });
  const credentials = { type: 'OAUTH2', access_token: 'access', raw: {} } as const;
  const grant = { scopesRequested: ['openid', sheets], scopesGranted: ['openid', sheets] };
  one = await reader.get(
    placeOf(await insertConnection(database.db, { vault, integration, credentials, grant, at: new Date() })),
  );
});

const refused = (status: number, reason: string, metadata: Record<string, string> = {}): ObservedAnswer => ({
  url: 'https://sheets.example/v4/spreadsheets/1',
  status,
  headers: { 'www-authenticate': `Bearer error="insufficient_scope", scope="${drive} ${sheets}"` },
  body: Buffer.from(
    JSON.stringify({
      error: { details: [{ '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason, metadata }] },
    }),
  ),
});
/** Ten times at each of two nodes. */
async function observe(answer: ObservedAnswer): Promise<void> {
  const current = await reader.reread(one);
  for (let turn = 0; turn < 10; turn += 1) for (const node of observers) node.observe(current, answer);
  await Promise.all(observers.map((node) => node.settled()));
}
const health = async () => healthToWire(await reader.reread(one), one.integration.provider);
const events = () =>
  database.db.query<{ type: string; data: Record<string, unknown> }>(
    `select type, data from event where data->>'provider_config_key' = $1 order by created_at`,
    [one.integrationKey],
  );
const types = async () => (await events()).map(({ type }) => type);

test('a scope that an API requires is stored and reported once, and the connection stays active', async () => {
  await observe(refused(403, 'ACCESS_TOKEN_SCOPE_INSUFFICIENT'));
  await observe(refused(403, 'ACCESS_TOKEN_SCOPE_INSUFFICIENT'));
  const { status, cause, missing_scopes, reconnect } = await health();
  assert.deepEqual([status, cause, missing_scopes], ['active', 'scopes_missing', [sheets]]);
  assert.equal(reconnect?.body.connection_id, one.connectionId);
  const [event, ...more] = await events();
  assert.deepEqual([event?.type, event?.data.lost_scopes], ['connection.scopes_reduced', [sheets]]);
  assert.deepEqual(more, []);
});

test('a scope is noted too where the token was refreshed meanwhile, but not on another grant', async () => {
  const asked = one;
  await swapCredentials(database.db, {
    current: one,
    credentials: one.credentials,
    grant: {},
    at: new Date(),
  });
  const [node] = observers;
  const answer = refused(403, 'ACCESS_TOKEN_SCOPE_INSUFFICIENT');
  node.observe(asked, answer);
  await node.settled();
  assert.deepEqual((await health()).missing_scopes, [sheets]);
  const credentials = { type: 'OAUTH2', access_token: 'a', refresh_token: 'another', raw: {} } as const;
  const current = await reader.reread(one);
  const at = new Date(current.grantedAt.getTime() + 1);
  const grant = { scopesRequested: [sheets], scopesGranted: [sheets] };
  await replaceCredentials(database.db, { vault, current, credentials, grant, at });
  node.observe(asked, answer);
  await node.settled();
  assert.deepEqual((await health()).missing_scopes, []);
});

test('a scope that was never granted is not reported again', async () => {
  await database.db.query('update connection set scopes_granted = $2 where id = $1', [one.id, ['openid']]);
  await observe(refused(403, 'ACCESS_TOKEN_SCOPE_INSUFFICIENT'));
  assert.deepEqual((await health()).missing_scopes, [sheets]);
  assert.deepEqual(await types(), []);
});

test('a disabled API is reported once, with the URL that enables it, and its recovery too', async () => {
  const activationUrl = 'https://console.example/activate';
  await observe(refused(403, 'SERVICE_DISABLED', { service: 'sheets.googleapis.com', activationUrl }));
  const { status, kind, cause, evidence, next_step } = await health();
  assert.deepEqual([status, kind, cause], ['active', 'integration', 'api_disabled']);
  assert.equal(evidence?.activation_url, activationUrl);
  assert.match(next_step ?? '', /https:\/\/console\.example\/activate/);
  const works = { status: 200, headers: {}, body: Buffer.alloc(0) };
  await observe({ ...works, url: 'https://sheets.example/drive/v3/files' });
  assert.equal((await health()).cause, 'api_disabled', 'another API works');
  await observe({ ...works, url: 'https://sheets.example/v4/spreadsheets/2?x=1' });
  assert.equal((await health()).cause, null);
  assert.deepEqual(await types(), ['integration.misconfigured', 'integration.recovered']);
});

test('an exhausted quota is reported at most once a minute and subject', async () => {
  const quota_limit = 'ReadRequestsPerMinutePerUser';
  for (const seconds of [0, 30, 29]) {
    time = new Date(time.getTime() + seconds * 1000);
    await observe(refused(429, 'RATE_LIMIT_EXCEEDED', { quota_limit }));
  }
  const [event, ...more] = await events();
  assert.equal(event?.type, 'connection.rate_limited');
  assert.deepEqual([event?.data.limit, event?.data.evidence], ['quota', { quota_limit }]);
  assert.deepEqual(more, []);
  time = new Date(time.getTime() + 1000);
  await observe(refused(429, 'RATE_LIMIT_EXCEEDED', { quota_limit }));
  await observe(refused(429, 'RATE_LIMIT_EXCEEDED', { quota_limit: 'ReadRequestsPerMinutePerProject' }));
  assert.deepEqual(await types(), [
    'connection.rate_limited',
    'connection.rate_limited',
    'integration.rate_limited',
  ]);
  assert.equal((await health()).status, 'active');
});

test("a page against robots is the operator's to hear of", async () => {
  const headers = { 'content-type': 'text/html' };
  await observe({ url: 'https://sheets.example/v4', status: 429, headers, body: Buffer.from('<html>') });
  const [event, ...more] = await events();
  assert.deepEqual([event?.type, event?.data.limit], ['integration.rate_limited', 'abuse_guard']);
  assert.deepEqual(more, []);
});

test('an error about the OAuth client of an imported connection does not fault the integration', async () => {
  const config_override = { client_id: 'own', client_secret: 'own secret' };
  const credentials = { type: 'OAUTH2', access_token: 'a', config_override, raw: {} } as const;
  const current = await reader.reread(one);
  await replaceCredentials(database.db, { vault, current, credentials, grant: {}, at: new Date() });
  await observe(refused(403, 'SERVICE_DISABLED', { service: 'sheets.googleapis.com' }));
  assert.equal((await health()).cause, null);
  assert.deepEqual(await types(), []);
  await observe(refused(429, 'RATE_LIMIT_EXCEEDED', { quota_limit: 'ReadRequestsPerMinutePerProject' }));
  assert.deepEqual(await types(), ['connection.rate_limited']);
});

test('files, requests and outages say nothing of the connection', async () => {
  for (const status of [400, 401, 403, 404, 410, 500, 503]) await observe(refused(status, 'OTHER'));
  assert.deepEqual(await types(), []);
  assert.deepEqual([(await health()).status, (await health()).cause], ['active', null]);
});

test('an observation that cannot be written is discarded, and the observer continues', async () => {
  const gone = { ...(await reader.reread(one)), id: 2 ** 40 };
  observers[0].observe(gone, refused(403, 'ACCESS_TOKEN_SCOPE_INSUFFICIENT'));
  observers[0].observe(one, { ...refused(403, 'SERVICE_DISABLED'), url: 'no address' });
  await observers[0].settled();
  assert.deepEqual(await types(), ['integration.misconfigured']);
});
