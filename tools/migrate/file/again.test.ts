import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { faultFrom } from '../../../server/connections/health/health.ts';
import {
  insertConnection,
  type NewConnection,
  replaceCredentials,
} from '../../../server/connections/store/save.ts';
import type { Connection } from '../../../server/connections/store/store.ts';
import { tagsOf } from '../../../server/connections/store/tags.ts';
import {
  createIntegration,
  type Integration,
  type IntegrationChange,
} from '../../../server/integrations/store.ts';
import { importConnection } from '../connections.ts';
import { closeImport, openImport } from '../ledger.ts';
import { type Installation, openInstallation, outcomesOf, renewHere } from '../migrate.fixture.ts';
import { isWhole, type Report } from '../report.ts';
import { bytesFrom, takeFile } from './file.fixture.ts';

const grantedAt = new Date('2026-01-01T00:00:00.000Z');
const now = new Date('2026-02-01T00:00:00.000Z');
const later = new Date('2026-03-01T00:00:00.000Z');

let there: Installation;
let here: Installation;
let sheets: Integration;
let files: number;
beforeEach(async () => {
  [there, here] = await Promise.all([openInstallation('there'), openInstallation('here')]);
  sheets = await integrate(there, { key: 'sheets', provider: 'google-sheet', client: ownClient });
  files = 0;
});
afterEach(() => Promise.all([there.drop(), here.drop()]));

const ownClient = { clientId: 'c.apps', clientSecret: 'client-secret' };

function integrate(
  { db, reading, environment }: Installation,
  given: IntegrationChange & { key: string; provider: string },
): Promise<Integration> {
  return db.transaction((tx) =>
    createIntegration(tx, { ...reading, environmentId: environment.id, ...given }),
  );
}

const credentials = (token: string) => ({
  type: 'OAUTH2' as const,
  access_token: `access-of-${token}`,
  refresh_token: token,
  raw: {},
  expires_at: '2026-02-01T01:00:00.000Z',
});

function connect(
  { db, vault }: Installation,
  { id, ...more }: { id: string; integration?: Integration } & Partial<NewConnection>,
): Promise<Connection> {
  return db.transaction((tx) =>
    insertConnection(tx, {
      vault,
      integration: sheets,
      connectionId: id,
      at: grantedAt,
      grant: {},
      credentials: credentials(`refresh-of-${id}`),
      ...more,
    }),
  );
}

/** Each time another file, as of what is there now. */
function exported(): Promise<Buffer> {
  files += 1;
  return bytesFrom(there, { number: files, now, hasRecords: false, hasApiKeys: false });
}

async function take(bytes: Buffer, overwrites = false): Promise<Report> {
  const [taken] = await takeFile(here, bytes, { now: () => now, overwrites });
  return taken!.report;
}

const tokenOf = async (id: string) =>
  ((await here.credentialsOf('sheets', id)) as { refresh_token: string }).refresh_token;

/** As a renewal there leaves it, a day after the one before. */
async function renewThere(id: string, token: string): Promise<void> {
  const { dataKey, id: row } = (await there.find('sheets', id))!;
  const sealed = dataKey.sealJson(credentials(token), 'credentials');
  await there.db.query(
    `update connection set credentials = $2, refreshed_at = refreshed_at + '1 day' where id = $1`,
    [row, sealed],
  );
}

/** The user connects again. */
async function grantAgain({ db, vault, find }: Installation, id: string, token: string): Promise<void> {
  const current = (await find('sheets', id))!;
  const given = { credentials: credentials(token), grant: {}, at: later };
  await db.transaction((tx) => replaceCredentials(tx, { vault, current, ...given }));
}

