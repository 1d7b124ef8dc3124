import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { type ConnectBench, openConnectBench, sheetsScope } from './connect.fixture.ts';
import { people } from './consent.fixture.ts';

/** A client that the end user brings along, in place of the integration's. */
type OwnClient = { client_id: string; client_secret: string };

let bench: ConnectBench;
let own: OwnClient;
const person = people(() => bench);
before(async () => {
  bench = await openConnectBench();
  own = await newClient();
});
after(() => bench.end());
beforeEach(async () => {
  await person.clear();
  await bench.control('DELETE /faults', {});
  await bench.db.query('update integration set fault = null');
});

async function newClient(): Promise<OwnClient> {
  const redirect_uris = [`${bench.baseUrl}/oauth/callback`];
  const { client_id, client_secret } = await bench.control<OwnClient>('POST /clients', { redirect_uris });
  bench.watch.made('client_secret', client_secret);
  return { client_id, client_secret };
}
const query = ({ client_id, client_secret }: OwnClient) =>
  `&credentials[oauth_client_id_override]=${client_id}&credentials[oauth_client_secret_override]=${client_secret}`;
/** The whole way with this client; gives the callback's answer. */
async function dance(token: string, client: OwnClient | undefined, account = 'ada@example.com') {
  const browser = bench.browser();
  const url = await browser.begin(token, client && { query: query(client) });
  return browser.visit(await bench.consent(url, { account }));
}
const faultOfIntegration = async () =>
  (await bench.db.query<{ fault: unknown }>("select fault from integration where key = 'sheets'"))[0]?.fault;

test('it is used for the authorization and the exchange of the code, and is stored with the connection', async () => {
  const browser = bench.browser();
  const token = await bench.session();
  const url = await browser.begin(token, { query: query(own) });
  assert.equal(new URL(url).searchParams.get('client_id'), own.client_id);
  assert.equal((await browser.visit(await bench.consent(url))).status, 200);
  const { credentials, scopesGranted } = await person.only();
  assert.deepEqual(credentials.config_override, own);
  assert.ok(credentials.refresh_token && scopesGranted?.includes(sheetsScope));
  const rows = await bench.db.query<{ text: string }>(
    'select connection::text as text from connection union all select event::text from event',
  );
  assert.ok(
    rows.every(({ text }) => !text.includes(own.client_secret)),
    'sealed',
  );
});

test('half of it, and more than it, is refused by name, and nothing begins', async () => {
  const token = await bench.session();
  const { visit } = bench.browser();
  for (const [more, words] of [
    [`&credentials[oauth_client_id_override]=${own.client_id}`, /oauth_client_secret_override/],
    ['&credentials[oauth_client_secret_override]=x', /oauth_client_id_override/],
    [`${query(own)}&credentials[oauth_refresh_token_override]=x`, /oauth_refresh_token_override/],
    [query({ client_id: '', client_secret: 'x' }), /oauth_client_id_override/],
    [query({ client_id: 'a%0Ab', client_secret: 'x' }), /ASCII/],
  ] as const) {
    const answer = await visit(`/oauth/connect/sheets?connect_session_token=${token}${more}`);
    assert.equal(answer.status, 400, more);
    assert.match(answer.text, words);
  }
  assert.deepEqual(await bench.db.query('select from auth_attempt'), []);
  const form = `POST /api-auth/api-key/private?connect_session_token=${token}${query(own)}`;
  const { status, body } = await bench.call(form, { apiKey: 'right' });
  assert.deepEqual([status, body.error?.code], [400, 'invalid_query_params']);
});

test('where the provider refuses it, the integration has no fault, and the page blames the client', async () => {
  const refused = await dance(await bench.session(), { ...own, client_secret: 'wrong-secret' });
  assert.equal(refused.status, 400);
  assert.match(refused.text, /client ID and secret were not accepted/);
  assert.deepEqual(await bench.connections(), []);
  assert.equal(await faultOfIntegration(), null);
  assert.deepEqual(await bench.events(), ['connection.connect_failed']);
  // And where it is accepted, that proves nothing of the integration's.
  const fault = JSON.stringify({ cause: 'client_refused', evidence: {}, since: bench.now(), next_step: '' });
  await bench.db.query("update integration set fault = $1 where key = 'sheets'", [fault]);
  assert.equal((await dance(await bench.session(), own)).status, 200);
  assert.ok(await faultOfIntegration());
});

