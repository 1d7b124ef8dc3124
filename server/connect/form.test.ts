import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { findConnection } from '../connections/store/store.ts';
import { type ConnectBench, openConnectBench } from './connect.fixture.ts';

let bench: ConnectBench;
before(async () => {
  bench = await openConnectBench();
});
after(() => bench.end());
beforeEach(async () => {
  await bench.db.query('delete from event');
  await bench.db.query('delete from connection');
});

const submit = async (route: string, body?: unknown, { token = '', query = '' } = {}) =>
  bench.call(`POST ${route}?connect_session_token=${token || (await bench.session())}${query}`, body);

test('a key that the provider accepts makes a connection', async () => {
  const { status, body, headers } = await submit('/api-auth/api-key/private', { apiKey: 'right' });
  assert.equal(status, 200, JSON.stringify(body));
  const [row] = await bench.connections();
  assert.deepEqual(body, {
    integration_id: 'private',
    providerConfigKey: 'private',
    connection_id: row?.connection_id,
    connectionId: row?.connection_id,
  });
  assert.deepEqual(await bench.events(), ['connection.created']);
  assert.equal(headers.get('cache-control'), 'no-store');
});

test('a key that the provider refuses makes nothing, and the session can be tried again', async () => {
  const token = await bench.session();
  const refused = await submit('/api-auth/api-key/private', { apiKey: 'wrong' }, { token });
  assert.equal(refused.status, 400);
  assert.equal(refused.body.error.code, 'connection_test_failed');
  assert.deepEqual(refused.body.error.payload, { status: 401, refused: true });
  assert.ok(!JSON.stringify(refused.body).includes('wrong'));
  assert.deepEqual(await bench.connections(), []);
  assert.equal((await submit('/api-auth/api-key/private', { apiKey: 'right' }, { token })).status, 200);
});

test('a provider that does not answer proves nothing', async () => {
  await bench.addIntegration('silent', 'private-api-key', {
    integrationConfig: { base_url: 'http://127.0.0.1:9', verification_path: '/me' },
  });
  const { status, body } = await submit('/api-auth/api-key/silent', { apiKey: 'right' });
  assert.equal(status, 400);
  assert.equal(body.error.code, 'connection_test_failed');
  assert.match(body.error.message, /did not answer/);
  assert.deepEqual(body.error.payload, { status: null, refused: false });
});

test('once a browser has begun at a provider, a form is taken from that browser alone', async () => {
  const token = await bench.session();
  const browser = bench.browser();
  await browser.begin(token);
  const route = `POST /api-auth/api-key/private?connect_session_token=${token}`;
  const stranger = await bench.call(route, { apiKey: 'right' });
  assert.deepEqual([stranger.status, stranger.body.error.code], [400, 'session_in_other_browser']);
  const other = bench.browser();
  await other.begin(await bench.session());
  const withCookies = (cookie: string) => bench.call(route, { apiKey: 'right' }, { cookie });
  assert.equal((await withCookies(other.jar.headerFor(bench.baseUrl))).status, 400);
  assert.deepEqual(await bench.connections(), []);
  assert.equal((await withCookies(browser.jar.headerFor(bench.baseUrl))).status, 200);
});

test('a session makes one connection, also with twenty calls at once', async () => {
  const token = await bench.session();
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => submit('/api-auth/api-key/private', { apiKey: 'right' }, { token })),
  );
  assert.deepEqual([...new Set(answers.map(({ status }) => status))].sort(), [200, 401]);
  assert.equal(answers.filter(({ status }) => status === 200).length, 1);
  assert.equal((await bench.connections()).length, 1);
});