test('a later file does not replace tokens and grants that are newer locally', async () => {
  await connect(there, { id: 'ada' });
  const dead = await connect(there, { id: 'dead' });
  const fault = JSON.stringify(faultFrom('grant_dead', { evidence: {}, at: now }));
  await there.db.query(`update connection set status = 'needs_reauth', fault = $2 where id = $1`, [
    dead.id,
    fault,
  ]);
  assert.deepEqual(outcomesOf(await take(await exported())), { made: 2 });
  assert.equal((await here.find('sheets', 'dead'))?.status, 'needs_reauth');
  // More than once, so that nothing here knows the file's token any more.
  const renewed = await renewHere(here, { at: ['sheets', 'ada'], kept: ['refresh-here-0000'] });
  await grantAgain(here, 'dead', 'granted-here');

  for (let times = 0; times < 2; times += 1) {
    const report = await take(await exported(), true);
    assert.deepEqual(outcomesOf(report), { 'overwritten credentials_kept': 2 });
  }
  assert.deepEqual((await here.find('sheets', 'ada'))?.credentials, renewed.credentials);
  const { status, fault: none } = (await here.find('sheets', 'dead'))!;
  assert.deepEqual([status, none, await tokenOf('dead')], ['active', undefined, 'granted-here']);
});

test('locally renewed tokens stay after the integration was renamed on both sides', async () => {
  await connect(there, { id: 'ada' });
  await take(await exported());
  const { credentials: renewed } = await renewHere(here, { at: ['sheets', 'ada'], kept: [] });
  for (const { db } of [there, here]) await db.query(`update integration set key = 'tables'`);
  assert.deepEqual(outcomesOf(await take(await exported(), true)), { 'overwritten credentials_kept': 1 });
  assert.deepEqual(await here.credentialsOf('tables', 'ada'), renewed);
});

test('unchanged local connections follow the source, and an older file restores no old token', async () => {
  await connect(there, { id: 'ada' });
  await there.db.query('update connection set refreshed_at = granted_at');
  const all = [await exported()];
  for (const token of ['second', 'third']) {
    await renewThere('ada', token);
    all.push(await exported());
  }
  const [first, second, third] = all as [Buffer, Buffer, Buffer];
  await take(second);
  assert.deepEqual(outcomesOf(await take(third, true)), { overwritten: 1 });
  for (const older of [first, second])
    assert.deepEqual(outcomesOf(await take(older, true)), { 'overwritten credentials_kept': 1 });
  assert.equal(await tokenOf('ada'), 'third');
  assert.deepEqual(outcomesOf(await take(third, true)), { overwritten: 1 });
});

test('a later grant wins over an earlier one, and tokens of two grants are never mixed', async () => {
  await connect(there, { id: 'ada' });
  const first = await exported();
  await take(first);
  await grantAgain(there, 'ada', 'granted-there');
  assert.deepEqual(outcomesOf(await take(await exported(), true)), { overwritten: 1 });
  assert.deepEqual(await here.db.query('select kept_tokens as kept from connection'), [{ kept: null }]);
  assert.deepEqual(outcomesOf(await take(first, true)), { 'overwritten credentials_kept': 1 });
  assert.equal(await tokenOf('ada'), 'granted-there');
});

test('a local grant that was never imported wins only over an earlier grant', async () => {
  const integration = await integrate(here, { key: 'sheets', provider: 'google-sheet', client: ownClient });
  for (const id of ['early', 'late']) await connect(there, { id });
  await connect(here, { id: 'late', integration, at: later, credentials: credentials('late-here') });
  const before = new Date(grantedAt.getTime() - 1);
  await connect(here, { id: 'early', integration, at: before, credentials: credentials('early-here') });
  assert.deepEqual(outcomesOf(await take(await exported(), true)), {
    overwritten: 1,
    'overwritten credentials_kept': 1,
  });
  assert.deepEqual([await tokenOf('late'), await tokenOf('early')], ['late-here', 'refresh-of-early']);
});

