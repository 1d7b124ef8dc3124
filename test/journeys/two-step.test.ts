// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
import assert from 'node:assert/strict';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Nango } from '@nangohq/node';
import { authModes } from '../../server/auth-modes/modes.ts';
import { loadCatalog, providersDirectory } from '../../server/providers/catalog.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/**
 * The life of a connection whose credentials are exchanged for a token by one request: the form, calls, the token's end,
 * a refresh token that ends, a password that changes, and the form once more. The provider is the sandbox.
 */
const definition = (more: string) => `display_name: Login
categories: [other]
docs: https://example.com/docs
auth_mode: TWO_STEP
logo: private-api-key.svg
integration_config:
  base_url: { title: Base, description: Base address., format: uri }
credentials:
  username: { title: User name, description: Your user name., pattern: '[\\w.-]+', max_length: 200 }
  password: { title: Password, description: Your password., secret: true }
login:
  url: \${integrationConfig.base_url}/login
${more}
api: { base_url: "\${integrationConfig.base_url}" }
`;
const answer = `expires_in: ttl_ms, expires_in_unit: ms, error: errors.0.reason`;
const withRenewal = `  json: { user: { username: "\${credentials.username}", password: "\${credentials.password}" } }
  answer: { token: session.token, refresh_token: session.renew_with, ${answer} }
  renewal:
    url: \${integrationConfig.base_url}/login/renewal
    headers: { Authorization: "Bearer \${credentials.refreshToken}" }`;
const plain = `  form: { username: "\${credentials.username}", password: "\${credentials.password}" }
  answer: { token: session.token, ${answer} }`;

let trellis: TestTrellis;
let another: Awaited<ReturnType<TestTrellis['serveAnother']>>;
let directory: string;
let user: User;
let connectionId: string;
type User = { username: string; password: string };

before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'trellis-test-providers-'));
  await cp(providersDirectory, directory, { recursive: true });
  await writeFile(join(directory, 'login-renewed.yaml'), definition(withRenewal));
  await writeFile(join(directory, 'login-plain.yaml'), definition(plain));
  await writeFile(
    join(directory, 'login-checked.yaml'),
    `${definition(plain)}verification: { path: /v1/userinfo }\n`,
  );
  const catalog = loadCatalog(directory, authModes);
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128' }, { catalog });
  another = await trellis.serveAnother();
  user = await newUser();
  for (const key of ['login-renewed', 'login-plain', 'login-checked']) await integrate(key, key);
});
after(async () => {
  await another.close();
  await trellis.close();
  await rm(directory, { recursive: true });
});

async function integrate(provider: string, unique_key: string, base_url: string = trellis.sandbox.url) {
  const made = await trellis.call('POST', '/integrations', {
    body: { provider, unique_key, integration_config: { base_url } },
  });
  assert.equal(made.status, 200, made.text);
}
async function newUser(): Promise<User> {
  const made = await trellis.control('POST', 'clients', { redirect_uris: ['https://app.example/callback'] });
  trellis.watch.made('password', made.client_secret);
  return { username: String(made.client_id), password: String(made.client_secret) };
}
async function openSession(key: string, more: object = {}) {
  const { body } = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, allowed_integrations: [key], ...more },
  });
  return (body.data as { token: string }).token;
}
const submit = (key: string, token: string, body: object) =>
  trellis.call('POST', `/auth/two-step/${key}?connect_session_token=${token}`, { key: undefined, body });
const errorOf = ({ body }: { body: Record<string, unknown> }) => (body.error as { code: string }).code;
const proxied = (from: Pick<TestTrellis, 'call'> = trellis, key = 'login-renewed', id = connectionId) =>
  from.call('GET', '/proxy/drive/v3/files', { headers: { 'connection-id': id, 'provider-config-key': key } });
const at = (path: string, more = '') =>
  `/connections/${connectionId}${path}?provider_config_key=login-renewed${more}`;
async function asked(of: User) {
  const { refreshes } = (await trellis.control('GET', 'refreshes')) as {
    refreshes: { client_id: string; asked: number; accepted: number; most_at_once: number }[];
  };
  return refreshes.find(({ client_id }) => client_id === of.username)!;
}

