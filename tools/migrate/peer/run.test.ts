// Slow: it moves whole installations.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import type { OAuth2Credentials } from '../../../server/auth-modes/oauth2-credentials.ts';
import { destroyConnection } from '../../../server/connections/store/save.ts';
import type { Connection } from '../../../server/connections/store/store.ts';
import type { PeerStandIn } from '../../../test/support/peer.ts';
import { peerConnection } from '../../../test/support/peer-bodies.ts';
import { closeImport, openImport, saveDatasetProgress, saveOutcomes } from '../ledger.ts';
import { type Installation, type Move, openMove, outcomesOf } from '../migrate.fixture.ts';
import type { Report } from '../report.ts';
import { PeerLostError } from './client.ts';
import { type PeerRun, runPeer, tryPeerRun } from './run.ts';

let move: Move;
let peer: PeerStandIn;
let here: Installation;
beforeEach(async () => {
  move = await openMove('google-sheet');
  ({ peer, here } = move);
});
afterEach(() => move.close());

const run = async (more: Partial<PeerRun> = {}): Promise<Report> => (await runPeer(move.open(more))).report;
/** What a run ends with that another one has taken the place of. */
const replaced = { code: 'unavailable', message: /Another import into this environment has started/ };
const dry = async (more: Partial<PeerRun> = {}): Promise<Report> =>
  (await tryPeerRun(move.open(more))).report;

test('a connection is imported completely, under its ID, sealed with its own data key', async () => {
  const ada = peerConnection({
    id: 'ada/sheets|1',
    integration: 'google-sheet',
    metadata: { spreadsheet: 's1', deep: { a: [1, null] } },
    tags: { team: 'blue', end_user_id: 'ada' },
    endUser: {
      id: 'ada',
      display_name: 'Ada',
      email: 'ada@example.com',
      tags: { plan: 'pro' },
      organization: { id: 'acme', display_name: 'Acme' },
    },
    config: { tenant: 't1' },
    webhookUrlOverride: 'https://app.example.com/hook',
    createdAt: new Date('2025-03-04T05:06:07.089Z'),
  });
  peer.connections.push(ada);
  const report = await run();
  assert.deepEqual(outcomesOf(report), { made: 1 });
  const made = (await here.find('google-sheet', 'ada/sheets|1'))!;
  const { raw, ...credentials } = made.credentials as { raw: object };
  assert.deepEqual(credentials, ada.credentials);
  assert.deepEqual(raw, { ...ada.credentials, scope: 'a b' });
  assert.deepEqual(made.metadata, ada.metadata);
  assert.deepEqual(made.connectionConfig, { tenant: 't1' });
  assert.deepEqual(made.endUser, ada.endUser);
  assert.equal(made.tags.team, 'blue');
  assert.equal(made.webhookUrlOverride, 'https://app.example.com/hook');
  assert.deepEqual(made.createdAt, ada.createdAt);
  assert.deepEqual(made.refreshedAt, ada.updatedAt);
  assert.deepEqual(made.accessExpiresAt, new Date(String(ada.credentials.expires_at)));
  assert.equal(made.status, 'active');
  // One for the environment, one for the connection.
  assert.equal(await here.count('data_key'), 2);
  assert.equal(await here.count('event'), 0);
  const audits = await here.db.query('select actor, action, target, details from audit order by id');
  assert.deepEqual(audits.at(-1), {
    actor: 'command line',
    action: 'connection.imported',
    target: 'google-sheet/ada/sheets|1',
    details: { from: 'nango' },
  });
  const [integration] = await here.db.query('select key, provider, client_id, scopes from integration');
  assert.deepEqual(integration, {
    key: 'google-sheet',
    provider: 'google-sheet',
    client_id: 'c.apps',
    scopes: ['openid', 'email'],
  });
  assert.match(report.next_steps.join(), /https:\/\/trellis\.example\.com\/oauth\/callback/);
});

