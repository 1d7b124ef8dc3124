// Slow: it moves whole installations.

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { faultFrom } from '../../../server/connections/health/health.ts';
import { openKept, sealKept } from '../../../server/connections/refresh/previous-refresh-tokens.ts';
import { destroyConnection, insertConnection } from '../../../server/connections/store/save.ts';
import { insertEndpoint, listEndpoints } from '../../../server/deliveries/endpoints.ts';
import { readSettings, setAddress, writeSettings } from '../../../server/deliveries/settings.ts';
import { signingKeys } from '../../../server/deliveries/signing.ts';
import { readConnectSettings, writeConnectSettings } from '../../../server/environments/connect-settings.ts';
import { createKey } from '../../../server/environments/keys.ts';
import { changeVariables, listVariables } from '../../../server/environments/variables.ts';
import { createIntegration, listIntegrations } from '../../../server/integrations/store.ts';
import { raisePositions } from '../../../server/ops/backup/positions.ts';
import { cursorWriter } from '../../../server/records/cursor.ts';
import { findDataset } from '../../../server/records/dataset.ts';
import { setDatasetSettings } from '../../../server/records/datasets.ts';
import { listRecords } from '../../../server/records/read/list.ts';
import { createScratchBuffer } from '../../../server/records/read/portion.ts';
import { acknowledge, findConsumer } from '../../../server/records/retention/consumers.ts';
import { listPolicies, setPolicy } from '../../../server/records/retention/policy.ts';
import { pruneRecords } from '../../../server/records/retention/prune.ts';
import { openTarget, saveImported } from '../datasets.ts';
import { type Installation, openInstallation, outcomesOf, renewHere } from '../migrate.fixture.ts';
import type { Report, Reported } from '../report.ts';
import { brand, bytesFrom, linesFrom, takeFile, withFile } from './file.fixture.ts';
import { type FileRun, tryFile } from './run.ts';

const at = new Date('2026-01-31T12:00:00.000Z');
const recordCount = 1_300;

let there: Installation;
let here: Installation;
before(async () => {
  there = await openInstallation('there');
  await furnish();
});
after(() => there.drop());
beforeEach(async () => {
  here = await openInstallation('here');
});
afterEach(() => here.drop());