test("the page has the definition's fields, and the form makes the connection", async () => {
  const token = await openSession('login-renewed');
  const { body } = await trellis.call('GET', '/connect/session/choices', { key: token });
  const [choice] = (
    body.data as { choices: { form_path: string; fields: { name: string; secret: boolean }[] }[] }
  ).choices;
  assert.equal(choice!.form_path, '/auth/two-step/login-renewed');
  assert.deepEqual(
    choice!.fields.map(({ name, secret }) => [name, secret]),
    [
      ['username', false],
      ['password', true],
    ],
  );
  // Official clients add the type.
  const made = await submit('login-renewed', token, { type: 'TWO_STEP', ...user });
  assert.equal(made.status, 200, made.text);
  connectionId = String(made.body.connectionId);
  assert.equal((await proxied()).status, 200);
  assert.equal((await proxied(another)).status, 200);
  assert.equal((await asked(user)).asked, 1);
});

test('values that do not fit, other fields and a wrong password make nothing', async () => {
  const token = await openSession('login-renewed');
  for (const body of [
    {},
    { username: user.username },
    { ...user, username: `${user.username}\r\nX-Admin: 1` },
    { ...user, username: '${credentials.password}' },
    { ...user, username: 'a'.repeat(201) },
    { ...user, username: '' },
    { ...user, token: 'a-token-of-ones-own' },
    { ...user, expires_at: '2099-01-01T00:00:00Z' },
    { ...user, host: 'evil.example' },
    { ...user, __proto__: null, constructor: 'x' },
    { ...user, type: 'API_KEY', extra: 'x' },
  ]) {
    const refused = await submit('login-renewed', token, body);
    assert.deepEqual([refused.status, errorOf(refused)], [400, 'invalid_body'], refused.text);
    assert.ok(!refused.text.includes(user.password));
  }
  const wrong = await submit('login-renewed', token, { ...user, password: 'not-the-password-at-all' });
  assert.deepEqual([wrong.status, errorOf(wrong)], [400, 'connection_test_failed'], wrong.text);
  assert.match(wrong.text, /refused these credentials \(wrong_credentials\)/);
  assert.ok(!wrong.text.includes('not-the-password'));
  await trellis.control('POST', 'faults', { case: 'token_503' });
  const down = await submit('login-renewed', token, user);
  assert.deepEqual([down.status, errorOf(down)], [400, 'connection_test_failed'], down.text);
  await trellis.control('DELETE', 'faults');
  assert.equal((await trellis.db.query('select from connection')).length, 1);
});

test('the fields and the refresh token are shown only on request, to callers that may read refresh tokens', async () => {
  const { body } = await trellis.call('GET', at(''));
  const shown = body.credentials as Record<string, unknown>;
  assert.deepEqual(Object.keys(shown).sort(), ['expires_at', 'raw', 'token', 'type']);
  assert.ok(!JSON.stringify(shown).includes('renew_with'));
  const whole = await trellis.call('GET', at('', '&refresh_token=true'));
  assert.partialDeepStrictEqual(whole.body.credentials, user);
  for (const scopes of [['connections:read', 'connections:credentials'], ['connections:read']]) {
    const key = await trellis.keyWith(...scopes);
    const { text } = await trellis.call('GET', at('', '&refresh_token=true'), { key });
    assert.ok(!text.includes(user.password));
  }
});

test('twenty calls on two nodes after the token has expired request one new token', async () => {
  await trellis.advance(3601);
  const before = await asked(user);
  const calls = Array.from({ length: 20 }, (_, index) => proxied(index % 2 ? another : trellis));
  const statuses = (await Promise.all(calls)).map(({ status }) => status);
  assert.deepEqual([...new Set(statuses)], [200]);
  const { asked: now, most_at_once: max } = await asked(user);
  assert.deepEqual([now, max], [before.asked + 1, 1]);
});