test('no refresh is requested, and tokens that the peer refreshed during the read are stored', async () => {
  const soon = new Date(Date.now() + 60_000).toISOString();
  const ada = peerConnection({ id: 'ada', integration: 'google-sheet' });
  ada.credentials.expires_at = soon;
  peer.connections.push(ada);
  await run();
  assert.equal(peer.renewals, 1);
  const stored = (await here.credentialsOf('google-sheet', 'ada')) as { refresh_token: string };
  assert.equal(stored.refresh_token, ada.credentials.refresh_token);
  assert.ok(peer.requests.every(({ query }) => query.get('force_refresh') !== 'true'));
});

test('credentials of other modes, OAuth clients of connections and times in all formats are imported', async () => {
  peer.integrations.push(
    { key: 'keys', provider: 'private-api-key', authMode: 'API_KEY', credentials: null },
    { key: 'machine', provider: 'private-client-credentials', authMode: 'OAUTH2_CC', credentials: null },
    { key: 'nobody', provider: 'unauthenticated', authMode: 'NONE', credentials: null },
  );
  // Their settings are not told by the peer, so they were made by hand.
  for (const [key, provider] of [
    ['keys', 'private-api-key'],
    ['machine', 'private-client-credentials'],
    ['nobody', 'unauthenticated'],
  ])
    await here.db.query(
      `insert into integration (environment_id, key, provider, display_name, integration_config)
       values ($1, $2, $3, 'M', '{"token_url": "https://t.example.com", "base_url": "https://b.example.com"}')`,
      [here.environment.id, key, provider],
    );
  const of = (integration: string, credentials: Record<string, unknown>) =>
    peer.connections.push(peerConnection({ id: `of-${integration}`, integration, credentials }));
  of('keys', { type: 'API_KEY', apiKey: 'key-of-keys-0001' });
  of('machine', {
    type: 'OAUTH2_CC',
    token: 'token-of-machine',
    client_id: 'i',
    client_secret: 's',
    expires_at: '2030-01-01 10:00:00.123456+02',
  });
  of('nobody', { type: 'NONE' });
  const odd = { type: 'OAUTH2', access_token: 'token-of-odd', expires_at: 'tomorrow', config_override: {} };
  of('google-sheet', odd);
  const clients = [
    ['own', { client_id: 'own.apps', client_secret: 'own-client-secret' }],
    ['same', { client_id: 'c.apps', client_secret: 'client-secret-there' }],
    ['none', { client_id: '', client_secret: '' }],
  ] as const;
  for (const [id, config_override] of clients) {
    const one = peerConnection({ id, integration: 'google-sheet' });
    Object.assign(one.credentials, { config_override });
    peer.connections.push(one);
  }
  const report = await run();
  assert.deepEqual(outcomesOf(report), { made: 6, 'made no_refresh_token': 1 }, JSON.stringify(report));
  for (const [id, client] of clients) {
    const { config_override: own } = (await here.credentialsOf('google-sheet', id)) as OAuth2Credentials;
    assert.deepEqual(own, id === 'own' ? client : undefined, id);
  }
  assert.deepEqual(await here.credentialsOf('keys', 'of-keys'), {
    type: 'API_KEY',
    apiKey: 'key-of-keys-0001',
  });
  const { raw: _raw, ...machine } = (await here.credentialsOf('machine', 'of-machine')) as { raw: object };
  assert.deepEqual(machine, {
    type: 'OAUTH2_CC',
    token: 'token-of-machine',
    client_id: 'i',
    client_secret: 's',
    expires_at: '2030-01-01T08:00:00.123Z',
  });
  assert.deepEqual(await here.credentialsOf('nobody', 'of-nobody'), { type: 'NONE' });
  // An end that nobody can read has come.
  const { expires_at: end } = (await here.credentialsOf('google-sheet', 'of-google-sheet')) as {
    expires_at: string;
  };
  assert.ok(Date.parse(end) <= Date.now());
});