/** What an installation has that is used. */
async function furnish(): Promise<void> {
  const { db, vault, reading, environment } = there;
  const { id: environmentId } = environment;
  await db.transaction(async (tx) => {
    await writeSettings(tx, {
      environmentId,
      change: { switches: { on_sync_error: false }, overlapHours: 48 },
    });
    await setAddress(tx, { environmentId, kind: 'primary', url: 'https://app.example.com/hook', now: at });
    await writeConnectSettings(tx, { environmentId, change: { app_name: 'Cities', theme: 'dark' } });
    await changeVariables(tx, {
      environmentId,
      vault,
      set: [{ name: 'API_BASE', value: 'secret-of-a-variable' }],
      remove: [],
      max: 9,
    });
    await insertEndpoint(tx, {
      environmentId,
      url: 'https://app.example.com/events',
      description: 'ours',
      types: ['connection.*'],
    });
    await createKey(tx, { environment, name: 'app', scopes: ['records:read'], rateLimit: 60 });
    const integration = await createIntegration(tx, {
      ...reading,
      environmentId,
      key: 'sheets',
      provider: 'google-sheet',
      client: { clientId: 'c.apps', clientSecret: 'client-secret-there' },
      scopes: ['openid', 'email'],
      custom: { a: 'b' },
      forwardWebhooks: false,
      proxyRules: [{ effect: 'deny', path: '/admin' }],
    });
    const notes = await createIntegration(tx, {
      ...reading,
      environmentId,
      key: 'notes',
      provider: 'private-api-key',
      integrationConfig: { base_url: 'https://notes.example.com' },
    });
    await setPolicy(
      tx,
      { environmentId, integrationKey: 'sheets' },
      { pruneAfterDays: 400, removeTombstonesAfterDays: null, waitForConsumers: true },
    );
    const ada = await insertConnection(tx, {
      vault,
      integration,
      connectionId: 'ada',
      at,
      credentials: {
        type: 'OAUTH2',
        access_token: 'access-of-ada-0001',
        refresh_token: 'refresh-of-ada-0001',
        expires_at: '2026-02-01T00:00:00.000Z',
        config_override: { client_id: 'own.apps', client_secret: 'own-client-secret' },
        raw: { scope: 'openid email' },
      },
      grant: {
        account: { id: 'sub-1', email: 'ada@example.com' },
        scopesRequested: ['openid', 'email'],
        scopesGranted: ['openid'],
        accessExpiresAt: new Date('2026-02-01T00:00:00.000Z'),
        refreshExpiresAt: new Date('2026-08-01T00:00:00.000Z'),
      },
      metadata: { sheet: 's1' },
      connectionConfig: { tenant: 't' },
      tags: { team: 'blue' },
      endUser: { id: 'ada', email: 'ada@example.com', organization: { id: 'acme' } },
    });
    await tx.query(
      `update connection
       set kept_tokens = $2, status = 'needs_reauth', fault = $3, scopes_lacking = '{email}', created_at = '2025-05-05'
       where id = $1`,
      [
        ada.id,
        sealKept(ada, ['refresh-before-0001']),
        // As one that came from a peer which had no credentials for it.
        JSON.stringify(faultFrom('no_refresh_token', { evidence: { imported_from: 'nango' }, at })),
      ],
    );
    for (const id of ['bob', 'eve'])
      await insertConnection(tx, {
        vault,
        integration: notes,
        connectionId: id,
        at,
        grant: {},
        credentials: { type: 'API_KEY', apiKey: `key-of-${id}-0001` },
      });
    await insertConnection(tx, {
      vault,
      integration: notes,
      connectionId: 'left',
      at,
      grant: {},
      credentials: { type: 'API_KEY', apiKey: 'key-of-left-0001' },
    });
  });
  await db.query(`update connection set refreshed_at = '2026-01-15'`);
  await signingKeys(db, { environmentId, vault, now: at });
  const left = (await there.find('notes', 'left'))!;
  await db.transaction((tx) => destroyConnection(tx, { id: left.id, at }));
  await fillDataset();
}

const place = { integration: 'notes', connection: 'bob', model: 'Row', variant: 'base' };

/** Deleted ones among them, the first hundred pruned, and two who follow. */
async function fillDataset(): Promise<void> {
  const { db, vault, environment } = there;
  const target = await openTarget(db, { environmentId: environment.id, dataset: place, vault });
  await setDatasetSettings(db, target, { ignoreFields: ['seen'], massDeleteShare: 0.9 });
  const records = Array.from({ length: recordCount }, (_, n) => ({
    id: `r${n}`,
    fields: { name: `Name ${n}`, text: 'ä'.repeat(n % 40), n },
    isDeleted: n % 100 === 50,
  }));
  for (let from = 0; from < records.length; from += 500)
    await saveImported(db, {
      target,
      records: records.slice(from, from + 500),
      metadataKey: brand.metadataKey,
    });
  const cursor = await cursorAt(there, 100);
  await pruneRecords(db, {
    ...target,
    untilCursor: cursor,
    limit: 1_000,
    by: { environmentId: environment.id, actor: 'service', target: 'notes/bob' },
  });
  await acknowledge(db, { by: 'service', ...target, name: 'app', cursor: await cursorAt(there, 700) });
  await acknowledge(db, { by: 'service', ...target, name: 'late', cursor: undefined });
}

async function cursorAt(of: Installation, seq: number): Promise<string> {
  const connection = (await of.find('notes', 'bob'))!.id;
  const dataset = await findDataset(of.db, { connection, model: 'Row', variant: 'base' });
  return cursorWriter(dataset!.id)(seq);
}

