// Slow: one of its functions runs in a process of its own.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { actionCode, deployBody, flowConfig } from '../support/functions.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/** What makes a connection healthy whose credentials were imported without a test. */
const key = crypto.randomUUID();
/** Answers each path `/<status>` to the right key, and 401 to others; a preflight's method needs no key. */
const api = createServer(({ headers, method, url = '' }, response) => {
  const isKnown = headers.authorization === `Bearer ${key}` || method === 'OPTIONS';
  const status = Number(url.split('/').at(-1));
  if (status === 302) response.setHeader('location', '/sign-in/200');
  response.writeHead(isKnown ? status : 401).end();
});
let trellis: TestTrellis;
let another: Awaited<ReturnType<TestTrellis['serveAnother']>>;
before(async () => {
  await once(api.listen(0, '0.0.0.0'), 'listening');
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' });
  another = await trellis.serveAnother();
  const { port } = api.address() as AddressInfo;
  const made = await trellis.call('POST', '/integrations', {
    body: {
      provider: 'private-api-key',
      unique_key: 'api',
      integration_config: {
        base_url: `http://127.0.0.1:${port}`,
        allowed_base_urls: `http://127.0.0.2:${port}`,
      },
    },
  });
  assert.equal(made.status, 200, made.text);
});
after(async () => {
  api.closeAllConnections();
  api.close();
  await another.close();
  await trellis.close();
});

type Node = Pick<TestTrellis, 'call'>;
async function imported(id: string, apiKey = key): Promise<void> {
  const credentials = { type: 'API_KEY', apiKey };
  const body = { provider_config_key: 'api', connection_id: id, credentials };
  const made = await trellis.call('POST', '/connections', { body });
  assert.equal(made.status, 201, made.text);
}
async function proxied(
  id: string,
  { status = 200, method = 'GET', from = trellis as Node, more = {}, isElsewhere = false } = {},
) {
  const { port } = api.address() as AddressInfo;
  const headers = {
    'provider-config-key': 'api',
    'connection-id': id,
    ...(isElsewhere && { 'base-url-override': `http://127.0.0.2:${port}` }),
    ...more,
  };
  return (await from.call(method, `/proxy/${status}`, { headers })).status;
}
async function listed(id: string) {
  const { body } = await trellis.call('GET', `/connections?connectionId=${id}`);
  return (body.connections as { last_used_at: string | null; health: { state: string } }[])[0]!;
}
const stateOf = async (id: string) => (await listed(id)).health.state;
/** The state once the use is stored; a proof is stored with it. */
async function stateAfterUse(id: string): Promise<string> {
  for (;;) {
    const { last_used_at, health } = await listed(id);
    if (last_used_at !== null) return health.state;
    await sleep(20);
  }
}

test('a call that the provider accepts makes a connection healthy', async () => {
  await imported('accepted');
  assert.equal(await stateOf('accepted'), 'unverified');
  assert.equal(await proxied('accepted'), 200);
  assert.equal(await stateAfterUse('accepted'), 'healthy');
  const counts = await trellis.call('GET', '/connections?state=healthy&count=true');
  assert.equal(counts.body.total, 1);
});

test("a call to the provider's address by an override proves the credentials, too", async () => {
  await imported('overridden');
  const { port } = api.address() as AddressInfo;
  const more = { 'base-url-override': `http://127.0.0.1:${port}` };
  assert.equal(await proxied('overridden', { more }), 200);
  assert.equal(await stateAfterUse('overridden'), 'healthy');
});

test('a response from the cache of the caller proves the credentials, too', async () => {
  await imported('cached');
  assert.equal(await proxied('cached', { status: 304 }), 304);
  assert.equal(await stateAfterUse('cached'), 'healthy');
});

for (const [what, id, asked, expected] of [
  ['is refused before it is sent', 'refused', { more: { 'base-url-override': 'https://x.example' } }, 400],
  ['the provider answers with 401', 'wrong-key', {}, 401],
  ['the provider forbids', 'forbidden', { status: 403 }, 403],
  ['the provider does not know', 'unknown', { status: 404 }, 404],
  ['the provider cannot answer', 'broken', { status: 503 }, 503],
  ['needs no credentials', 'preflight', { method: 'OPTIONS' }, 200],
  ['goes to another allowed host', 'elsewhere', { isElsewhere: true }, 200],
] as const) {
  test(`a call that ${what} leaves a connection unverified`, async () => {
    await imported(id, id === 'wrong-key' ? crypto.randomUUID() : key);
    for (let call = 0; call < 3; call += 1) assert.equal(await proxied(id, asked), expected);
    assert.equal(await stateAfterUse(id), 'unverified');
  });
}

test('credentials that the application or a function reads leave a connection unverified', async () => {
  await imported('read');
  const read = await trellis.call('GET', '/connections/read?provider_config_key=api');
  assert.deepEqual((read.body.credentials as { apiKey: string }).apiKey, key);
  assert.equal(await stateAfterUse('read'), 'unverified');

  await imported('read-by-function');
  const code = actionCode({
    more: `input: z.any(), output: z.any(), exec: async (nango) => {
      const { credentials } = await nango.getConnection();
      return { isRead: credentials.apiKey.length > 0 };
    },`,
  });
  const config = flowConfig({ name: 'reads', code, integration: 'api' });
  assert.equal((await trellis.call('POST', '/sync/deploy', { body: deployBody([config]) })).status, 200);
  const headers = { 'provider-config-key': 'api', 'connection-id': 'read-by-function' };
  const answer = await trellis.call('POST', '/action/trigger', { headers, body: { action_name: 'reads' } });
  assert.deepEqual(answer.body, { isRead: true }, answer.text);
  assert.equal(await stateAfterUse('read-by-function'), 'unverified');
});

test('twenty calls at once on two nodes make a connection healthy', async () => {
  await imported('busy');
  const calls = Array.from({ length: 20 }, (_, n) =>
    proxied('busy', { from: n % 2 === 0 ? trellis : another }),
  );
  assert.deepEqual(new Set(await Promise.all(calls)), new Set([200]));
  assert.equal(await stateAfterUse('busy'), 'healthy');
});

test('a connection that is imported once more is unverified until the next accepted call on any node', async () => {
  await imported('again');
  await proxied('again');
  assert.equal(await stateAfterUse('again'), 'healthy');
  // The other node has the connection in its cache, with the former credentials.
  await proxied('again', { from: another });
  await imported('again');
  assert.equal(await stateOf('again'), 'unverified');
  for (;;) {
    assert.equal(await proxied('again', { from: another }), 200);
    if ((await stateOf('again')) === 'healthy') break;
    await sleep(50);
  }
});

test('a 401 to a key makes its connection unverified, until the next accepted call on any node', async () => {
  await imported('revoked');
  const until = async (state: string, step?: () => Promise<number>) => {
    for (; (await stateOf('revoked')) !== state; await sleep(20)) await step?.();
  };
  await until('healthy', () => proxied('revoked'));
  // The other node has the connection in its cache.
  await proxied('revoked', { from: another });
  assert.equal(await proxied('revoked', { status: 401 }), 401);
  await until('unverified');
  await until('healthy', () => proxied('revoked', { from: another }));

  for (const asked of [
    { status: 403 },
    { status: 404 },
    { status: 401, method: 'OPTIONS' },
    { status: 401, isElsewhere: true },
  ])
    assert.equal(await proxied('revoked', asked), asked.status);
  assert.equal(await proxied('revoked', { status: 204 }), 204);
  assert.equal(await stateOf('revoked'), 'healthy');
});
