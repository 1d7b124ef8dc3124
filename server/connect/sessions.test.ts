import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type ConnectBench, openConnectBench, sheetsScope } from './connect.fixture.ts';

let bench: ConnectBench;
before(async () => {
  bench = await openConnectBench();
});
after(() => bench.end());

const user = { end_user: { id: 'u1' } };
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

test('a session has a token of the brand, a link to the connect page, and half an hour', async () => {
  const { status, body } = await bench.call('POST /connect/sessions', user);
  assert.equal(status, 201);
  const { token, connect_link: link, expires_at: expiresAt } = body.data;
  assert.match(token, /^trellis_connect_session_[0-9a-f]{64}$/);
  assert.equal(link, `${bench.baseUrl}/connect/?session_token=${token}`);
  assert.ok(Math.abs(Date.parse(expiresAt) - Date.now() - 30 * 60_000) < 10_000);
});

test('tokens, end users and settings do not lie in the table in plain text', async () => {
  const token = await bench.session({ end_user: { id: 'a-very-private-id' } });
  const [row] = await bench.db.query<{ text: string }>(
    'select c::text as text from connect_session c order by id desc limit 1',
  );
  assert.ok(row && !row.text.includes(token.slice(-64)));
  assert.ok(!Buffer.from(row.text).includes(Buffer.from('a-very-private-id').toString('hex')));
});

/** Each body is refused with 400 `invalid_body` at the path. */
const faults: { title: string; body: unknown; path: string[] }[] = [
  { title: 'neither an end user nor tags', body: {}, path: ['end_user'] },
  { title: 'an end user without an ID', body: { end_user: {} }, path: ['end_user', 'id'] },
  { title: 'an empty ID', body: { end_user: { id: '' } }, path: ['end_user', 'id'] },
  { title: 'an ID of 256 characters', body: { end_user: { id: 'x'.repeat(256) } }, path: ['end_user', 'id'] },
  {
    title: 'a wrong e-mail address',
    body: { end_user: { id: 'u', email: 'x' } },
    path: ['end_user', 'email'],
  },
  {
    title: 'a number as name',
    body: { end_user: { id: 'u', display_name: 1 } },
    path: ['end_user', 'display_name'],
  },
  {
    title: 'an organization without an ID',
    body: { ...user, organization: {} },
    path: ['organization', 'id'],
  },
  { title: 'a tag that is no text', body: { tags: { a: 1 } }, path: ['tags', 'a'] },
  { title: 'a tag key that begins with a digit', body: { tags: { '1a': 'x' } }, path: ['tags', '1a'] },
  ...['overrides', 'integrations_config_defaults'].map((field) => ({
    title: `${field} for 101 integrations`,
    body: { ...user, [field]: Object.fromEntries(Array.from({ length: 101 }, (_, n) => [`k${n}`, {}])) },
    path: [field],
  })),
  {
    title: 'a NUL in the webhook address',
    body: { ...user, webhook_url_override: 'https://example.com/\0' },
    path: ['webhook_url_override'],
  },
  {
    title: 'a lone surrogate in the address of a page',
    body: { ...user, overrides: { sheets: { docs_connect: 'https://example.com/\ud800' } } },
    path: ['overrides', 'sheets', 'docs_connect'],
  },
  {
    title: 'no integrations allowed',
    body: { ...user, allowed_integrations: [] },
    path: ['allowed_integrations'],
  },
  {
    title: 'an unknown integration',
    body: { ...user, allowed_integrations: ['nope'] },
    path: ['allowed_integrations', '0'],
  },
  {
    title: 'defaults of an unknown integration',
    body: { ...user, integrations_config_defaults: { nope: {} } },
    path: ['integrations_config_defaults', 'nope'],
  },
  {
    title: 'an authorization parameter that belongs to the protocol',
    body: {
      ...user,
      integrations_config_defaults: { sheets: { authorization_params: { redirect_uri: 'x' } } },
    },
    path: ['integrations_config_defaults', 'sheets', 'authorization_params', 'redirect_uri'],
  },
  {
    title: 'an authorization parameter with a value that does not fit',
    body: { ...user, integrations_config_defaults: { sheets: { authorization_params: { prompt: 'none' } } } },
    path: ['integrations_config_defaults', 'sheets', 'authorization_params', 'prompt'],
  },
  {
    title: 'a configuration field that the provider does not have',
    body: { ...user, integrations_config_defaults: { sheets: { connection_config: { host: 'x' } } } },
    path: ['integrations_config_defaults', 'sheets', 'connection_config', 'host'],
  },
  {
    title: 'scopes for a provider without any',
    body: { ...user, integrations_config_defaults: { private: { user_scopes: 'a' } } },
    path: ['integrations_config_defaults', 'private', 'user_scopes'],
  },
  {
    title: 'overrides of an unknown integration',
    body: { ...user, overrides: { nope: {} } },
    path: ['overrides', 'nope'],
  },
  {
    title: 'documentation that is no web address',
    body: { ...user, overrides: { sheets: { docs_connect: 'javascript:alert(1)' } } },
    path: ['overrides', 'sheets', 'docs_connect'],
  },
  {
    title: 'a way back that is no web address',
    body: { ...user, return_url: 'javascript:alert(1)' },
    path: ['return_url'],
  },
  {
    title: 'a way back to a page that connects',
    body: () => ({ ...user, return_url: `${bench.baseUrl}/oauth/connect/sheets?connect_session_token=x` }),
    path: ['return_url'],
  },
  {
    title: 'documentation that is a page that connects',
    body: () => ({ ...user, overrides: { sheets: { docs_connect: `${bench.baseUrl}/connect/` } } }),
    path: ['overrides', 'sheets', 'docs_connect'],
  },
  {
    title: 'a webhook address that is none',
    body: { ...user, webhook_url_override: 'ftp://x' },
    path: ['webhook_url_override'],
  },
  {
    title: 'the same account without an e-mail address to compare with',
    body: { ...user, require_same_account: true },
    path: ['require_same_account'],
  },
  { title: 'an unknown field', body: { ...user, colour: 'red' }, path: [] },
];
for (const { title, body, path } of faults) {
  test(`${title} is refused by name`, async () => {
    const given = typeof body === 'function' ? body() : body;
    const answer = await bench.call('POST /connect/sessions', given);
    assert.equal(answer.status, 400, JSON.stringify(answer.body));
    assert.equal(answer.body.error.code, 'invalid_body');
    assert.ok(
      answer.body.error.errors.some((fault: { path: string[] }) => fault.path.join() === path.join()),
      JSON.stringify(answer.body.error.errors),
    );
  });
}

