// Slow: it moves whole installations.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { insertConnection } from '../../../server/connections/store/save.ts';
import { createIntegration } from '../../../server/integrations/store.ts';
import type { PeerStandIn } from '../../../test/support/peer.ts';
import { peerConnection } from '../../../test/support/peer-bodies.ts';
import { bytesFrom, takeFile } from '../file/file.fixture.ts';
import {
  type Installation,
  type Move,
  openInstallation,
  openMove,
  outcomesOf,
  renewHere,
} from '../migrate.fixture.ts';
import { isWhole, linesOf, type Report, reportText } from '../report.ts';
import { openPeer, type PeerSettings } from './client.ts';
import { type PeerRun, runPeer, tryPeerRun } from './run.ts';

let move: Move;
let peer: PeerStandIn;
let here: Installation;
beforeEach(async () => {
  move = await openMove('sheets');
  ({ peer, here } = move);
  peer.connections = ['ada', 'bob', 'cyd'].map((id) => peerConnection({ id, integration: 'sheets' }));
});
afterEach(() => move.close());

type Changed = { status?: number; text: string } | undefined;

/** The peer behind something that changes what it answers. */
function behind(change: (path: string, text: string) => Changed): PeerRun['peer'] {
  const through = async (address: string, { headers }: { headers: Record<string, string> }) => {
    const answer = await fetch(address, { headers });
    const text = await answer.text();
    const { pathname } = new URL(address);
    const changed = change(pathname, text) ?? { status: answer.status, text };
    const body = (async function* () {
      yield Buffer.from(changed.text);
    })();
    return { status: changed.status ?? 200, headers: answer.headers, body };
  };
  return openPeer({
    url: peer.url,
    key: peer.key,
    pauseMs: 1,
    fetch: through as unknown as PeerSettings['fetch'],
  });
}

const run = async (more: Partial<PeerRun> = {}): Promise<Report> => (await runPeer(move.open(more))).report;
const records = { models: undefined, positions: new Map(), consumer: 'imported' };
const failedOf = (report: Report) => report.records!.failed;

/** A connection of somebody else, of the same IDs. */
async function another({ db, reading, environment, vault }: Installation, clientId: string) {
  await db.transaction(async (tx) => {
    const at = { ...reading, environmentId: environment.id, key: 'sheets', provider: 'google-sheet' };
    const client = { clientId, clientSecret: 'client-secret-there' };
    const integration = await createIntegration(tx, { ...at, client });
    await insertConnection(tx, {
      vault,
      integration,
      connectionId: 'ada',
      at: new Date(),
      grant: { account: { id: 'another-account', email: undefined } },
      credentials: { type: 'OAUTH2', access_token: 'here', refresh_token: 'r-here', raw: {} },
    });
  });
}

for (const clientId of ['c.apps', 'other.apps'])
  test(`no records are imported into a connection that only has the same ID, with the client ${clientId}`, async () => {
    peer.connections = peer.connections.slice(0, 1);
    peer.connections[0]!.records.set('Row', [{ id: 'r', fields: { of: 'another' }, order: 1 }]);
    const other = await openInstallation('other');
    move.after(() => other.drop());
    await run({ records });
    const now = new Date();
    const bytes = await bytesFrom(here, { number: 1, now, hasRecords: true, hasApiKeys: false });
    await another(other, clientId);
    const [taken] = await takeFile(other, bytes, { now: () => now });
    const onto = { db: other.db, reading: other.reading, environment: other.environment };
    for (const report of [taken!.report, await run({ ...onto, records }), await run({ ...onto, records })]) {
      assert.equal(await other.count('dataset'), 0);
      assert.equal(await other.count('record'), 0);
      assert.deepEqual(
        failedOf(report).map(({ reason }) => reason),
        [clientId === 'c.apps' ? 'connection_differs' : 'integration_skipped'],
      );
      if (clientId !== 'c.apps') assert.match(failedOf(report)[0]!.detail!, /skipped \(client_differs\)/);
      assert.ok(!isWhole(report));
    }
    if (clientId !== 'c.apps') return;
    // With `overwrites` the operator says that it is the same connection, and its dataset is filled.
    const told = await run({ ...onto, records, overwrites: true });
    assert.deepEqual([failedOf(told), await other.count('record')], [[], 1]);
  });

test('an integration that cannot be read for a while prevents the import of records only for that time', async () => {
  peer.connections = peer.connections.slice(0, 1);
  peer.connections[0]!.records.set('Row', [{ id: 'r', fields: {}, order: 1 }]);
  await run({ records });
  peer.trouble = (_, path) => (path === '/integrations/sheets' ? 'fail' : undefined);
  const [failed, ...others] = failedOf(await run({ records }));
  assert.deepEqual([failed!.reason, others], ['integration_skipped', []]);
  assert.match(failed!.detail!, /skipped \(server_error\)/);
  assert.doesNotMatch(failed!.detail!, /--overwrite/);
  peer.trouble = () => undefined;
  const report = await run({ records });
  assert.deepEqual([failedOf(report), isWhole(report)], [[], true]);
});

