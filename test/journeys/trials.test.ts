import assert from 'node:assert/strict';
import { once } from 'node:events';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { providersDirectory } from '../../server/app/app.ts';
import { authModes } from '../../server/auth-modes/modes.ts';
import { loadCatalog } from '../../server/providers/catalog.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

/** What a provider says when credentials are tried or renewed: to whom it is told, and what it is held against. */

/** A machine's access to one of many tenants, each with a token address of its own. */
const tenants = `
display_name: Tenants
categories: [other]
docs: https://example.com
logo: private-api-key.svg
auth_mode: OAUTH2_CC
integration_config:
  base_url:
    title: Base address
    description: Where the API starts.
    format: uri
    example: https://api.example.com
connection_config:
  tenant:
    title: Tenant
    description: Whose data it is.
    pattern: '[a-z]+'
    example: acme
token:
  url: \${integrationConfig.base_url}/\${connectionConfig.tenant}/token
  auth_method: client_secret_basic
api:
  base_url: \${integrationConfig.base_url}
`;

/** The same with an authorization of the end user. */
const pages = (tenant: string) => `
display_name: Pages
categories: [other]
docs: https://example.com
logo: private-api-key.svg
auth_mode: OAUTH2
integration_config:
  base_url: { title: Base address, description: Where the API starts., format: uri }
connection_config:
  tenant: { title: Tenant, description: Whose data it is., pattern: '[a-z]+' }
authorization: { url: "\${integrationConfig.base_url}/${tenant}/authorize" }
token: { url: "\${integrationConfig.base_url}/${tenant}/token" }
api: { base_url: "\${integrationConfig.base_url}" }
`;

/** What each tenant's token address answers, where that is not a token. */
const refusals = new Map<string, { status: number; error: string }>();
/** Called while a trial is on its way; once. */
let duringTrial: (() => Promise<unknown>) | undefined;
const asked: string[] = [];
const provider = createServer(async (request, response) => {
  const [, tenant = '', last] = (request.url ?? '').split('/');
  const meanwhile = duringTrial;
  duringTrial = undefined;
  await meanwhile?.();
  if (last !== 'token') return void response.end('{}');
  asked.push(tenant);
  const secret = Buffer.from(request.headers.authorization?.slice('Basic '.length) ?? '', 'base64')
    .toString()
    .split(':')[1];
  const refusal = refusals.get(tenant);
  const body = refusal
    ? { error: refusal.error.replace('SECRET', secret ?? '') }
    : { access_token: `a-token-of-${tenant}-${asked.length}`, token_type: 'bearer', expires_in: 3600 };
  response
    .writeHead(refusal?.status ?? 200, { 'content-type': 'application/json' })
    .end(JSON.stringify({ scope: 'read write', ...body }));
});

