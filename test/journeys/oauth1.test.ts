// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { type OAuth1Provider, startOAuth1 } from '../../sandbox/profiles/oauth1.ts';
import { authModes } from '../../server/auth-modes/modes.ts';
import { loadCatalog, providersDirectory } from '../../server/providers/catalog.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/** OAuth 1.0a, from the session to the end of the token, at a provider that verifies each signature on its own. */
const definition = `display_name: Signed
categories: [other]
docs: https://example.com
logo: private-api-key.svg
auth_mode: OAUTH1
integration_config:
  base_url: { title: Base, description: Base address., format: uri }
authorization:
  url: "\${integrationConfig.base_url}/oauth/authorize"
  params: { expiration: never }
oauth1: { request_url: "\${integrationConfig.base_url}/oauth/request" }
token: { url: "\${integrationConfig.base_url}/oauth/token", timeout_ms: 1000 }
userinfo: { url: "\${integrationConfig.base_url}/me", subject: id, email: email, name: fullName }
api: { base_url: "\${integrationConfig.base_url}" }
verification: { path: /me }
scopes:
  separator: ','
  default: [read, write]
  catalogue:
    read: { sensitivity: sensitive, description: Read. }
    write: { sensitivity: sensitive, description: Write. }
`;
let trellis: TestTrellis;
let started: Awaited<ReturnType<typeof startOAuth1>>;
let provider: OAuth1Provider;
let directory: string;
let aheadMs = 0;
const client = { key: 'consumer-1', secret: randomBytes(20).toString('base64') };

before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'trellis-test-providers-'));
  await cp(providersDirectory, directory, { recursive: true });
  await writeFile(join(directory, 'signed.yaml'), definition);
  const catalog = loadCatalog(directory, authModes);
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128' }, { catalog });
  trellis.watch.made('client_secret', client.secret);
  started = await startOAuth1({
    client,
    callback: `${trellis.baseUrl}/oauth/callback`,
    endpoints: { request: '/oauth/request', authorization: '/oauth/authorize', token: '/oauth/token' },
    now: () => new Date(Date.now() + aheadMs),
    onSecret: (secret) => trellis.watch.made('access_token', secret),
  });
  ({ provider } = started);
  const made = await createIntegration('signed', client.secret);
  assert.equal(made.status, 200, made.text);
});
after(async () => {
  await trellis.close();
  await started.stop();
  await rm(directory, { recursive: true });
});
beforeEach(() => {
  provider.decision = 'allows';
  provider.damage = undefined;
  aheadMs = 0;
});

function createIntegration(unique_key: string, client_secret: string, type = 'OAUTH1') {
  const credentials = { type, client_id: client.key, client_secret };
  const integration_config = { base_url: started.origin };
  return trellis.call('POST', '/integrations', {
    body: { provider: 'signed', unique_key, credentials, integration_config },
  });
}

const errorOf = ({ body }: { body: Record<string, unknown> }) =>
  body.error as { code: string; message: string };

async function newSession(integration = 'signed', more: object = {}) {
  const session = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, allowed_integrations: [integration], ...more },
  });
  assert.equal(session.status, 201, session.text);
  return (session.body.data as { token: string }).token;
}

/** A browser that begins: the address to which it is sent, and its cookie. */
async function begin(token: string, integration = 'signed') {
  const answer = await fetch(
    `${trellis.baseUrl}/oauth/connect/${integration}?connect_session_token=${token}`,
    {
      redirect: 'manual',
    },
  );
  const cookie = answer.headers
    .getSetCookie()
    .map((line) => line.split(';', 1)[0])
    .join('; ');
  return {
    status: answer.status,
    location: answer.headers.get('location') ?? '',
    cookie,
    page: await answer.text(),
  };
}

async function atProvider(location: string): Promise<string> {
  const answer = await fetch(location, { redirect: 'manual' });
  await answer.text();
  return answer.headers.get('location') ?? '';
}

async function comeBack(callback: string, cookie: string) {
  const answer = await fetch(callback, { headers: { cookie }, redirect: 'manual' });
  return { status: answer.status, page: await answer.text() };
}

