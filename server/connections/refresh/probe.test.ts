import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { after, before, beforeEach, test } from 'node:test';
import { shippedCatalog as catalog } from '../../../test/support/catalog.ts';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import { ensureEnvironment } from '../../environments/store.ts';
import { expediteProbe } from '../../integrations/fault.ts';
import { createIntegration } from '../../integrations/store.ts';
import { createLog } from '../../log.ts';
import { openVault } from '../../vault.ts';
import { createStatusTransitions } from '../health/status-transitions.ts';
import { createConnectionReader, type LiveConnection, placeOf } from '../store/reader.ts';
import { destroyConnection, insertConnection } from '../store/save.ts';
import { createCredentialSource } from './credentials.ts';
import { probeJob } from './keepalive.ts';

const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
const reading = { vault, catalog, testClient: undefined };
const accepted = { access_token: 'new', token_type: 'Bearer', expires_in: 3600 };

let database: TestDatabase;
let environmentId: number;
let time = new Date('2026-11-21T12:00:00Z');
/** The provider's answer, and the number of requests. */
let answer: { status: number; body: object };
let asked = 0;
/** Answers that depend on the refresh token. */
let answerTo: ((token: string) => typeof answer) | undefined;
let run: () => Promise<unknown>;
let refuse: (connection: LiveConnection, error: string) => Promise<unknown>;
let reader: ReturnType<typeof createConnectionReader>;
let one: LiveConnection;
let made = 0;
before(async () => {
  database = await openTestDatabase();
  const { db } = database;
  environmentId = (await ensureEnvironment(db, { name: 'dev', vault })).environment.id;
  reader = createConnectionReader({ db, reading });
  const now = () => time;
  const log = createLog({ level: 'silent', format: 'json' });
  const transitions = createStatusTransitions({ db, reader, now, log });
  const fetchFor = () => async (_url: string, init: { body?: unknown }) => {
    asked += 1;
    const token = new URLSearchParams(String(init.body)).get('refresh_token') ?? '';
    const { status, body } = answerTo?.(token) ?? answer;
    const headers = { 'content-type': 'application/json' };
    return new Response(JSON.stringify(body), { status, headers });
  };
  const credentials = createCredentialSource({ db, reader, fetchFor, transitions, vault, log, now });
  const job = probeJob({ db, reader, credentials, isSandboxOn: false, log, now });
  run = () => job.run({}, new AbortController().signal);
  refuse = (connection, error) =>
    transitions.refused(connection, { kind: 'client_misconfigured', error, httpStatus: 401 });
});
after(() => database.drop());
beforeEach(async () => {
  made += 1;
  asked = 0;
  answerTo = undefined;
  await database.db.query('update integration set fault = null, probe_at = null');
  const integration = await createIntegration(database.db, {
    ...reading,
    environmentId,
    key: `sheets-${made}`,
    provider: 'google-sheet',
    client: { clientId: 'id', clientSecret: 'secret' },
  });
  const credentials = { type: 'OAUTH2', access_token: 'old', refresh_token: 'refresh', raw: {} } as const;
  const grant = { accessExpiresAt: time };
  one = await reader.get(
    placeOf(await insertConnection(database.db, { vault, integration, credentials, grant, at: time })),
  );
});

const advance = (seconds: number) => {
  time = new Date(time.getTime() + seconds * 1000);
};
const types = async () =>
  (
    await database.db.query<{ type: string }>(
      `select type from event where data->>'provider_config_key' = $1 order by created_at`,
      [one.integrationKey],
    )
  ).map(({ type }) => type);
const probeOf = async ({ integrationId }: LiveConnection) => {
  const [row] = await database.db.query<{ probe_at: Date }>(
    'select probe_at from integration where id = $1',
    [integrationId],
  );
  return row!;
};
const cause = async () => (await reader.reread(one)).integrationFault?.cause;

test('a user may demand the next try, at most every ten seconds', async () => {
  answer = { status: 401, body: { error: 'invalid_client' } };
  await refuse(one, 'invalid_client');
  const { integration } = one;
  const demand = () => expediteProbe(database.db, { integration, at: time });
  for (const [afterS, isTried] of [
    [9, false],
    [1, true],
    [9, false],
    [1, true],
    [60, true],
  ] as const) {
    const before = asked;
    advance(afterS);
    await demand();
    await run();
    assert.equal(asked - before, Number(isTried), `after ${afterS} s`);
  }
  assert.equal(await cause(), 'client_refused');
  answer = { status: 200, body: accepted };
  advance(10);
  await demand();
  await run();
  assert.equal(await cause(), undefined);
  await demand();
  assert.equal((await probeOf(one)).probe_at, null, 'without a fault nothing becomes due');
});

test('a refused client is tried at growing intervals without calls, until it is accepted', async () => {
  answer = { status: 401, body: { error: 'invalid_client' } };
  await refuse(one, 'invalid_client');
  for (const minutes of [1, 2, 4]) {
    const before = asked;
    advance(minutes * 60 - 1);
    await run();
    assert.equal(asked, before, 'it is too early');
    advance(1);
    for (let turn = 0; turn < 3; turn += 1) await run();
    assert.equal(asked, before + 1, `after ${minutes} minutes`);
  }
  assert.equal(await cause(), 'client_refused');
  answer = { status: 200, body: accepted };
  advance(3600);
  await run();
  assert.equal(await cause(), undefined);
  assert.deepEqual(await types(), ['integration.misconfigured', 'integration.recovered']);
  await run();
  assert.equal(asked, 4, 'there is nothing left to probe');
});