/** The bytes of a file of everything. */
function exported(more: { hasRecords?: boolean; hasApiKeys?: boolean } = {}): Promise<Buffer> {
  return bytesFrom(there, { number: 1, now: at, hasRecords: true, hasApiKeys: true, ...more });
}

/** `times`: how often it may tell of its progress. */
async function takeUntilKilled(bytes: Buffer, times: number): Promise<void> {
  let told = 0;
  const onProgress = () => {
    told += 1;
    if (told >= times) throw new Error('killed');
  };
  await assert.rejects(take(bytes, { onProgress }), /killed/);
}

async function take(bytes: Buffer, more: Partial<FileRun> = {}): Promise<Report> {
  const reported = await takeFile(here, bytes, { now: () => at, ...more });
  assert.equal(reported.length, 1);
  return reported[0]!.report;
}

async function rowsOf(of: Installation, cursor?: string) {
  const connection = (await of.find('notes', 'bob'))!;
  const request = { connection, model: 'Row', variant: 'base', limit: 10_000, maxBytes: 1e9, cursor };
  const { records } = await listRecords(of.db, { ...request, scratch: createScratchBuffer() });
  return records
    .filter(({ prunedAt, lastAction }) => prunedAt === null || lastAction === 'DELETED')
    .map(({ id, lastAction, fields }) => [id, lastAction, fields?.toString() ?? '{}']);
}

async function consumerOf(of: Installation, name: string) {
  const connection = (await of.find('notes', 'bob'))!.id;
  return findConsumer(of.db, { connection, model: 'Row', variant: 'base', name });
}

test('an import into an installation with another master key restores all objects of the environment', async () => {
  const report = await take(await exported());
  assert.deepEqual(outcomesOf(report), { made: 3 });
  assert.deepEqual(
    report.integrations.map(({ outcome }) => outcome),
    ['made', 'made'],
  );
  for (const [integration, id] of [
    ['sheets', 'ada'],
    ['notes', 'bob'],
    ['notes', 'eve'],
  ] as const) {
    const [was, is] = [(await there.find(integration, id))!, (await here.find(integration, id))!];
    const facts = ({
      id: _id,
      integrationId: _i,
      environmentId: _e,
      dataKey: _k,
      updatedAt: _u,
      ...rest
    }: typeof was) => rest;
    assert.deepEqual(facts(is), { ...facts(was), credentialsVersion: 1 }, id);
    const [row] = await here.db.query<{ kept: Buffer | null }>(
      'select kept_tokens as kept from connection where id = $1',
      [is.id],
    );
    assert.deepEqual(openKept(is, row!.kept), id === 'ada' ? ['refresh-before-0001'] : []);
  }
  assert.equal(await here.find('notes', 'left'), undefined);

  const [one, other] = await Promise.all(
    [there, here].map(async ({ db, reading, vault, environment: { id: environmentId } }) => ({
      settings: await readSettings(db, environmentId),
      connect: await readConnectSettings(db, environmentId),
      variables: await listVariables(db, { environmentId, vault }),
      keys: (await signingKeys(db, { environmentId, vault, now: at })).map(({ secret }) => secret),
      policies: (await listPolicies(db, environmentId)).map(({ updatedAt: _at, ...rest }) => rest),
      endpoints: (await listEndpoints(db, { environmentId, kinds: ['events'], limit: 9 })).map(
        ({ url, types, description }) => ({ url, types, description }),
      ),
      integrations: (await listIntegrations(db, { environmentId, ...reading })).map(
        ({ id: _id, environmentId: _e, createdAt: _c, updatedAt: _u, ...rest }) => rest,
      ),
      apiKeys: await db.query('select name, hash, hint, scopes, rate_limit from api_key'),
    })),
  );
  assert.deepEqual(other, one);
  assert.equal(await here.count('event'), 0);
});