test('a user name and a password are tried at the address that the form gives', async () => {
  const query = `&params[base_url]=${encodeURIComponent(bench.apiUrl)}`;
  const token = await bench.session();
  const tryWith = (password: string, at = query) =>
    submit('/api-auth/basic/own', { username: 'ada', password }, { token, query: at });
  assert.equal((await tryWith('wrong')).body.error.code, 'connection_test_failed');
  const without = await tryWith('right', '');
  assert.deepEqual(without.body.error.errors[0].path, ['params[base_url]']);
  assert.equal((await tryWith('right')).status, 200);
  const [row] = await bench.connections();
  const connection = await findConnection(bench.db, {
    environmentId: bench.environment.id,
    integrationKey: 'own',
    connectionId: row?.connection_id ?? '',
    vault: bench.reading.vault,
  });
  assert.deepEqual(connection?.connectionConfig, { base_url: bench.apiUrl });
  assert.deepEqual(connection?.credentials, { type: 'BASIC', username: 'ada', password: 'right' });
});

test('what the application fixed for a connection wins over the browser', async () => {
  const defaults = { own: { connection_config: { base_url: bench.apiUrl } } };
  const token = await bench.session({ tags: {}, integrations_config_defaults: defaults });
  const query = '&params[base_url]=http://127.0.0.1:9&params[webhook_url]=http://127.0.0.1:9';
  const { status } = await submit(
    '/api-auth/basic/own',
    { username: 'ada', password: 'right' },
    { token, query },
  );
  assert.equal(status, 200);
});

test('an open API is connected by a click, with or without a body', async () => {
  assert.equal((await submit('/auth/unauthenticated/open')).status, 200);
  assert.equal((await submit('/auth/unauthenticated/open', {})).status, 200);
});

test('an invalid field is refused by name', async () => {
  const only = await bench.session({ tags: {}, allowed_integrations: ['open'] });
  for (const [answer, code, field] of [
    [await submit('/api-auth/api-key/private', {}), 'invalid_body', 'apiKey'],
    [await submit('/api-auth/api-key/private', { apiKey: '' }), 'invalid_body', 'apiKey'],
    [await submit('/api-auth/api-key/private', { apiKey: 'x'.repeat(1025) }), 'invalid_body', 'apiKey'],
    [await submit('/api-auth/api-key/private', { apiKey: 'a\nb' }), 'invalid_body', 'apiKey'],
    [await submit('/api-auth/api-key/private', { apiKey: 'a', more: 1 }), 'invalid_body', ''],
    [await submit('/api-auth/basic/private', { username: 'a' }), 'invalid_body', 'password'],
    [await submit('/auth/unauthenticated/open', { more: 1 }), 'invalid_body', ''],
    [
      await submit('/auth/unauthenticated/open', {}, { query: '&params[x]=1' }),
      'invalid_query_params',
      'params[x]',
    ],
    [
      await submit('/auth/unauthenticated/open', {}, { query: '&public_key=1' }),
      'invalid_query_params',
      'public_key',
    ],
    [await submit('/auth/unauthenticated/private', {}), 'invalid_auth_mode', undefined],
    [await submit('/auth/unauthenticated/nope', {}), 'unknown_provider_config', undefined],
    [
      await submit('/api-auth/api-key/private', { apiKey: 'x' }, { token: only }),
      'integration_not_allowed',
      undefined,
    ],
    [
      await submit('/auth/unauthenticated/open', {}, { token: 'x' }),
      'invalid_connect_session_token_format',
      undefined,
    ],
  ] as const) {
    assert.equal(answer.body.error?.code, code, JSON.stringify(answer.body));
    assert.equal(answer.body.error.errors?.[0].path.join(), field, JSON.stringify(answer.body));
  }
  assert.deepEqual(await bench.connections(), []);
});

test('reconnecting with a new key keeps the connection', async () => {
  const { body } = await submit('/api-auth/api-key/private', { apiKey: 'right' });
  const token = await bench.reconnectSession(body.connectionId, { integration_id: 'private' });
  const again = await submit('/api-auth/api-key/private', { apiKey: 'right' }, { token });
  assert.deepEqual(again.body, body);
  assert.deepEqual(await bench.events(), ['connection.created', 'connection.reconnected']);
});