async function connected(): Promise<string> {
  const { location, cookie } = await begin(await newSession());
  const done = await comeBack(await atProvider(location), cookie);
  assert.equal(done.status, 200, done.page);
  return latest();
}

async function latest(): Promise<string> {
  const { body } = await trellis.call('GET', '/connections?integrationId=signed');
  return (body.connections as { connection_id: string }[])[0]!.connection_id;
}

const proxied = (
  id: string,
  path: string,
  {
    method = 'GET',
    headers = {},
    body,
  }: { method?: string; headers?: Record<string, string>; body?: string } = {},
) =>
  fetch(`${trellis.baseUrl}/proxy${path}`, {
    method,
    headers: {
      authorization: `Bearer ${trellis.keys.dev}`,
      'provider-config-key': 'signed',
      'connection-id': id,
      ...headers,
    },
    ...(body !== undefined && { body }),
  });
const health = async (id: string) =>
  (await trellis.call('GET', `/connections/${id}/health?provider_config_key=signed`)).body;
async function failures() {
  const rows = await trellis.db.query<{ data: { cause: string; evidence: unknown } }>(
    "select data from event where type = 'connection.connect_failed' order by created_at",
  );
  return rows.map(({ data }) => data);
}

test('an account is connected on the page of the provider, and known by its ID', async () => {
  const token = await newSession();
  const { status, location, cookie } = await begin(token);
  assert.equal(status, 302);
  const asked = new URL(location);
  assert.deepEqual([...asked.searchParams.keys()].sort(), ['expiration', 'oauth_token', 'scope']);
  assert.equal(asked.searchParams.get('scope'), 'read,write');
  const callback = await atProvider(location);
  assert.match(callback, /\/oauth\/callback\?state=[0-9a-f]{64}&oauth_token=/);
  const other = await comeBack(callback, '');
  assert.equal(other.status, 400, 'another browser');
  assert.match(other.page, /another browser/);
  const again = await comeBack(callback, cookie);
  assert.equal(again.status, 400, 'a state is used up, also by another browser');

  const id = await connected();
  const { body } = await trellis.call('GET', `/connections/${id}?provider_config_key=signed`);
  assert.deepEqual((body.account as { id: string }).id, '77');
  const { type, oauth_token, oauth_token_secret, raw, ...others } = body.credentials as Record<
    string,
    unknown
  >;
  assert.deepEqual([type, others], ['OAUTH1', {}]);
  assert.deepEqual(raw, { oauth_token, oauth_token_secret, user_id: '77' });
});

test('each call is signed with its query and its form, and other bodies are streamed', async () => {
  const id = await connected();
  const form = { 'content-type': 'application/x-www-form-urlencoded; charset=UTF-8' };
  const json = { 'content-type': 'application/json' };
  const large = `{"data":"${'x'.repeat(8 * 1024 * 1024)}"}`;
  for (const [path, options] of [
    ['/plain', {}],
    ['/a%20b/c:d!*?b5=%3D%253D&a3=a&c%40=&a2=r%20b&a3=2+q&empty&x=1=2', {}],
    ['/form?a=1', { method: 'POST', headers: form, body: 'c2&a3=2+q&a=2&a%5B0%5D=%C3%BC&b=1%3D2=3' }],
    ['/form', { method: 'POST', headers: form, body: '' }],
    ['/json', { method: 'PUT', headers: json, body: large }],
    ['/gone', { method: 'DELETE' }],
  ] as const) {
    const answer = await proxied(id, path, options);
    const text = await answer.text();
    assert.equal(answer.status, 200, `${path}: ${text}`);
    assert.equal(JSON.parse(text).path, path.split('#')[0]);
  }
  const tooLarge = await proxied(id, '/form', {
    method: 'POST',
    headers: form,
    body: `a=${'x'.repeat(6 * 1024 * 1024)}`,
  });
  assert.equal(tooLarge.status, 400);
  assert.equal(((await tooLarge.json()) as { error: { code: string } }).error.code, 'invalid_body');
});

test('twenty calls at once have their own nonces', async () => {
  const id = await connected();
  const answers = await Promise.all(
    Array.from({ length: 20 }, async () => (await (await proxied(id, '/same')).json()) as { nonce: string }),
  );
  assert.equal(new Set(answers.map(({ nonce }) => nonce)).size, 20);
});