test('a probe that was put off by a clock far ahead is made all the same', async () => {
  await refuse(one, 'invalid_client');
  const ahead = new Date(time.getTime() + 12 * 3600_000);
  await database.db.query('update integration set probe_at = $2 where id = $1', [one.integrationId, ahead]);
  answer = { status: 200, body: accepted };
  await run();
  assert.equal(await cause(), undefined);
});

test('a connection that cannot be opened is passed over, and stops no other integration', async () => {
  const { db } = database;
  await refuse(one, 'invalid_client');
  const bad = one;
  await db.query("update connection set credentials = '\\x00' where id = $1", [bad.id]);
  const credentials = { type: 'OAUTH2', access_token: 'old', refresh_token: 'refresh', raw: {} } as const;
  const grant = { accessExpiresAt: new Date(time.getTime() + 1) };
  advance(60);
  reader.forget(placeOf(bad));
  await run();
  assert.equal(asked, 0);
  await insertConnection(db, { vault, integration: bad.integration, credentials, grant, at: time });
  answer = { status: 200, body: accepted };
  advance(3600);
  await run();
  assert.equal(asked, 1);
  assert.deepEqual(await types(), ['integration.misconfigured', 'integration.recovered']);
});

test('an integration without a connection to try waits as well', async () => {
  await refuse(one, 'invalid_client');
  await database.db.transaction((tx) => destroyConnection(tx, { id: one.id, at: new Date() }));
  advance(60);
  await run();
  assert.equal((await probeOf(one)).probe_at.getTime(), time.getTime() + 120_000);
  assert.equal(asked, 0);
});

test('a fault that lasts for years is probed all the same', async () => {
  await refuse(one, 'invalid_client');
  answer = { status: 401, body: { error: 'invalid_client' } };
  await database.db.query('update integration set probes = 100000');
  advance(60);
  await run();
  assert.equal((await probeOf(one)).probe_at.getTime(), time.getTime() + 3_600_000);
});

test('a test integration without the sandbox stops no other', async () => {
  const { db } = database;
  const test = await createIntegration(db, {
    ...reading,
    testClient: { url: 'http://localhost', clientId: 'id', clientSecret: 'secret' },
    environmentId,
    key: `test-${made}`,
    provider: 'google-sheet',
    isTest: true,
  });
  const fault = { cause: 'client_refused', evidence: {}, since: time.toISOString(), next_step: '' };
  await db.query('update integration set fault = $2, probe_at = $3 where id = $1', [test.id, fault, time]);
  await refuse(one, 'invalid_client');
  answer = { status: 200, body: accepted };
  advance(60);
  await run();
  assert.equal(asked, 1);
  assert.equal(await cause(), undefined);
  const [row] = await db.query<{ probes: number }>('select probes from integration where id = $1', [test.id]);
  assert.equal(row?.probes, 0, 'it was left alone');
});

test('a connection whose token the client may not use is probed last', async () => {
  const credentials = { type: 'OAUTH2', access_token: 'old', refresh_token: 'well', raw: {} } as const;
  const make = (refresh_token: string) =>
    insertConnection(database.db, {
      vault,
      integration: one.integration,
      grant: { accessExpiresAt: time },
      at: time,
      credentials: { ...credentials, refresh_token },
    });
  for (let index = 0; index < 6; index += 1) await make('foreign');
  await database.db.query(
    `update connection set withheld = '{}', withheld_until = now() - interval '1 hour' where integration_id = $1`,
    [one.integrationId],
  );
  await make('well');
  await refuse(one, 'invalid_client');
  answerTo = (token) =>
    token === 'well'
      ? { status: 200, body: accepted }
      : { status: 401, body: { error: 'unauthorized_client' } };
  advance(60);
  await run();
  assert.equal(asked, 1);
  assert.equal(await cause(), undefined);
});

test('a connection with a client of its own does not probe the integration’s client', async () => {
  const config_override = { client_id: 'own', client_secret: 'own secret' };
  const credentials = { type: 'OAUTH2', access_token: 'old', refresh_token: 'own', raw: {} } as const;
  for (let index = 0; index < 6; index += 1)
    await insertConnection(database.db, {
      vault,
      integration: one.integration,
      grant: { accessExpiresAt: time },
      at: time,
      credentials: { ...credentials, config_override },
    });
  await refuse(one, 'invalid_client');
  const tokens: string[] = [];
  answerTo = (token) => {
    tokens.push(token);
    return { status: 200, body: accepted };
  };
  advance(60);
  await run();
  assert.deepEqual(tokens, ['refresh']);
  assert.equal(await cause(), undefined);
});

test('each probe uses another connection, so a connection that always fails does not delay the others', async () => {
  const credentials = { type: 'OAUTH2', access_token: 'old', refresh_token: 'well', raw: {} } as const;
  const grant = { accessExpiresAt: new Date(time.getTime() + 9_000_000) };
  await insertConnection(database.db, { vault, integration: one.integration, credentials, grant, at: time });
  await refuse(one, 'invalid_client');
  answerTo = (token) =>
    token === 'well' ? { status: 200, body: accepted } : { status: 401, body: { error: 'invalid_client' } };
  for (let turn = 0; turn < 2; turn += 1) {
    advance(3600);
    await run();
  }
  assert.equal(await cause(), undefined);
});
