import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Nango } from '@nangohq/node';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/**
 * The life of a connection by client credentials: the form, a proxied call, the token's end, a client that dies, and
 * the form once more. The provider is the sandbox, to which a client is an account of its own.
 */
const spreadsheets = 'https://www.googleapis.com/auth/spreadsheets';
let trellis: TestTrellis;
let another: Awaited<ReturnType<TestTrellis['serveAnother']>>;
let client: Client;
let connectionId: string;
let sheetId: string;
type Client = { client_id: string; client_secret: string };

before(async () => {
  trellis = await openTrellis({ TRELLIS_BRAND: 'nango', TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128' });
  another = await trellis.serveAnother();
  client = await newClient();
  const { url } = trellis.sandbox;
  for (const [key, path] of [
    ['machine', undefined],
    ['checked', 'v1/userinfo'],
  ] as const) {
    const { status, text } = await trellis.call('POST', '/integrations', {
      body: {
        provider: 'private-client-credentials',
        unique_key: key,
        integration_config: {
          base_url: url,
          token_url: `${url}/token`,
          scope: spreadsheets,
          ...(path && { verification_path: path }),
        },
      },
    });
    assert.equal(status, 200, text);
  }
});
after(async () => {
  await another.close();
  await trellis.close();
});

async function newClient(): Promise<Client> {
  const made = await trellis.control('POST', 'clients', { redirect_uris: ['https://app.example/callback'] });
  trellis.watch.made('client_secret', made.client_secret);
  return { client_id: String(made.client_id), client_secret: String(made.client_secret) };
}

/** Fills in the form behind a link, as the page's script does. */
async function fillIn(link: string, given: Client) {
  const token = new URL(link).searchParams.get('session_token') ?? '';
  const { body } = await trellis.call('GET', '/connect/session/choices', { key: token });
  const { choices } = body.data as { choices: { unique_key: string; fields: { name: string }[] }[] };
  assert.deepEqual(
    choices.map(({ fields }) => fields.map(({ name }) => name)),
    [['client_id', 'client_secret']],
  );
  const path = `/oauth2/auth/${choices[0]?.unique_key}?connect_session_token=${token}`;
  return trellis.call('POST', path, { key: undefined, body: given });
}

const headers = () => ({ 'connection-id': connectionId, 'provider-config-key': 'machine' });
const proxied = (from: Pick<TestTrellis, 'call'> = trellis) =>
  from.call('GET', `/proxy/v4/spreadsheets/${sheetId}`, { headers: headers() });
const at = (path: string, more = '') =>
  `/connections/${connectionId}${path}?provider_config_key=machine${more}`;
async function refreshes(of: Client) {
  const { refreshes: all } = (await trellis.control('GET', 'refreshes')) as {
    refreshes: { client_id: string; asked: number; accepted: number; most_at_once: number }[];
  };
  return all.find(({ client_id }) => client_id === of.client_id);
}
async function eventTypes(): Promise<string[]> {
  const rows = await trellis.db.query<{ type: string }>('select type from event order by created_at, id');
  return rows.map(({ type }) => type);
}

test('a form makes the connection, and calls go out with its token', async () => {
  const { body } = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, allowed_integrations: ['machine'] },
  });
  const made = await fillIn((body.data as { connect_link: string }).connect_link, client);
  assert.equal(made.status, 200, made.text);
  connectionId = String(made.body.connectionId);
  const created = await trellis.call('POST', '/proxy/v4/spreadsheets', {
    headers: headers(),
    body: { properties: { title: 'Of a machine' } },
  });
  assert.equal(created.status, 200, created.text);
  sheetId = String(created.body.spreadsheetId);
  assert.equal((await proxied(another)).status, 200);
  assert.equal((await refreshes(client))?.asked, 1);
});

test('the secret is shown only on request, to callers that may read refresh tokens', async () => {
  const { status, body } = await trellis.call('GET', at(''));
  assert.equal(status, 200);
  const shown = body.credentials as Record<string, unknown>;
  assert.deepEqual(Object.keys(shown).sort(), ['client_id', 'expires_at', 'raw', 'token', 'type']);
  assert.equal(shown.client_id, client.client_id);
  const withSecret = await trellis.call('GET', at('', '&refresh_token=true'));
  assert.equal((withSecret.body.credentials as Client).client_secret, client.client_secret);
  for (const scopes of [['connections:read', 'connections:credentials'], ['connections:read']]) {
    const key = await trellis.keyWith(...scopes);
    const { text } = await trellis.call('GET', at('', '&refresh_token=true'), { key });
    assert.ok(!text.includes(client.client_secret));
  }
});