test('a caller cannot put parameters of the signature beside it', async () => {
  const id = await connected();
  const inQuery = await proxied(id, '/x?oauth_token=of-another');
  assert.equal(inQuery.status, 400);
  assert.match(await inQuery.text(), /invalid_proxy_path.*oauth_/);
  const inForm = await proxied(id, '/x', {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: 'a=1&oauth%5Ftoken=of-another',
  });
  assert.equal(inForm.status, 400);
  assert.match(await inForm.text(), /invalid_body.*oauth_/);
  const headers = { 'trellis-proxy-authorization': 'OAuth oauth_token="x"' };
  assert.equal((await proxied(id, '/x', { headers })).status, 200);
});

describe('an authorization fails with its cause', () => {
  const failing = async (change: (callback: URL) => void) => {
    const { location, cookie } = await begin(await newSession());
    const callback = new URL(await atProvider(location));
    change(callback);
    const { status, page } = await comeBack(callback.href, cookie);
    return { status, page, ...(await failures()).at(-1)! };
  };

  test('the user refuses', async () => {
    provider.decision = 'refuses';
    const { status, cause } = await failing((callback) => assert.ok(callback.searchParams.has('denied')));
    assert.deepEqual([status, cause], [400, 'access_denied']);
  });

  test('the provider returns no verifier, an empty one or a problem', async () => {
    for (const change of [
      ({ searchParams: params }: URL) => params.delete('oauth_verifier'),
      ({ searchParams: params }: URL) => params.set('oauth_verifier', ''),
      ({ searchParams: params }: URL) => params.set('oauth_problem', 'user_refused'),
    ]) {
      const { status, cause } = await failing(change);
      assert.deepEqual([status, cause], [400, 'access_denied']);
    }
  });

  test('the verifier is wrong, the request token has expired, or it is of another authorization', async () => {
    const wrong = await failing(({ searchParams: params }) => params.set('oauth_verifier', 'guessed'));
    assert.deepEqual(
      [wrong.cause, wrong.evidence],
      ['code_refused', { error: 'verifier_invalid', http_status: 401 }],
    );
    const late = await failing(() => (aheadMs = 4 * 60_000 + 59_000 + 2000));
    // The provider's clock is ahead, so the signature is refused first.
    assert.ok(['code_refused', 'unexpected_answer'].includes(late.cause), late.cause);
    aheadMs = 0;
    const mixed = await failing(({ searchParams: params }) => params.set('oauth_token', 'of-another'));
    assert.deepEqual([mixed.cause, mixed.evidence], ['unexpected_answer', { error: 'token_mismatch' }]);
    const twice = await failing(({ searchParams: params }) => params.append('oauth_token', 'of-another'));
    assert.equal(twice.cause, 'unexpected_answer');
  });

  test('a callback that is repeated changes nothing', async () => {
    const { location, cookie } = await begin(await newSession());
    const callback = await atProvider(location);
    assert.equal((await comeBack(callback, cookie)).status, 200);
    const before = await latest();
    const second = await comeBack(callback, cookie);
    assert.deepEqual([second.status, await latest()], [400, before]);
  });

  for (const [damage, cause] of [
    ['html', 'provider_not_answering'],
    ['error 500', 'provider_not_answering'],
    ['silence', 'provider_not_answering'],
    ['too large', 'unexpected_answer'],
    ['no secret', 'unexpected_answer'],
    ['no confirmation', 'unexpected_answer'],
  ] as const) {
    test(`the provider answers with ${damage} before its page`, async () => {
      provider.damage = damage;
      const { status, location } = await begin(await newSession());
      assert.deepEqual([status, location], [400, '']);
      assert.equal((await failures()).at(-1)?.cause, cause);
    });
    if (damage === 'no confirmation') continue;
    test(`the provider answers with ${damage} after its page`, async () => {
      const failed = await failing(() => (provider.damage = damage));
      assert.deepEqual([failed.status, failed.cause], [400, cause]);
    });
  }

  test('the client is refused: the user reads that the application is at fault, and a session can be tried again', async () => {
    const made = await createIntegration('wrong', 'another-secret');
    assert.equal(made.status, 200, made.text);
    const token = await newSession('wrong');
    const { status, page } = await begin(token, 'wrong');
    assert.equal(status, 400);
    assert.match(page, /not set up correctly/);
    const failed = (await failures()).at(-1);
    assert.deepEqual(failed, {
      ...failed,
      cause: 'client_refused',
      evidence: { error: 'signature_invalid', http_status: 401 },
    });
    const fixed = await trellis.call('PATCH', '/integrations/wrong', {
      body: { credentials: { type: 'OAUTH1', client_id: client.key, client_secret: client.secret } },
    });
    assert.equal(fixed.status, 200, fixed.text);
    assert.equal((await begin(token, 'wrong')).status, 302);
  });
});