test('records, tombstones and consumers are imported; pruned records are reported', async () => {
  const report = await take(await exported());
  const { records } = report as { records: Record<string, unknown> };
  assert.deepEqual(records, {
    datasets: 1,
    records: 1_189,
    deleted: 13,
    pruned: 98,
    unfinished: 0,
    failed: [],
  });
  const [was, is] = await Promise.all([rowsOf(there), rowsOf(here)]);
  const sorted = (rows: typeof was) => rows.toSorted((a, b) => (a[0]! < b[0]! ? -1 : 1));
  assert.deepEqual(sorted(is), sorted(was));
  const live = (rows: typeof was) => rows.filter(([, action]) => action !== 'DELETED');
  assert.deepEqual(live(is), live(was));
  // A consumer that followed at the source continues here after the same record.
  const [followedThere, followedHere] = [await consumerOf(there, 'app'), await consumerOf(here, 'app')];
  assert.deepEqual(
    sorted(await rowsOf(here, followedHere!.cursor)),
    sorted(await rowsOf(there, followedThere!.cursor)),
  );
  assert.equal((await consumerOf(here, 'late'))!.cursor, undefined);
  const [dataset] = await here.db.query('select ignore_fields, mass_delete_share from dataset');
  assert.deepEqual(dataset, { ignore_fields: ['seen'], mass_delete_share: 0.9 });
});

test('without records the consumers start again, and the file holds no API key unless requested', async () => {
  const report = await take(await exported({ hasRecords: false, hasApiKeys: false }));
  assert.equal(report.records, null);
  assert.equal((await consumerOf(here, 'app'))!.cursor, undefined);
  assert.equal(await here.count('record'), 0);
  assert.equal(await here.count('api_key'), 0);
});

test('a second import of the same file changes nothing, and does not restore a deleted connection', async () => {
  const bytes = await exported();
  await take(bytes);
  const seen = () =>
    here.db.query(
      'select (select sum(last_seq) from dataset) as seq, (select count(*) from audit) as audits, (select count(*) from data_key) as keys',
    );
  const before = await seen();
  assert.deepEqual(outcomesOf(await take(bytes)), { made: 3 });
  assert.deepEqual(await seen(), before);
  const eve = (await here.find('notes', 'eve'))!;
  await here.db.transaction((tx) => destroyConnection(tx, { id: eve.id, at }));
  assert.deepEqual(outcomesOf(await take(bytes)), { made: 2, removed: 1 });
});

for (const entries of [1, 600, 1_200])
  test(`a run that ends after ${entries} entries continues, and nothing is lost or duplicated`, async () => {
    const bytes = await exported();
    await takeUntilKilled(bytes, entries / 100);
    const report = await take(bytes);
    assert.deepEqual(outcomesOf(report), { made: 3 });
    const sorted = (rows: unknown[][]) => rows.map(String).sort();
    assert.deepEqual(sorted(await rowsOf(here)), sorted(await rowsOf(there)));
    const behind = async (of: Installation) => rowsOf(of, (await consumerOf(of, 'app'))!.cursor);
    assert.deepEqual(sorted(await behind(here)), sorted(await behind(there)));
    const { records } = report as { records: Record<string, unknown> };
    assert.deepEqual([records.records, records.deleted, records.unfinished], [1_189, 13, 0]);
  });