test('connections that cannot be imported are skipped with the reason, and all others are imported', async () => {
  peer.integrations.push(
    { key: 'exotic', provider: 'exotic-crm', authMode: 'TWO_STEP', credentials: null },
    { key: 'stripe-app', provider: 'stripe', authMode: 'API_KEY', credentials: null },
    {
      key: 'lent',
      provider: 'github',
      authMode: 'OAUTH2',
      credentials: null,
      more: { preconfigured_credentials: true },
    },
    { key: 'tenant', provider: 'private-api-key', authMode: 'API_KEY', credentials: null },
    { key: 'unsaid', provider: 'slack', authMode: 'OAUTH2' },
  );
  for (const { key } of peer.integrations)
    peer.connections.push(peerConnection({ id: `of-${key}`, integration: key }));
  peer.connections.push(
    peerConnection({ id: 'half-a-client', integration: 'google-sheet' }),
    peerConnection({ id: 'bad-tag', integration: 'google-sheet', tags: { end_user_email: 'nobody' } }),
  );
  Object.assign(peer.connections.at(-2)!.credentials, { config_override: { client_id: 'other' } });
  const planned = await dry();
  const report = await run();
  assert.deepEqual(outcomesOf(report), {
    'failed invalid': 1,
    'failed invalid_body': 1,
    made: 2,
    'skipped auth_mode_differs': 1,
    'skipped client_is_the_peers': 1,
    'skipped settings_missing': 1,
    'skipped unknown_provider': 1,
  });
  const told = Object.fromEntries(report.integrations.map((one) => [one.unique_key, one]));
  assert.equal(told.unsaid?.outcome, 'made');
  assert.equal(told.unsaid?.reason, 'client_missing');
  assert.match(told.exotic?.next_step ?? '', /--provider exotic-crm=NAME/);
  assert.match(told.tenant?.next_step ?? '', /base_url/);
  assert.ok(
    report.integrations.every(({ outcome, next_step }) => outcome !== 'skipped' || next_step !== null),
  );
  assert.equal(outcomesOf(planned).to_import, 4);
  assert.deepEqual(
    planned.integrations.map(({ unique_key, reason }) => [unique_key, reason]),
    report.integrations.map(({ unique_key, reason }) => [unique_key, reason]),
  );
});

test('a dry run reads no credentials and writes nothing', async () => {
  for (let n = 0; n < 3; n += 1)
    peer.connections.push(peerConnection({ id: `c${n}`, integration: 'google-sheet' }));
  const report = await dry();
  assert.deepEqual(outcomesOf(report), { to_import: 3 });
  assert.ok(peer.connections.every(({ reads }) => reads === 0));
  for (const table of ['integration', 'connection', 'import', 'audit'])
    assert.equal(await here.count(table), 0);
});

test('a second run requests no connection again, and a connection deleted since stays deleted', async () => {
  for (const id of ['ada', 'bob']) peer.connections.push(peerConnection({ id, integration: 'google-sheet' }));
  await run();
  const bob = (await here.find('google-sheet', 'bob'))!;
  await here.db.transaction((tx) => destroyConnection(tx, { id: bob.id, at: new Date() }));
  const asked = peer.connections.map(({ reads }) => reads);
  assert.deepEqual(outcomesOf(await run()), { made: 1, removed: 1 });
  assert.deepEqual(
    peer.connections.map(({ reads }) => reads),
    asked,
  );
  assert.equal(await here.find('google-sheet', 'bob'), undefined);
  assert.deepEqual(outcomesOf(await run({ overwrites: true })), { made: 1, overwritten: 1 });
});

test('a deleted connection that a later run cannot read stays deleted, and keeps its records until then', async () => {
  for (const id of ['ada', 'bob']) peer.connections.push(peerConnection({ id, integration: 'google-sheet' }));
  peer.connections[0]!.records.set('Row', [{ id: 'r', fields: {}, order: 1 }]);
  const records = { models: undefined, positions: new Map(), consumer: 'app' };
  await run();
  peer.trouble = (_, path) => (path === '/connections/ada' ? 'fail' : undefined);
  const failed = await run({ overwrites: true, records });
  assert.deepEqual(outcomesOf(failed), { 'failed server_error': 1, overwritten: 1 });
  assert.equal(failed.records!.records, 1);
  peer.trouble = () => undefined;
  const ada = (await here.find('google-sheet', 'ada'))!;
  await here.db.transaction((tx) => destroyConnection(tx, { id: ada.id, at: new Date() }));
  assert.deepEqual(outcomesOf(await run()), { overwritten: 1, removed: 1 });
  assert.equal(await here.find('google-sheet', 'ada'), undefined);
});