test('an import without a grant time does not count as a grant', async () => {
  await connect(there, { id: 'ada' });
  const integration = await integrate(here, { key: 'sheets', provider: 'google-sheet', client: ownClient });
  const { db, reading, environment } = here;
  const source = 'https://peer.example.com';
  const from = await openImport(db, { environmentId: environment.id, source, overwrites: false });
  const imported = {
    integration,
    connectionId: 'ada',
    metadata: {},
    connectionConfig: {},
    tags: {},
    grant: {},
    credentials: credentials('of-the-peer'),
    createdAt: undefined,
    endUser: undefined,
    webhookUrlOverride: undefined,
  };
  const settings = { reading, from, sourceName: 'nango', overwrites: false, at: later };
  await importConnection(db, imported, settings);
  await closeImport(db, from);
  assert.deepEqual(outcomesOf(await take(await exported(), true)), { overwritten: 1 });
  assert.equal(await tokenOf('ada'), 'refresh-of-ada');
});

test('broken credentials do not replace working ones', async () => {
  const { id } = await connect(there, { id: 'ada' });
  await take(await exported());
  const fault = JSON.stringify(faultFrom('grant_dead', { evidence: {}, at: now }));
  await there.db.query(`update connection set status = 'needs_reauth', fault = $2 where id = $1`, [
    id,
    fault,
  ]);
  assert.deepEqual(outcomesOf(await take(await exported(), true)), { 'overwritten credentials_kept': 1 });
  assert.equal((await here.find('sheets', 'ada'))?.status, 'active');
});

test('credentials are not imported into an integration with other addresses, and other differences are reported', async () => {
  const provider = 'private-api-key';
  const lead = (base_url: string) => ({ provider, integrationConfig: { base_url } });
  const config = lead('https://notes.example.com');
  const notes = await integrate(there, { key: 'notes', ...config });
  const rules = [{ effect: 'deny' as const, path: '/admin' }];
  const files = await integrate(there, { key: 'files', ...config, proxyRules: rules });
  await integrate(here, { key: 'notes', ...lead('https://elsewhere.example.net') });
  await integrate(here, { key: 'files', ...config, forwardWebhooks: false, custom: { a: 'b' } });
  await integrate(here, {
    key: 'sheets',
    provider: 'google-sheet',
    scopes: ['openid'],
    client: { ...ownClient, clientSecret: 'another-secret' },
    webhookSecret: 'a-webhook-secret',
  });
  for (const [id, integration] of [['bob', notes] as const, ['eve', files] as const])
    await connect(there, { id, integration, credentials: { type: 'API_KEY', apiKey: `key-of-${id}` } });
  const report = await take(await exported());
  assert.deepEqual(outcomesOf(report), { made: 1, 'skipped settings_differ': 1 });
  assert.ok(!isWhole(report));
  assert.equal(await here.find('notes', 'bob'), undefined);
  const steps = Object.fromEntries(report.integrations.map((one) => [one.unique_key, one.next_step]));
  assert.match(steps.notes!, /different integration_config/);
  assert.match(steps.files!, /differs from the file in: custom, forward_webhooks, proxy rules\.$/);
  assert.match(steps.sheets!, /differs from the file in: client secret, webhook secret, scopes\.$/);
  assert.doesNotMatch(JSON.stringify(report), /another-secret|a-webhook-secret|\/admin/);
});

test('a connection keeps all its tags (ten of its own and those of its end user) and the time of its last refresh', async () => {
  const endUser = {
    id: 'u',
    email: 'u@example.com',
    display_name: 'U',
    organization: { id: 'o', display_name: 'O' },
  };
  const ten = Object.fromEntries(Array.from({ length: 10 }, (_, n) => [`t${n}`, 'x']));
  const tags = tagsOf({ endUser, tags: ten });
  await connect(there, { id: 'ada', endUser, tags });
  await connect(there, { id: 'ahead' });
  await there.db.query(
    `update connection set refreshed_at = case connection_id when 'ada' then $1 else $2 end::timestamptz`,
    [grantedAt, later],
  );
  assert.deepEqual(outcomesOf(await take(await exported())), { made: 2 });
  const ada = (await here.find('sheets', 'ada'))!;
  assert.equal(Object.keys(ada.tags).length, 15);
  assert.deepEqual(ada.tags, tags);
  assert.deepEqual(ada.refreshedAt, grantedAt);
  // Nothing was renewed in the future.
  assert.deepEqual((await here.find('sheets', 'ahead'))!.refreshedAt, now);
});