test('tags alone are enough, even none', async () => {
  assert.equal((await bench.call('POST /connect/sessions', { tags: {} })).status, 201);
});

test('a parameter that only repeats a fixed value is accepted', async () => {
  const defaults = { sheets: { authorization_params: { access_type: 'offline', hd: 'example.com' } } };
  const token = await bench.session({ ...user, integrations_config_defaults: defaults });
  const url = new URL(await bench.browser().begin(token));
  assert.equal(url.searchParams.get('hd'), 'example.com');
});

test('reconnecting names a connection of this environment', async () => {
  for (const [field, body] of [
    ['connection_id', { integration_id: 'sheets', connection_id: 'nope' }],
    ['connection_id', { integration_id: 'sheets' }],
    ['integration_id', { connection_id: 'x' }],
    ['', { integration_id: 'sheets', connection_id: 'x', allowed_integrations: ['sheets'] }],
  ] as const) {
    const answer = await bench.call('POST /connect/sessions/reconnect', body);
    assert.equal(answer.status, 400);
    assert.equal(answer.body.error.errors[0].path.join(), field);
  }
});

test('a session shows its end user to its page, and ends when it is deleted', async () => {
  const token = await bench.session({
    end_user: { id: 'u1', email: 'u1@example.com' },
    allowed_integrations: ['sheets'],
  });
  const { status, body } = await bench.call('GET /connect/session', undefined, bearer(token));
  assert.equal(status, 200);
  assert.equal(body.data.endUser.email, 'u1@example.com');
  assert.deepEqual(body.data.allowed_integrations, ['sheets']);
  assert.equal(body.data.isReconnecting, false);
  assert.equal((await bench.call('DELETE /connect/session', undefined, bearer(token))).status, 204);
  const gone = await bench.call('GET /connect/session', undefined, bearer(token));
  assert.equal(gone.status, 401);
  assert.equal(gone.body.error.code, 'unknown_connect_session_token');
});

test('an expired session, a token of another form and a key are refused as sessions', async () => {
  const token = await bench.session();
  await bench.db.query("update connect_session set expires_at = now() - interval '1 s'");
  const codeFor = async (given: string) =>
    (await bench.call('GET /connect/session', undefined, bearer(given))).body.error.code;
  assert.equal(await codeFor(token), 'unknown_connect_session_token');
  assert.equal(await codeFor(`${token}0`), 'invalid_connect_session_token_format');
  assert.equal(await codeFor('some-key-of-an-environment'), 'invalid_connect_session_token_format');
});