test('a renewal keeps only a refresh token of the same client, and requests all scopes with another client', async () => {
  assert.equal((await dance(await bench.session(), own)).status, 200);
  const { connectionId, credentials: before } = await person.only();
  const drive = 'https://www.googleapis.com/auth/drive.file';
  const scopeOf = async (client: OwnClient | undefined) => {
    const token = await bench.reconnectSession(connectionId, { scopes: [drive] });
    const url = await bench.browser().begin(token, client && { query: query(client) });
    return new URL(url).searchParams.get('scope');
  };
  assert.equal(await scopeOf(own), drive, 'it adds to its own grant');
  assert.ok((await scopeOf(undefined))?.includes(sheetsScope), 'the integration has no grant to add to');
  assert.ok((await scopeOf(await newClient()))?.includes(sheetsScope));

  await bench.control('POST /faults', { case: 'no_refresh_token', times: 1 });
  assert.equal((await dance(await bench.reconnectSession(connectionId), own)).status, 200);
  const same = (await person.only()).credentials;
  assert.equal(same.refresh_token, before.refresh_token);
  assert.deepEqual(same.config_override, own);

  const other = await newClient();
  await bench.control('POST /faults', { case: 'no_refresh_token', times: 1 });
  const browser = bench.browser();
  const first = await browser.begin(await bench.reconnectSession(connectionId), { query: query(other) });
  const again = await browser.visit(await bench.consent(first));
  assert.equal(again.status, 302, 'the one that is stored is of no use to it');
  assert.equal(new URL(again.location).searchParams.get('client_id'), other.client_id);
  assert.equal((await browser.visit(await bench.consent(again.location))).status, 200);
  const another = (await person.only()).credentials;
  assert.deepEqual(another.config_override, other);
  assert.ok(another.refresh_token && another.refresh_token !== before.refresh_token);
  assert.equal((await dance(await bench.reconnectSession(connectionId), undefined)).status, 200);
  const ofIntegration = (await person.only()).credentials;
  assert.equal(ofIntegration.config_override, undefined);
  assert.ok(ofIntegration.refresh_token && ofIntegration.refresh_token !== another.refresh_token);
});

test('its tokens take no place among those of the integration’s client', async () => {
  await dance(await bench.session(), own);
  const [token] = await bench.db.query<{ holder: Buffer }>('select holder from issued_token');
  await dance(await bench.session(), undefined);
  const holders = await bench.db.query<{ holder: Buffer }>('select holder from issued_token order by id');
  assert.equal(holders.length, 2);
  assert.ok(token && !holders[1]?.holder.equals(token.holder));
});

test('its code is exchanged while nothing is revoked that was granted to it', async () => {
  await bench.db.query('create table noted (unit text)');
  await bench.db.query(
    'create rule note as on insert to exchange do also insert into noted values (new.unit)',
  );
  await dance(await bench.session(), own);
  await bench.db.query('drop rule note on exchange');
  const noted = await bench.db.query<{ unit: string }>('select unit from noted');
  assert.deepEqual(
    noted.map(({ unit }) => unit.split(' ').at(-1)),
    [own.client_id.split('-')[0]],
    'its project',
  );
});

test('none is requested while a node of an earlier version runs', async () => {
  await bench.db.query(
    `insert into node (id, name, role, version, migration)
     values (gen_random_uuid(), 'old', 'all', '0.0.1', '0036_key_limits.sql')`,
  );
  const token = await bench.session();
  const { visit } = bench.browser();
  const refused = await visit(`/oauth/connect/sheets?connect_session_token=${token}${query(own)}`);
  assert.equal(refused.status, 503);
  assert.match(refused.text, /earlier version/);
  assert.deepEqual(await bench.db.query('select from auth_attempt'), []);
  assert.equal((await dance(token, undefined)).status, 200, 'the integration’s client goes on');
  await bench.db.query("update node set seen_at = clock_timestamp() - interval '1 minute'");
  assert.equal((await dance(await bench.session(), own)).status, 200);
  await bench.db.query('delete from node');
});