test('twenty calls on two nodes after the token has expired request one new token', async () => {
  await trellis.advance(3601);
  const before = (await refreshes(client))?.asked ?? 0;
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) => proxied(index % 2 ? another : trellis)),
  );
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
  const { asked, most_at_once: max } = (await refreshes(client))!;
  assert.deepEqual([asked, max], [before + 1, 1]);
});

test('a 401 of the API leads to one other token and one replay', async () => {
  const before = (await refreshes(client))?.asked ?? 0;
  await trellis.control('POST', 'faults', { case: 'api_401', times: 1 });
  assert.equal((await proxied()).status, 200);
  assert.equal((await refreshes(client))?.asked, before + 1);
});

test('an outage of the token endpoint changes no status, and ends automatically', async () => {
  await trellis.advance(3601);
  await trellis.control('POST', 'faults', { case: 'token_503' });
  const { status, body } = await proxied();
  assert.deepEqual([status, (body.error as { code: string }).code], [503, 'connection_refresh_failed']);
  const health = await trellis.call('GET', at('/health'));
  assert.deepEqual([health.body.status, health.body.kind], ['active', 'transient']);
  await trellis.control('DELETE', 'faults');
  await trellis.advance(301);
  assert.equal((await proxied()).status, 200);
});

test('a refused client affects only its connection, which is reported once, with a link to the form', async () => {
  await trellis.advance(3601);
  await trellis.control('POST', 'faults', { case: 'token_wrong_secret', client_id: client.client_id });
  for (const { status, body } of [await proxied(), await proxied(another), await proxied()]) {
    assert.deepEqual([status, (body.error as { code: string }).code], [424, 'connection_needs_reauth']);
  }
  const { body: health } = await trellis.call('GET', at('/health'));
  assert.deepEqual(
    [health.status, health.kind, health.cause, health.evidence],
    ['needs_reauth', 'connection', 'credentials_refused', { error: 'invalid_client', http_status: 401 }],
  );
  assert.deepEqual(
    (await eventTypes()).filter((type) => !type.startsWith('connection.created')),
    ['connection.needs_reauth'],
  );
  const { body: integrations } = await trellis.call('GET', '/integrations');
  assert.deepEqual(
    (integrations.data as { fault: unknown }[]).map(({ fault }) => fault),
    [null, null],
  );
  const read = await trellis.call('GET', at(''));
  assert.deepEqual([read.status, (read.body.error as { code: string }).code], [424, 'invalid_credentials']);

  const reconnect = health.reconnect as { method: string; path: string; body: object };
  const { body } = await trellis.call(reconnect.method, reconnect.path, { body: reconnect.body });
  const { connect_link: link } = body.data as { connect_link: string };
  const refused = await fillIn(link, client);
  assert.deepEqual(
    [refused.status, (refused.body.error as { code: string }).code],
    [400, 'connection_test_failed'],
  );
  const successor = await newClient();
  const renewed = await fillIn(link, successor);
  assert.deepEqual([renewed.status, renewed.body.connectionId], [200, connectionId], renewed.text);
  const { body: after } = await trellis.call('GET', at('/health'));
  assert.deepEqual([after.status, after.cause], ['active', null]);
  // Another client is another account of the provider's, and may not see what the first one made.
  assert.equal((await proxied()).status, 403);
  assert.deepEqual((await eventTypes()).slice(-1), ['connection.reconnected']);
});

test('a dead client that is let in again comes back by a refresh', async () => {
  const { body } = await trellis.call('GET', at('', '&refresh_token=true'));
  const own = body.credentials as Client;
  await trellis.control('POST', 'faults', { case: 'token_deleted_client', client_id: own.client_id });
  const dead = await trellis.call('POST', at('/refresh'));
  assert.deepEqual(
    [dead.status, (dead.body.error as { code: string }).code],
    [424, 'connection_needs_reauth'],
  );
  await trellis.control('DELETE', 'faults');
  const revived = await trellis.call('POST', at('/refresh'));
  assert.deepEqual([revived.status, revived.body.status], [200, 'active'], revived.text);
});