test('telemetry is taken with a token and a fitting clock, and refused without', async () => {
  const token = await bench.session();
  const report = { token, event: 'open', timestamp: new Date().toISOString() };
  const codeOf = async (body: unknown) => (await bench.call('POST /connect/telemetry', body)).status;
  assert.equal(await codeOf(report), 204);
  assert.equal(await codeOf({ ...report, token: 'x' }), 401);
  assert.equal(await codeOf({ ...report, timestamp: '2001-01-01T00:00:00Z' }), 400);
});

test('an invalid link of an authorization is refused by a page that names the fault', async () => {
  const token = await bench.session({ ...user, allowed_integrations: ['sheets', 'private'] });
  const open = (path: string) => bench.browser().visit(path);
  await bench.db.query('delete from auth_attempt');
  for (const [path, status, words] of [
    ['/oauth/connect/sheets', 401, /incomplete/],
    [`/oauth/connect/sheets?connect_session_token=${token}0`, 401, /incomplete/],
    [`/oauth/connect/drive?connect_session_token=${token}`, 400, /does not allow/],
    [`/oauth/connect/private?connect_session_token=${token}`, 400, /API_KEY/],
    [`/oauth/connect/sheets?connect_session_token=${token}&connection_id=x`, 400, /connection_id/],
    [
      `/oauth/connect/sheets?connect_session_token=${token}&credentials[oauth_client_id_override]=x`,
      400,
      /credentials/,
    ],
    [`/oauth/connect/sheets?connect_session_token=${token}&params[host]=x`, 400, /params\[host\]/],
    [`/oauth/connect/sheets?connect_session_token=${token}&authorization_params[state]=x`, 400, /state/],
    [`/oauth/connect/sheets?connect_session_token=${token}&authorization_params[prompt]=none`, 400, /prompt/],
    [
      `/oauth/connect/sheets?connect_session_token=${token}&user_scope=https://x/admin`,
      400,
      /more scopes than allowed/,
    ],
  ] as const) {
    const answer = await open(path);
    assert.equal(answer.status, status, path);
    assert.match(answer.headers.get('content-type') ?? '', /^text\/html/);
    assert.match(answer.text, words);
    assert.match(answer.headers.get('content-security-policy') ?? '', /frame-ancestors 'none'/);
    assert.equal(answer.headers.get('x-frame-options'), 'DENY');
    assert.equal(answer.headers.get('referrer-policy'), 'no-referrer');
    assert.equal(answer.headers.get('cache-control'), 'no-store');
  }
  assert.deepEqual(await bench.db.query('select 1 from auth_attempt'), []);
});

test('a browser may request less, and values of the application override those of the browser', async () => {
  const scopeOf = async (token: string, query: string) =>
    new URL(await bench.browser().begin(token, { query })).searchParams.get('scope');
  assert.equal(await scopeOf(await bench.session(), '&user_scope=openid,email'), 'openid email');
  const fixed = {
    sheets: { user_scopes: `openid ${sheetsScope}`, authorization_params: { login_hint: 'a@b.example' } },
  };
  const token = await bench.session({ ...user, integrations_config_defaults: fixed });
  const url = new URL(
    await bench.browser().begin(token, { query: '&user_scope=email&authorization_params[login_hint]=1' }),
  );
  assert.equal(url.searchParams.get('scope'), `openid ${sheetsScope}`);
  assert.equal(url.searchParams.get('login_hint'), 'a@b.example');
});

test('an answer names a hundred faults at most', async () => {
  const keys = (prefix: string) => Array.from({ length: 100 }, (_, n) => `${prefix}${n}`);
  const unknown = await bench.call('POST /connect/sessions', {
    ...user,
    allowed_integrations: keys('a'),
    overrides: Object.fromEntries(keys('b').map((key) => [key, {}])),
  });
  assert.deepEqual([unknown.status, unknown.body.error.errors.length], [400, 100]);
  const overrides = Object.fromEntries(Array.from({ length: 5000 }, (_, n) => [`k${n}`, 'x']));
  const misshapen = await bench.call('POST /connect/sessions', { ...user, overrides });
  assert.deepEqual([misshapen.status, misshapen.body.error.errors.length], [400, 100]);
});