test('a token that its user has revoked is noticed by the next call, and the connection is connected again', async () => {
  const id = await connected();
  provider.revokeAll();
  const refused = await proxied(id, '/x');
  assert.equal(refused.status, 424);
  assert.equal(((await refused.json()) as { error: { code: string } }).error.code, 'connection_needs_reauth');
  const { status, cause } = await health(id);
  assert.deepEqual([status, cause], ['needs_reauth', 'grant_dead']);

  const session = await trellis.call('POST', '/connect/sessions/reconnect', {
    body: { connection_id: id, integration_id: 'signed' },
  });
  assert.equal(session.status, 201, session.text);
  const { location, cookie } = await begin((session.body.data as { token: string }).token);
  const done = await comeBack(await atProvider(location), cookie);
  assert.equal(done.status, 200, done.page);
  assert.equal((await health(id)).status, 'active');
  assert.equal((await proxied(id, '/x')).status, 200);
});

test('a 401 for one call alone ends nothing', async () => {
  const id = await connected();
  // The provider refuses this form, since its body is not what its type says.
  const answer = await proxied(id, '/x', {
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    method: 'POST',
    body: 'a=%FF',
  });
  await answer.text();
  assert.equal((await health(id)).status, 'active');
});

test('tokens are imported, tried first, with a client of their own if they have one', async () => {
  const { token, secret } = provider.issue();
  const credentials = { type: 'OAUTH1', oauth_token: token, oauth_token_secret: secret };
  const into = (given: object, connection_id = 'imported') =>
    trellis.call('POST', '/connections', {
      body: { provider_config_key: 'signed', connection_id, credentials: given },
    });
  const wrong = await into({ ...credentials, oauth_token_secret: 'wrong' });
  assert.deepEqual([wrong.status, errorOf(wrong).code], [400, 'connection_test_failed'], wrong.text);
  for (const unfit of [
    { oauth_token: token },
    { ...credentials, oauth_token: 'a\nb' },
    { ...credentials, type: 'OAUTH2' },
  ]) {
    const refused = await into(unfit);
    assert.deepEqual([refused.status, errorOf(refused).code], [400, 'invalid_body'], refused.text);
  }
  const made = await into(credentials);
  assert.equal(made.status, 201, made.text);
  assert.equal((await proxied('imported', '/x')).status, 200);
  const own = await into(
    { ...credentials, config_override: { client_id: client.key, client_secret: client.secret } },
    'own',
  );
  assert.equal(own.status, 201, own.text);
  assert.equal((await proxied('own', '/x')).status, 200);
  const { body } = await trellis.call('GET', '/connections/own?provider_config_key=signed');
  assert.deepEqual((body.credentials as { config_override: unknown }).config_override, {
    client_id: client.key,
  });
  const hidden = await trellis.call('GET', '/connections/own?provider_config_key=signed', {
    key: await trellis.keyWith('connections:read'),
  });
  assert.ok(!hidden.text.includes(secret));
});

test('an integration takes the type of its mode, and a form is not one', async () => {
  const refused = await createIntegration('other', client.secret, 'OAUTH2');
  assert.deepEqual([refused.status, errorOf(refused).code], [400, 'invalid_body'], refused.text);
  const google = await trellis.call('POST', '/integrations', {
    body: { provider: 'google-sheet', credentials: { type: 'OAUTH1', client_id: 'a', client_secret: 'b' } },
  });
  assert.equal(google.status, 400, google.text);
});