test('a token that the API refuses is replaced once, and a refresh token that has ended by the password', async () => {
  const before = await asked(user);
  await trellis.control('POST', 'faults', { case: 'access_token_ended', times: 1 });
  assert.equal((await proxied()).status, 200);
  assert.equal((await asked(user)).asked, before.asked + 1);
  await trellis.advance(200 * 24 * 3600);
  const refreshed = await trellis.call('POST', at('/refresh'));
  assert.equal(refreshed.status, 200, refreshed.text);
  // The renewal was refused, and the login accepted.
  assert.equal((await asked(user)).accepted, before.accepted + 2);
  assert.equal((await asked(user)).asked, before.asked + 3);
  assert.equal((await proxied()).status, 200);
});

test('an outage delays, a refused login needs the user, and the form revives the connection', async () => {
  await trellis.advance(3601);
  await trellis.control('POST', 'faults', { case: 'token_503' });
  const down = await proxied();
  assert.deepEqual([down.status, errorOf(down)], [503, 'connection_refresh_failed'], down.text);
  await trellis.control('DELETE', 'faults');
  await trellis.advance(600);
  await trellis.control('POST', 'faults', { case: 'token_wrong_secret', client_id: user.username });
  const dead = await proxied(another);
  assert.deepEqual([dead.status, errorOf(dead)], [424, 'connection_needs_reauth'], dead.text);
  const health = await trellis.call('GET', at('/health'));
  assert.deepEqual([health.body.status, health.body.cause], ['needs_reauth', 'credentials_refused']);
  const before = await asked(user);
  assert.equal((await proxied()).status, 424);
  assert.equal((await asked(user)).asked, before.asked, 'a refused password is not sent again');
  await trellis.control('DELETE', 'faults');
  const { body } = await trellis.call('POST', '/connect/sessions/reconnect', {
    body: { connection_id: connectionId, integration_id: 'login-renewed' },
  });
  const { token } = body.data as { token: string };
  const again = await submit('login-renewed', token, user);
  assert.deepEqual([again.status, again.body.connectionId], [200, connectionId], again.text);
  assert.equal((await proxied()).status, 200);
});

test('twenty forms at once make twenty connections', async () => {
  const made = await Promise.all(
    Array.from({ length: 20 }, async (_, index) =>
      submit('login-plain', await openSession('login-plain', { end_user: { id: `user-${index}` } }), user),
    ),
  );
  assert.deepEqual([...new Set(made.map(({ status }) => status))], [200]);
  const ids = made.map(({ body }) => String(body.connectionId));
  assert.equal(new Set(ids).size, 20);
  assert.equal((await proxied(trellis, 'login-plain', ids[7])).status, 200);
});

test('the connect form reports a wrong address of the integration, and no secret', async () => {
  await integrate('login-plain', 'nowhere', 'http://127.0.0.1:9');
  await integrate('login-plain', 'elsewhere', `${trellis.sandbox.url}/nothing-here`);
  for (const key of ['nowhere', 'elsewhere']) {
    const refused = await submit(key, await openSession(key), user);
    assert.deepEqual([refused.status, errorOf(refused)], [400, 'connection_test_failed'], refused.text);
    assert.ok(!refused.text.includes(user.password));
  }
});

test('an import fetches a token, and the published client reads it', async () => {
  const nango = new Nango({ host: trellis.baseUrl, secretKey: trellis.keys.dev });
  const post = (key: string, credentials: object) =>
    trellis.call('POST', '/connections', {
      body: {
        provider_config_key: key,
        connection_id: 'brought',
        credentials: { type: 'TWO_STEP', ...credentials },
      },
    });
  for (const credentials of [
    {},
    { username: user.username },
    { ...user, pin: '1' },
    { ...user, username: 'a b' },
  ]) {
    const unfit = await post('login-plain', credentials);
    assert.deepEqual([unfit.status, errorOf(unfit)], [400, 'invalid_body'], unfit.text);
  }
  const wrong = await post('login-plain', { ...user, password: 'another-password' });
  assert.deepEqual([wrong.status, errorOf(wrong)], [400, 'connection_test_failed']);
  const stale = await post('login-checked', { ...user, token: 'never-issued-by-anybody' });
  assert.deepEqual([stale.status, errorOf(stale)], [400, 'connection_test_failed']);
  const made = await post('login-plain', user);
  assert.equal(made.status, 201, made.text);
  const { credentials } = await nango.getConnection('login-plain', 'brought');
  assert.ok(credentials.type === 'TWO_STEP' && String(credentials.token).length > 20);
});