test("the integration's client, refused, kills no connection, and is tried until it is accepted again", async () => {
  const key = 'ours';
  const { url } = trellis.sandbox;
  await trellis.call('POST', '/integrations/quickstart', {
    body: {
      provider: 'private-client-credentials',
      unique_key: key,
      integration_config: { base_url: url, token_url: `${url}/token` },
    },
  });
  const { body } = await trellis.call('POST', '/connect/sessions', { body: { end_user: { id: 'ada' } } });
  const { token } = body.data as { token: string };
  const click = `/oauth2/auth/${key}?connect_session_token=${token}`;
  const made = await trellis.call('POST', click, { key: undefined, body: {} });
  assert.equal(made.status, 200, made.text);
  const id = String(made.body.connectionId);
  const fetched = () => trellis.call('GET', `/connections/${id}?provider_config_key=${key}`);
  const events = async () => (await eventTypes()).filter((type) => type.startsWith('integration.'));

  await trellis.advance(3601);
  const { clientId } = trellis.sandbox.client;
  await trellis.control('POST', 'faults', { case: 'token_wrong_secret', client_id: clientId });
  for (const { status, body: answer } of [await fetched(), await fetched()]) {
    assert.deepEqual([status, (answer.error as { code: string }).code], [424, 'integration_misconfigured']);
  }
  const health = await trellis.call('GET', `/connections/${id}/health?provider_config_key=${key}`);
  assert.deepEqual([health.body.status, health.body.kind], ['active', 'integration']);
  assert.equal(health.body.cause, 'client_refused');
  assert.deepEqual(await events(), ['integration.misconfigured']);
  await trellis.control('DELETE', 'faults');
  await trellis.advance(61);
  await trellis.runJob('connections.probe');
  assert.deepEqual(await events(), ['integration.misconfigured', 'integration.recovered']);
  assert.equal((await fetched()).status, 200);
});

describe('an import by the published client', () => {
  let nango: Nango;
  before(() => {
    nango = new Nango({ host: trellis.baseUrl, secretKey: trellis.keys.dev });
  });
  const post = (credentials: Record<string, unknown>, key = 'machine', id?: string) =>
    trellis.call('POST', '/connections', {
      body: {
        provider_config_key: key,
        ...(id && { connection_id: id }),
        credentials: { type: 'OAUTH2_CC', ...credentials },
      },
    });

  test('brings a client with its token, which getConnection and getToken give back', async () => {
    const own = await newClient();
    const expires_at = new Date(Date.now() + 30 * 24 * 3_600_000);
    const answer = await trellis.call('POST', '/connections', {
      body: {
        provider_config_key: 'machine',
        connection_id: 'brought',
        credentials: { type: 'OAUTH2_CC', token: 'a-token-from-elsewhere', ...own, expires_at },
      },
    });
    assert.equal(answer.status, 201, answer.text);
    const { credentials } = await nango.getConnection('machine', 'brought');
    assert.ok(credentials.type === 'OAUTH2_CC');
    assert.equal(credentials.token, 'a-token-from-elsewhere');
    assert.equal(credentials.client_id, own.client_id);
    const fresh = await nango.getConnection('machine', 'brought', true);
    assert.ok(fresh.credentials.type === 'OAUTH2_CC' && fresh.credentials.token !== 'a-token-from-elsewhere');
  });

  test('of a client alone fetches its token, and of one that is refused makes nothing', async () => {
    const own = await newClient();
    const { status, body } = await post(own);
    assert.equal(status, 201);
    assert.ok(typeof (body.credentials as { token: unknown }).token === 'string');
    assert.ok(!('client_secret' in (body.credentials as object)));
    const before = (await trellis.db.query('select from connection')).length;
    const refused = await post({ ...own, client_secret: 'another-secret-than-that' });
    assert.deepEqual(
      [refused.status, (refused.body.error as { code: string }).code],
      [400, 'connection_test_failed'],
    );
    for (const given of [{}, { client_id: own.client_id }, { token: 't' }, { ...own, password: 'x' }]) {
      const unfit = await post(given);
      assert.deepEqual(
        [unfit.status, (unfit.body.error as { code: string }).code],
        [400, 'invalid_body'],
        unfit.text,
      );
    }
    assert.equal((await trellis.db.query('select from connection')).length, before);
  });

  test('while the provider gives no answer is taken as it is, and its first call fetches the token', async () => {
    const own = await newClient();
    await trellis.control('POST', 'faults', { case: 'token_503' });
    const { status } = await post(own, 'machine', 'early');
    assert.equal(status, 201);
    await trellis.control('DELETE', 'faults');
    const { credentials } = await nango.getConnection('machine', 'early');
    assert.ok(credentials.type === 'OAUTH2_CC' && credentials.token.length > 20);
  });

  test('of a token that the API refuses makes nothing, and changes nothing that there was', async () => {
    const own = await newClient();
    const refused = await post({ ...own, token: 'never-issued-by-anybody' }, 'checked', 'tried');
    assert.deepEqual(
      [refused.status, (refused.body.error as { code: string }).code],
      [400, 'connection_test_failed'],
    );
    assert.ok(!refused.text.includes('never-issued-by-anybody'));
    const lists = await trellis.call('GET', '/connections?integrationId=checked');
    assert.deepEqual(lists.body.connections, []);
  });
});