test('existing objects are kept and reported, and a connection is only overwritten on request', async () => {
  const { db, vault, reading, environment } = here;
  const environmentId = environment.id;
  await db.transaction(async (tx) => {
    await writeSettings(tx, { environmentId, change: { switches: {}, overlapHours: 1 } });
    await changeVariables(tx, {
      environmentId,
      vault,
      set: [{ name: 'API_BASE', value: 'mine' }],
      remove: [],
      max: 9,
    });
    const notes = await createIntegration(tx, {
      ...reading,
      environmentId,
      key: 'notes',
      provider: 'private-api-key',
      integrationConfig: { base_url: 'https://notes.example.com' },
    });
    await insertConnection(tx, {
      vault,
      integration: notes,
      connectionId: 'eve',
      at,
      grant: {},
      credentials: { type: 'API_KEY', apiKey: 'key-of-eve-here' },
    });
    await createIntegration(tx, {
      ...reading,
      environmentId,
      key: 'sheets',
      provider: 'google-sheet',
      client: { clientId: 'other.apps', clientSecret: 'x' },
    });
  });
  await signingKeys(db, { environmentId, vault, now: at });
  const bytes = await exported();
  const report = await take(bytes);
  assert.deepEqual(outcomesOf(report), { existing: 1, made: 1, 'skipped client_differs': 1 });
  assert.match(
    report.next_steps.join('\n'),
    /settings of prod were not changed[\s\S]*signed with the existing key[\s\S]*API_BASE/,
  );
  assert.deepEqual(await here.credentialsOf('notes', 'eve'), { type: 'API_KEY', apiKey: 'key-of-eve-here' });
  assert.equal((await listVariables(db, { environmentId, vault }))[0]!.value, 'mine');
  await take(bytes, { overwrites: true });
  assert.deepEqual(await here.credentialsOf('notes', 'eve'), { type: 'API_KEY', apiKey: 'key-of-eve-0001' });
});

test('newer local credentials keep the state of their grant', async () => {
  const bytes = await exported();
  await take(bytes);
  const kept = ['refresh-of-ada-0001'];
  const before = await renewHere(here, { at: ['sheets', 'ada'], kept });
  await here.db.query('delete from import');
  const tags = { team: 'red' };
  await here.db.query('update connection set tags = $2 where id = $1', [before.id, tags]);
  const report = await take(bytes, { overwrites: true });
  assert.deepEqual(outcomesOf(report), { overwritten: 2, 'overwritten credentials_kept': 1 });
  const after = (await here.find('sheets', 'ada'))!;
  assert.deepEqual({ ...after, updatedAt: before.updatedAt }, before);
  const [row] = await here.db.query<{ kept: Buffer }>(
    'select kept_tokens as kept from connection where id = $1',
    [before.id],
  );
  assert.deepEqual(openKept(after, row!.kept), kept);
});

test('a dataset that changed locally after an interrupted run is not overwritten', async () => {
  const bytes = await exported();
  await takeUntilKilled(bytes, 12);
  const { db, vault, environment } = here;
  const target = await openTarget(db, { environmentId: environment.id, dataset: place, vault });
  const records = [{ id: 'r200', fields: { name: 'changed here' }, isDeleted: false }];
  await saveImported(db, { target, records, metadataKey: brand.metadataKey });
  const before = await rowsOf(here);
  const { records: told2 } = await take(bytes);
  const detail = 'The dataset already has records that this import did not save.';
  assert.deepEqual((told2 as { failed: object[] }).failed, [
    { ...place, reason: 'dataset_has_records', detail },
  ]);
  assert.deepEqual(await rowsOf(here), before);
});

test('a connection that is created again gets its records, settings and consumers again', async () => {
  const bytes = await exported();
  await take(bytes);
  const { id } = (await here.find('notes', 'bob'))!;
  await here.db.transaction((tx) => destroyConnection(tx, { id, at }));
  assert.deepEqual(outcomesOf(await take(bytes, { overwrites: true })), { made: 2, overwritten: 1 });
  const live = async (of: Installation) => (await rowsOf(of)).filter(([, action]) => action !== 'DELETED');
  assert.deepEqual(await live(here), await live(there));
  assert.ok(await consumerOf(here, 'late'));
  const [dataset] = await here.db.query('select ignore_fields from dataset order by id desc');
  assert.deepEqual(dataset, { ignore_fields: ['seen'] });
});

test('a run that was interrupted before a restore continues after it', async () => {
  const bytes = await exported();
  await takeUntilKilled(bytes, 12);
  await raisePositions(here.db);
  const { records } = await take(bytes);
  assert.deepEqual(records!.failed, []);
});

