import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { ensureEnvironment } from '../environments/store.ts';
import { createIntegration } from '../integrations/store.ts';
import { createLog } from '../log.ts';
import { loadCatalog } from '../providers/catalog.ts';
import { openVault } from '../vault.ts';
import { createCredentialSource } from './credentials.ts';
import { probeJob } from './probe.ts';
import { createConnectionReader, type LiveConnection, placeOf } from './reader.ts';
import { insertConnection } from './save.ts';
import { createStates } from './states.ts';
import { destroyConnection } from './store.ts';

const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
const catalog = loadCatalog(join(import.meta.dirname, '../../providers'));
const reading = { vault, catalog, testClient: undefined };
const accepted = { access_token: 'new', token_type: 'Bearer', expires_in: 3600 };

let database: TestDatabase;
let environmentId: number;
let time = new Date('2026-11-21T12:00:00Z');
/** What the provider answers, and how often it was asked. */
let answer: { status: number; body: object };
let asked = 0;
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
  const states = createStates({ db, reader, now, log });
  const fetchFor = () => async () => {
    asked += 1;
    const headers = { 'content-type': 'application/json' };
    return new Response(JSON.stringify(answer.body), { status: answer.status, headers });
  };
  const credentials = createCredentialSource({ db, reader, fetchFor, states, log, now });
  const job = probeJob({ db, reader, credentials, now });
  run = () => job.run({}, new AbortController().signal);
  refuse = (connection, error) =>
    states.refused(connection, { kind: 'client_misconfigured', error, httpStatus: 401 });
});
after(() => database.drop());
beforeEach(async () => {
  made += 1;
  asked = 0;
  await database.db.query('update integration set fault = null, probe_at = null');
  const integration = await createIntegration(database.db, {
    ...{ ...reading, environmentId, key: `sheets-${made}`, provider: 'google-sheet' },
    client: { clientId: 'id', clientSecret: 'secret' },
  });
  const credentials = { type: 'OAUTH2', access_token: 'old', refresh_token: 'refresh', raw: {} } as const;
  const grant = { accessExpiresAt: time };
  one = await reader.get(
    placeOf(await insertConnection(database.db, { vault, integration, credentials, grant })),
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
const cause = async () => (await reader.reread(one)).integrationFault?.cause;

test('a refused client is tried at growing intervals while nobody calls, until it is accepted', async () => {
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

test('an integration without a connection to try waits as well', async () => {
  await refuse(one, 'invalid_client');
  await database.db.transaction((tx) => destroyConnection(tx, one.id));
  advance(60);
  await run();
  const [row] = await database.db.query<{ probe_at: Date }>(
    'select probe_at from integration where key = $1',
    [one.integrationKey],
  );
  assert.equal(row?.probe_at.getTime(), time.getTime() + 120_000);
  assert.equal(asked, 0);
});

test('a fault of one token alone ends with its connection', async () => {
  await refuse(one, 'unauthorized_client');
  assert.equal(await cause(), 'client_not_allowed');
  await database.db.transaction((tx) => destroyConnection(tx, one.id));
  advance(60);
  await run();
  assert.deepEqual(await types(), ['integration.misconfigured', 'integration.recovered']);
});