test("a 404 that is not the peer's own does not count as deleted", async () => {
  await run();
  const proxy = behind((path) =>
    path.startsWith('/connections/') ? { status: 404, text: 'default backend - 404' } : undefined,
  );
  const report = await run({ peer: proxy, overwrites: true });
  assert.deepEqual(outcomesOf(report), { 'failed not_json': 3 });
  assert.ok(!isWhole(report));
  assert.deepEqual(outcomesOf(await run({ overwrites: true })), { overwritten: 3 });
});

test('a list that lost most of its entries is not accepted, and no deletion is suggested', async () => {
  await run();
  const empty = () =>
    behind((path) => (path === '/connections' ? { text: '{"connections":[]}' } : undefined));
  for (const report of [
    await run({ peer: empty() }),
    await run({ peer: empty() }),
    (await tryPeerRun(move.open({ peer: empty() }))).report,
  ]) {
    assert.deepEqual(outcomesOf(report), { 'gone still_here': 3 });
    assert.ok(!isWhole(report));
    assert.match(report.doubts.join(), /3 of the 3 imported connections/);
    assert.doesNotMatch(linesOf(report).join(), /Delete these connections/);
  }
  const report = await run();
  assert.deepEqual([outcomesOf(report), isWhole(report)], [{ existing: 3 }, true]);
});

test('answers of an unknown form fail alone, and the others are imported', async () => {
  const at = (n: number) => new Date(Date.UTC(2027, 0, n));
  for (const [n, id] of ['..', 'acme/1', 'n\0ul', 'n\0ul2', 'odd'].entries())
    peer.connections.push(peerConnection({ id, integration: 'sheets', createdAt: at(n + 1) }));
  const odd = behind((path, text) => {
    if (path.endsWith('/acme%2F1')) return { text: '<!doctype html>' };
    if (path.endsWith('/bob'))
      return { status: 400, text: '{"error":{"code":"o\\u0000ps","message":"a\\u0000b"}}' };
    if (path.endsWith('/cyd')) return { text: text.replace('"tags":{"team":"blue"}', '"tags":[]') };
    if (path === '/sync/status') return { text: '{"syncs":[{"name":"s","recordCount":{"Row":null}}]}' };
    if (path !== '/connections') return undefined;
    const { connections } = JSON.parse(text) as { connections: { connection_id: string; tags: unknown }[] };
    for (const one of connections) if (one.connection_id === 'odd') one.tags = [];
    return { text: JSON.stringify({ connections }) };
  });
  peer.connections[0]!.records.set('Row', [{ id: 'r', fields: {}, order: 1 }]);
  const reported = await runPeer(move.open({ peer: odd, records }));
  const { report } = reported;
  assert.deepEqual(outcomesOf(report), {
    'failed invalid_id': 3,
    'failed not_json': 1,
    'failed o\ufffdps': 1,
    'failed unknown_form': 2,
    made: 1,
  });
  assert.deepEqual([report.broken_off, failedOf(report), await here.count('record')], [null, [], 1]);
  const text = (await Array.fromAsync(reportText(here.db, [reported]))).join('');
  assert.match(text, /In the list: tags/);
});

test('an entry without a name is reported, and missing connections stay undecided', async () => {
  await run();
  const nameless = behind((path) =>
    path === '/connections' ? { text: '{"connections":[{"id":1}]}' } : undefined,
  );
  const report = await run({ peer: nameless });
  assert.deepEqual(outcomesOf(report), { made: 3 });
  assert.match(report.doubts.join(), /1 connections without an ID/);
  assert.ok(!isWhole(report));
});

test('a connection without a refresh token is reported, and requested again until it has one', async () => {
  peer.connections = peer.connections.slice(0, 2);
  const [ada, bob] = peer.connections as [(typeof peer.connections)[0], (typeof peer.connections)[0]];
  const held = ada.credentials.refresh_token;
  delete ada.credentials.refresh_token;
  for (let times = 0; times < 2; times += 1) {
    const report = await run();
    assert.deepEqual(outcomesOf(report), { made: 1, 'made no_refresh_token': 1 });
    assert.match(report.next_steps.join(), /no refresh token for 1 connections/);
    // Its token may be one of minutes or of months.
    assert.ok(report.next_steps.join().includes(` at ${String(ada.credentials.expires_at)}`));
    assert.ok(!isWhole(report));
  }
  assert.deepEqual([ada.reads, bob.reads], [2, 1]);
  await here.db.query(`update connection set tags = '{"team": "of-here"}'`);
  ada.credentials.refresh_token = held;
  const report = await run();
  assert.deepEqual([outcomesOf(report), isWhole(report)], [{ made: 2 }, true]);
  const found = (await here.find('sheets', 'ada'))!;
  assert.equal((found.credentials as { refresh_token?: string }).refresh_token, held);
  assert.deepEqual(found.tags, { team: 'of-here' });

  // One that is here is not given for none.
  delete ada.credentials.refresh_token;
  const kept = { overwritten: 1, 'overwritten credentials_kept': 1 };
  assert.deepEqual(outcomesOf(await run({ overwrites: true })), kept);
  const after = (await here.credentialsOf('sheets', 'ada')) as { refresh_token?: string };
  assert.equal(after.refresh_token, held);
});