test('a broken connection keeps its ID and needs reauthorization; one that was broken briefly is imported', async () => {
  peer.connections.push(
    peerConnection({ id: 'dead', integration: 'google-sheet', deadReads: Infinity, metadata: { a: 1 } }),
    peerConnection({ id: 'moment', integration: 'google-sheet', deadReads: 1 }),
    peerConnection({ id: 'well', integration: 'google-sheet' }),
  );
  assert.deepEqual(outcomesOf(await run()), { 'dead no_credentials': 1, made: 2 });
  const dead = (await here.find('google-sheet', 'dead'))!;
  assert.equal(dead.status, 'needs_reauth');
  assert.equal(dead.fault?.cause, 'no_refresh_token');
  assert.deepEqual(dead.metadata, { a: 1 });
  const [audits] = await here.db.query<{ count: number }>('select count(*) as count from audit');
  assert.deepEqual(outcomesOf(await run()), { 'dead no_credentials': 1, made: 2 });
  assert.deepEqual(await here.db.query('select count(*) as count from audit'), [audits]);

  // Its user has connected again there.
  peer.connections[0]!.deadReads = 0;
  assert.deepEqual(outcomesOf(await run()), { made: 3 });
  assert.equal((await here.find('google-sheet', 'dead'))!.status, 'active');
});

test('connections created or deleted while the list is read are neither lost nor duplicated', async () => {
  for (let n = 0; n < 240; n += 1)
    peer.connections.push(
      peerConnection({
        id: `c${String(n).padStart(3, '0')}`,
        integration: 'google-sheet',
        createdAt: new Date(Date.UTC(2026, 0, 1, 0, 0, n)),
      }),
    );
  let shifts = 0;
  peer.beforeList = (page) => {
    if (page === 0 || shifts > 1) return;
    shifts += 1;
    // What stands behind them moves up by five.
    peer.connections.splice(235 - shifts * 20, 5);
  };
  const gone = peer.connections.find(({ id }) => id === 'c003')!;
  const { trouble } = peer;
  peer.trouble = (number, path) => {
    // Deleted between the list and the look at it.
    if (path === '/connections/c003') peer.connections = peer.connections.filter((one) => one !== gone);
    return trouble(number, path);
  };
  const report = await run({ pageSize: 50 });
  const rows = await here.db.query<{ id: string }>('select connection_id as id from connection order by id');
  const ids = rows.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length);
  const lost = peer.connections.filter(({ id }) => !ids.includes(id));
  assert.deepEqual(lost, []);
  assert.equal(outcomesOf(report).gone, 1);
});

test('rate limits are awaited, and broken responses are requested again', async () => {
  for (let n = 0; n < 3; n += 1)
    peer.connections.push(peerConnection({ id: `c${n}`, integration: 'google-sheet' }));
  const asked = new Map<string, number>();
  peer.trouble = (_, path) => {
    const nth = asked.get(path) ?? 0;
    asked.set(path, nth + 1);
    return (['limit', 'drop', 'cut', 'limit', 'fail'] as const)[nth];
  };
  assert.deepEqual(outcomesOf(await run()), { made: 3 });
  assert.equal(await here.count('connection'), 3);
});

test('a lost peer ends the run, and the next run continues it', async () => {
  for (let n = 0; n < 60; n += 1)
    peer.connections.push(peerConnection({ id: `c${n}`, integration: 'google-sheet' }));
  peer.trouble = (number) => (number > 30 ? 'drop' : undefined);
  const broken = await run();
  assert.match(broken.broken_off ?? '', /does not respond/);
  const made = await here.count('connection');
  assert.ok(made > 0 && made < 60, String(made));
  peer.trouble = () => undefined;
  assert.deepEqual(outcomesOf(await run()), { made: 60 });
  assert.ok(peer.connections.every(({ reads }) => reads <= 2));
});