let trellis: TestTrellis;
let directory: string;
let origin: string;
before(async () => {
  await once(provider.listen(0, '127.0.0.1'), 'listening');
  origin = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`;
  directory = await mkdtemp(join(tmpdir(), 'trellis-tenants-'));
  await cp(providersDirectory, directory, { recursive: true });
  await writeFile(join(directory, 'tenants.yaml'), tenants);
  await writeFile(join(directory, 'pages.yaml'), pages(`\${connectionConfig.tenant}`));
  await writeFile(join(directory, 'one-page.yaml'), pages('all'));
  const catalog = loadCatalog(directory, authModes);
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' }, { catalog });
  await integrate('tenants', 'tenants', { credentials: client });
  await integrate('own', 'tenants');
});
after(async () => {
  provider.close();
  provider.closeAllConnections();
  await rm(directory, { recursive: true, force: true });
  await trellis.close();
});

const client = { type: 'OAUTH2', client_id: 'c', client_secret: 'the-secret-of-the-integration' };
async function integrate(key: string, name: string, more: object = {}): Promise<void> {
  const { status, text } = await trellis.call('POST', '/integrations', {
    body: { provider: name, unique_key: key, integration_config: { base_url: origin }, ...more },
  });
  assert.equal(status, 200, text);
}
const importOf = (integration: string, id: string, given: { key?: string; tenant?: string; of?: object }) =>
  trellis.call('POST', '/connections', {
    ...(given.key && { key: given.key }),
    body: {
      provider_config_key: integration,
      connection_id: id,
      credentials: { type: 'OAUTH2_CC', ...given.of },
      connection_config: { tenant: given.tenant ?? id },
    },
  });
const codeOf = ({ body }: { body: Record<string, unknown> }) =>
  (body.error as { code: string } | undefined)?.code;
const read = (integration: string, id: string) =>
  trellis.call('GET', `/connections/${id}?provider_config_key=${integration}`);
const healthOf = async (integration: string, id: string) =>
  (await trellis.call('GET', `/connections/${id}/health?provider_config_key=${integration}`)).body;
const faultOf = async (integration: string) =>
  (
    (await trellis.call('GET', `/integrations/${integration}`)).body.data as {
      fault: { cause: string } | null;
    }
  ).fault?.cause;
async function eventsOf(prefix: string): Promise<string[]> {
  const rows = await trellis.db.query<{ type: string }>('select type from event order by created_at, id');
  return rows.map(({ type }) => type).filter((type) => type.startsWith(prefix));
}
async function openSession(more: object = {}): Promise<string> {
  const body = { end_user: { id: 'ada' }, ...more };
  const session = await trellis.call('POST', '/connect/sessions', { body });
  return (session.body.data as { token: string }).token;
}
async function fillIn(route: string, body: object, query = '', more: object = {}) {
  const token = await openSession(more);
  return trellis.call('POST', `${route}?connect_session_token=${token}${query}`, { key: undefined, body });
}

describe('an import', () => {
  test('shows a token that was fetched to keys alone that may read credentials', async () => {
    const narrow = await trellis.keyWith('connections:write');
    const { status, body, text } = await importOf('tenants', 'aaa', { key: narrow });
    assert.deepEqual([status, body.credentials], [201, { type: 'OAUTH2_CC', raw: {} }]);
    assert.ok(!text.includes('a-token-of'));
    const wide = await trellis.keyWith('connections:write', 'connections:credentials');
    const shown = (await importOf('tenants', 'aaa', { key: wide })).body.credentials;
    assert.match((shown as { token: string }).token, /^a-token-of-aaa/);
  });

  test('of a replaced refresh token shows the newer access token only to callers that may read it', async () => {
    const { connectionId } = await connect(trellis, { integration: 'rotating' });
    await trellis.control('POST', 'faults', { case: 'refresh_rotates' });
    const at = `/connections/${connectionId}?provider_config_key=rotating&refresh_token=true`;
    const readBoth = async (more = '') =>
      (await trellis.call('GET', at + more)).body.credentials as Record<
        'access_token' | 'refresh_token',
        string
      >;
    const first = await readBoth();
    const second = await readBoth('&force_refresh=true');
    assert.notEqual(second.refresh_token, first.refresh_token);
    const { access_token, refresh_token } = first;
    const { status, body, text } = await trellis.call('POST', '/connections', {
      key: await trellis.keyWith('connections:write'),
      body: {
        provider_config_key: 'rotating',
        connection_id: connectionId,
        credentials: { type: 'OAUTH2', access_token, refresh_token },
      },
    });
    assert.equal(status, 201, text);
    assert.equal((body.credentials as typeof first).access_token, access_token);
    assert.ok(!text.includes(second.access_token));
    assert.equal((await readBoth()).access_token, second.access_token);
  });

  test('keeps the scopes that the token answer names', async () => {
    const { body } = await importOf('tenants', 'aaa', {});
    assert.deepEqual((body.scopes as { granted: string[] }).granted, ['read', 'write']);
  });

  test('that is refused for the client of the integration is reported as its fault, until one is accepted', async () => {
    refusals.set('aaa', { status: 401, error: 'invalid_client' });
    const refused = await importOf('tenants', 'aaa', {});
    assert.deepEqual([refused.status, codeOf(refused)], [400, 'integration_misconfigured']);
    assert.equal(await faultOf('tenants'), 'client_refused');
    refusals.clear();
    assert.equal((await importOf('tenants', 'aaa', {})).status, 201);
    assert.equal(await faultOf('tenants'), undefined);
    assert.deepEqual(await eventsOf('integration.'), ['integration.misconfigured', 'integration.recovered']);
  });
});

for (const error of ['access_denied', 'invalid_grant', 'unsupported_grant_type']) {
  test(`${error} of one tenant holds back its connection and no other`, async () => {
    await trellis.db.query('delete from event');
    for (const id of ['aaa', 'bbb']) assert.equal((await importOf('tenants', id, {})).status, 201);
    await trellis.advance(3601);
    refusals.set('aaa', { status: 401, error });
    const refused = await read('tenants', 'aaa');
    assert.deepEqual([refused.status, codeOf(refused)], [424, 'integration_misconfigured']);
    assert.equal((await read('tenants', 'bbb')).status, 200);
    const health = await healthOf('tenants', 'aaa');
    assert.deepEqual(
      [health.status, health.kind, health.cause],
      ['active', 'integration', 'client_not_allowed'],
    );
    assert.equal((health.evidence as { error: string }).error, error);
    assert.equal((await healthOf('tenants', 'bbb')).kind, null);
    refusals.clear();
    await trellis.advance(3601);
    assert.equal((await read('tenants', 'aaa')).status, 200);
    assert.deepEqual(await eventsOf('integration.'), ['integration.misconfigured', 'integration.recovered']);
  });
}

test("a grant type that is not supported ends no connection that has a client of its own, nor anybody else's", async () => {
  await trellis.db.query('delete from event');
  for (const tenant of ['ccc', 'ddd']) {
    const of = { client_id: tenant, client_secret: `the-secret-of-${tenant}` };
    assert.equal((await importOf('own', tenant, { of })).status, 201);
  }
  await trellis.advance(3601);
  refusals.set('ccc', { status: 400, error: 'unsupported_grant_type' });
  assert.equal(codeOf(await read('own', 'ccc')), 'connection_refresh_failed');
  assert.equal((await healthOf('own', 'ccc')).status, 'active');
  assert.equal((await read('own', 'ddd')).status, 200);
  refusals.clear();
  await trellis.advance(3601);
  assert.equal((await read('own', 'ccc')).status, 200);
  assert.deepEqual(await eventsOf('connection.needs_reauth'), []);
  assert.equal(await faultOf('own'), undefined);
});

test('a provider that repeats the secret in its code is not quoted', async () => {
  refusals.set('eee', { status: 400, error: 'bad_secret_SECRET' });
  const body = { client_id: 'me', client_secret: 'hunter2-very-secret-thing' };
  const refused = await fillIn('/oauth2/auth/own', body, '&params[tenant]=eee');
  refusals.clear();
  assert.deepEqual([refused.status, codeOf(refused)], [400, 'connection_test_failed']);
  const { payload } = refused.body.error as { payload: object };
  assert.deepEqual(payload, { status: 400, error: 'unknown_error', refused: false });
  assert.ok(!refused.text.includes(body.client_secret));
});

test("the application alone chooses the tenant that the integration's client opens", async () => {
  const own = { client_id: 'me', client_secret: 'secret-of-my-own-client' };
  const fixed = { integrations_config_defaults: { tenants: { connection_config: { tenant: 'fixed' } } } };
  for (const [body, query, more, status, tenants] of [
    [{}, '&params[tenant]=others', {}, 400, []],
    [{}, '&params[tenant]=others', fixed, 400, []],
    [{}, '', {}, 400, []],
    [{}, '', fixed, 200, ['fixed']],
    [own, '&params[tenant]=mine', {}, 200, ['mine']],
  ] as const) {
    const before = asked.length;
    const made = await fillIn('/oauth2/auth/tenants', body, query, more);
    assert.equal(made.status, status, made.text);
    if (status === 400) assert.equal(codeOf(made), 'invalid_query_params');
    assert.deepEqual(asked.slice(before), tenants);
  }
  // The tenant of a connection with a client of its own was chosen by its end user.
  const mine = await fillIn('/oauth2/auth/tenants', own, '&params[tenant]=others');
  const reconnect = { integration_id: 'tenants', connection_id: mine.body.connectionId };
  const session = await trellis.call('POST', '/connect/sessions/reconnect', { body: reconnect });
  const { token } = session.body.data as { token: string };
  const path = `/oauth2/auth/tenants?connect_session_token=${token}`;
  const before = asked.length;
  const renewed = await trellis.call('POST', path, { key: undefined, body: {} });
  assert.deepEqual([renewed.status, codeOf(renewed)], [400, 'invalid_query_params'], renewed.text);
  assert.deepEqual(asked.slice(before), []);
  assert.equal((await trellis.call('POST', path, { key: undefined, body: own })).status, 200);
  const key = await openSession({ allowed_integrations: ['tenants'] });
  const { body } = await trellis.call('GET', '/connect/session/choices', { key });
  const [choice] = (body.data as { choices: { fields: object[] }[] }).choices;
  assert.deepEqual(choice?.fields, []);
});

test('a refusal at the address that an end user has chosen is no fault of the integration', async () => {
  for (const [name, fault] of [
    ['pages', undefined],
    ['one-page', 'client_refused'],
  ] as const) {
    await integrate(name, name, { credentials: client });
    const token = await openSession({ allowed_integrations: [name] });
    const query = `connect_session_token=${token}&params[tenant]=strange`;
    const begun = await fetch(`${trellis.baseUrl}/oauth/connect/${name}?${query}`, { redirect: 'manual' });
    const state = new URL(begun.headers.get('location') ?? '').searchParams.get('state');
    const cookie = begun.headers
      .getSetCookie()
      .map((line) => line.split(';', 1)[0])
      .join('; ');
    for (const tenant of ['strange', 'all']) refusals.set(tenant, { status: 401, error: 'invalid_client' });
    const path = `/oauth/callback?state=${state}&code=invented`;
    const done = await fetch(`${trellis.baseUrl}${path}`, { headers: { cookie } });
    refusals.clear();
    assert.equal(done.ok, false, await done.text());
    assert.equal(await faultOf(name), fault, name);
  }
});

describe('while credentials are tried', () => {
  const settings = { integration_config: { base_url: '', verification_path: '/me' } };
  const changes = {
    'another integration takes the ID': async (key: string) => {
      await trellis.call('DELETE', `/integrations/${key}`);
      await integrate(key, 'hubspot', { credentials: client, integration_config: {} });
    },
    'the integration is deleted': (key: string) => trellis.call('DELETE', `/integrations/${key}`),
    'its address is moved': (key: string) =>
      trellis.call('PATCH', `/integrations/${key}`, {
        body: { integration_config: { base_url: 'https://elsewhere.example' } },
      }),
  };
  const ways = {
    'a form': (key: string) => fillIn(`/api-auth/api-key/${key}`, { apiKey: 'the-key-of-a-person' }),
    'an import': (key: string) =>
      trellis.call('POST', '/connections', {
        body: { provider_config_key: key, credentials: { type: 'API_KEY', apiKey: 'the-key-of-a-person' } },
      }),
  };
  for (const [what, change] of Object.entries(changes)) {
    for (const [way, send] of Object.entries(ways)) {
      test(`and ${what}, ${way} stores nothing`, async () => {
        const key = `race ${what} ${way}`.replaceAll(' ', '-');
        settings.integration_config.base_url = origin;
        await integrate(key, 'private-api-key', settings);
        duringTrial = () => change(key);
        const { status, body } = await send(key);
        assert.equal(duringTrial, undefined, 'it was tried');
        assert.deepEqual([status, codeOf({ body })], [404, 'unknown_provider_config']);
        const listed = await trellis.call('GET', `/connections?integrationId=${key}`);
        assert.deepEqual(listed.body.connections, []);
      });
    }
  }
});