test('the file has each connection in its state at the time of its export', async () => {
  await take(await exported({ hasRecords: false }));
  const written: Record<string, unknown>[] = [];
  for await (const line of linesFrom(here, { hasRecords: false, hasApiKeys: false, now: at })) {
    const entry = JSON.parse(line.toString()) as Record<string, unknown>;
    if (entry.kind !== 'connection') continue;
    written.push(entry);
    if (written.length > 1) continue;
    const [bob, eve] = await Promise.all(['bob', 'eve'].map(async (id) => (await here.find('notes', id))!));
    const renewed = bob!.dataKey.sealJson({ type: 'API_KEY', apiKey: 'key-of-bob-0002' }, 'credentials');
    await here.db.query('update connection set credentials = $2 where id = $1', [bob!.id, renewed]);
    await here.db.transaction((tx) => destroyConnection(tx, { id: eve!.id, at }));
  }
  assert.deepEqual(
    written.map(({ connection_id: id }) => id),
    ['ada', 'bob'],
  );
  assert.deepEqual(written[1]!.credentials, { type: 'API_KEY', apiKey: 'key-of-bob-0002' });
});

test('a dry run reports what it would import, and changes nothing', async () => {
  const bytes = await exported();
  const { db, reading } = here;
  const dry = (environmentName?: string): Promise<Reported[]> =>
    withFile(bytes, (file) =>
      tryFile({ db, reading, environmentName, overwrites: false, now: () => at }, file),
    );
  const [{ report }] = (await dry()) as [Reported];
  assert.deepEqual(outcomesOf(report), { to_import: 3 });
  assert.deepEqual(
    report.integrations.map(({ outcome }) => outcome),
    ['to_make', 'to_make'],
  );
  for (const table of ['integration', 'connection', 'import', 'audit', 'signing_key'])
    assert.equal(await here.count(table), 0);
  const [staging] = (await dry('staging')) as [Reported];
  assert.match(staging.report.next_steps.join(), /staging would be created/);
  await take(bytes);
  const [again] = (await dry()) as [Reported];
  assert.deepEqual(outcomesOf(again.report), { made: 3 });
});

test('a key that exists in another environment, or is revoked, is reported', async () => {
  const bytes = await exported();
  const told = ({ next_steps: steps }: Report) => steps.filter((step) => step.startsWith('The API key'));
  assert.deepEqual(told(await take(bytes)), []);
  const [elsewhere] = told(await take(bytes, { environmentName: 'staging' }));
  assert.match(elsewhere!, /"app" already exists in the environment prod, so it was not added to staging/);
  await here.db.query('update api_key set revoked_at = now()');
  assert.match(told(await take(bytes))[0]!, /"app" is revoked in the environment prod/);
});

test('an environment can be imported under another name, and is created if it does not exist', async () => {
  await take(await exported(), { environmentName: 'staging' });
  assert.deepEqual(await here.db.query('select name from environment order by id'), [
    { name: 'prod' },
    { name: 'staging' },
  ]);
  assert.deepEqual(
    await here.db.query(
      'select distinct environment.name from connection join environment on environment.id = environment_id',
    ),
    [{ name: 'staging' }],
  );
});

test('a truncated or changed file is refused before anything is imported', async () => {
  const bytes = await exported();
  await assert.rejects(take(bytes.subarray(0, bytes.length - 70_000)), /damaged|missing/);
  const changed = Buffer.from(bytes);
  changed[bytes.length - 10]! ^= 1;
  await assert.rejects(take(changed), /damaged/);
  assert.equal(await here.count('connection'), 0);
  assert.equal(await here.count('import'), 0);
});

test('the file contains no secret in plain text', async () => {
  const bytes = await exported();
  for (const secret of [
    'refresh-of-ada',
    'access-of-ada',
    'client-secret-there',
    'own-client-secret',
    'key-of-bob',
    'secret-of-a-variable',
    'ada@example.com',
  ])
    assert.equal(bytes.indexOf(secret), -1, secret);
});