test('a request without an answer fails only its own connection', async () => {
  for (let n = 0; n < 10; n += 1)
    peer.connections.push(peerConnection({ id: `c${n}`, integration: 'google-sheet' }));
  peer.trouble = (_, path) => (path === '/connections/c4' ? 'fail' : undefined);
  assert.deepEqual(outcomesOf(await run({ parallel: 2 })), { 'failed server_error': 1, made: 9 });
  peer.trouble = () => undefined;
  assert.deepEqual(outcomesOf(await run()), { made: 10 });
});

test('a wrong key, a page in place of the interface and a missing scope are reported at once', async () => {
  await assert.rejects(
    runPeer(move.open({}, { url: peer.url, key: 'wrong' })),
    (error) => error instanceof PeerLostError && /rejects the key/.test(error.message),
  );
  const page = move.open({}, { url: `${peer.url}/dashboard`, key: peer.key });
  await assert.rejects(runPeer(page), /address of the source's API/);
  peer.lacks = 'integrations';
  await assert.rejects(run(), /403 forbidden/);
  assert.equal(await here.count('import'), 0);
});

for (const source of ['the same', 'another'])
  test(`a stalled run ends with what it has read after a run of ${source} source has begun`, async () => {
    const ada = peerConnection({ id: 'ada', integration: 'google-sheet' });
    peer.connections.push(ada);
    await run();
    const base = move.open().peer;
    let after: Connection | undefined;
    const slow = {
      ...base,
      async get(...asked: Parameters<typeof base.get>) {
        const answer = await base.get(...asked);
        if (asked[0] !== '/connections/ada') return answer;
        // Renewed there since, so that what was just read is used up.
        ada.credentials = { ...ada.credentials, refresh_token: 'refresh-of-ada-renewed' };
        if (source === 'the same') await run({ overwrites: true });
        else
          await openImport(here.db, {
            environmentId: here.environment.id,
            source: 'file 1',
            overwrites: true,
          });
        after = await here.find('google-sheet', 'ada');
        return answer;
      },
    };
    await assert.rejects(run({ peer: slow, overwrites: true }), replaced);
    assert.deepEqual(await here.find('google-sheet', 'ada'), after);
  });

test('a stalled run writes nothing after another has begun', async () => {
  const { environment, db } = here;
  const at = { environmentId: environment.id, source: peer.url, overwrites: false };
  const before = await openImport(db, at);
  const place = { integration: 'google-sheet', connection: 'ada' };
  await saveOutcomes(db, before, [{ ...place, outcome: 'failed' }]);
  const now = await openImport(db, at);
  await assert.rejects(saveOutcomes(db, before, [{ ...place, outcome: 'gone' }]), replaced);
  const dataset = { ...place, model: 'Row', variant: 'base' };
  const progress = { position: 'p', records: 1, deleted: 0, pruned: 0, isDone: true, lastSeq: 1 };
  await assert.rejects(saveDatasetProgress(db, before, { dataset, storedId: 1, progress }), replaced);
  await assert.rejects(closeImport(db, before), replaced);
  assert.equal(await here.count('imported_dataset'), 0);
  assert.equal(await here.count(`imported_connection where outcome = 'failed'`), 1);
  assert.equal(await here.count('import where ended_at is null'), 1);
  await closeImport(db, now);
});

test('twenty concurrent runs create each connection once', async () => {
  for (let n = 0; n < 20; n += 1)
    peer.connections.push(peerConnection({ id: `c${n}`, integration: 'google-sheet' }));
  await run({ filter: new Set(['google-sheet']) });
  await here.db.query('delete from connection');
  await here.db.query('delete from import');
  const runs = await Promise.allSettled(Array.from({ length: 20 }, () => run({ parallel: 2 })));
  const ended = runs.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
  assert.ok(ended.length < 20);
  for (const error of ended)
    assert.throws(() => {
      throw error;
    }, replaced);
  assert.equal(await here.count('connection'), 20);
  assert.equal(await here.count("audit where action = 'connection.imported'"), 40);
});