type Trial = {
  /** What the run in between comes to for the one that lacks it. */
  outcome: string;
  detail: RegExp;
  begin: () => Partial<PeerRun> | undefined;
};
const trials: Record<string, Trial> = {
  'has no credentials that work': {
    outcome: 'dead no_refresh_token',
    detail: /no_credentials/,
    begin: () => {
      peer.connections[0]!.deadReads = 2;
      return undefined;
    },
  },
  'fails for it': {
    outcome: 'failed no_refresh_token',
    detail: /server_error: .*503/,
    begin: () => {
      peer.trouble = (_, path) => (path === '/connections/ada' ? 'fail' : undefined);
      return undefined;
    },
  },
  'is hidden by something else': {
    outcome: 'failed no_refresh_token',
    detail: /not_json: /,
    begin: () => ({
      peer: behind((path) =>
        path === '/connections/ada' ? { status: 404, text: 'default backend - 404' } : undefined,
      ),
    }),
  },
  'does not list it': {
    outcome: 'gone no_refresh_token',
    detail: /still_here/,
    begin: () => ({
      peer: behind((path, text) => {
        if (path !== '/connections') return undefined;
        const { connections } = JSON.parse(text) as { connections: { connection_id: string }[] };
        const others = connections.filter(({ connection_id: id }) => id !== 'ada');
        return { text: JSON.stringify({ connections: others }) };
      }),
    }),
  },
  'does not tell of its integration': {
    outcome: 'skipped no_refresh_token',
    detail: /server_error/,
    begin: () => {
      peer.trouble = (_, path) => (path === '/integrations/sheets' ? 'fail' : undefined);
      return undefined;
    },
  },
};

for (const [name, { outcome, detail, begin }] of Object.entries(trials))
  for (const overwrites of [false, true])
    test(`a connection without a refresh token is requested again after a run in which the peer ${name}${overwrites ? ', and which overwrites' : ''}`, async () => {
      const ada = peer.connections[0]!;
      const { refresh_token: held } = ada.credentials;
      delete ada.credentials.refresh_token;
      await run();
      const reported = await runPeer(move.open({ ...begin(), overwrites }));
      assert.equal(outcomesOf(reported.report)[outcome], 1);
      assert.ok(!isWhole(reported.report));
      assert.match(reported.report.next_steps.join(), /no refresh token for 1 connections/);
      const text = (await Array.fromAsync(reportText(here.db, [reported]))).join('');
      const { not_whole: open } = JSON.parse(text) as {
        not_whole: { connection_id: string; detail: string }[];
      };
      assert.match(open.find(({ connection_id: id }) => id === 'ada')!.detail, detail);

      peer.trouble = () => undefined;
      ada.credentials.refresh_token = held;
      const report = await run();
      assert.ok(isWhole(report), JSON.stringify(outcomesOf(report)));
      const found = (await here.credentialsOf('sheets', 'ada')) as { refresh_token?: string };
      assert.equal(found.refresh_token, held);
    });

test('a connection whose user has reauthorized no longer counts as without a refresh token', async () => {
  const ada = peer.connections[0]!;
  delete ada.credentials.refresh_token;
  await run();
  const renewed = await renewHere(here, { at: ['sheets', 'ada'], kept: [] });
  peer.trouble = (_, path) => (path === '/connections/ada' ? 'fail' : undefined);
  assert.deepEqual(outcomesOf(await run()), { 'failed server_error': 1, made: 2 });
  peer.trouble = () => undefined;
  const report = await run();
  assert.deepEqual([outcomesOf(report), isWhole(report)], [{ existing: 1, made: 2 }, true]);
  assert.deepEqual(await here.credentialsOf('sheets', 'ada'), renewed.credentials);
});

test('the report names the record that prevents the import of its dataset, and why', async () => {
  peer.connections = peer.connections.slice(0, 1);
  const fields = { snowflake: 2 ** 60 };
  peer.connections[0]!.records.set('Row', [{ id: 'r', fields, order: 1 }]);
  const report = await run({ records });
  assert.match(failedOf(report)[0]!.detail!, /snowflake/);
  assert.match(linesOf(report).join('\n'), /sheets\/ada\/Row: .*snowflake/);
});
