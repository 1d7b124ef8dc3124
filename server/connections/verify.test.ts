import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { shippedCatalog as catalog } from '../../test/support/catalog.ts';
import type { Credentials } from '../auth-modes/modes.ts';
import { AppError } from '../errors.ts';
import type { Integration } from '../integrations/store.ts';
import type { Fetch } from '../outbound/outbound.ts';
import { testFailedError, verify } from './verify.ts';

const seen: { path: string | undefined; headers: IncomingHttpHeaders }[] = [];
let answer: (response: ServerResponse) => void;
const server = createServer((request, response) => {
  seen.push({ path: request.url, headers: request.headers });
  answer(response);
});
let base = '';
before(async () => {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
after(() => {
  server.close();
  server.closeAllConnections();
});

const secret = 'the-secret-of-it';
const of: Record<'API_KEY' | 'OAUTH2_CC' | 'OAUTH2', Credentials> = {
  API_KEY: { type: 'API_KEY', apiKey: secret },
  OAUTH2_CC: { type: 'OAUTH2_CC', token: secret, raw: {} },
  OAUTH2: { type: 'OAUTH2', access_token: secret, raw: {} },
};

/** An integration whose provider has a call that verifies credentials. */
function integrationOf(type: keyof typeof of, path = '/me'): Integration {
  const given = catalog.get(type === 'API_KEY' ? 'private-api-key' : 'private-client-credentials');
  const provider = { ...given, auth_mode: type };
  return {
    provider,
    integrationConfig: { base_url: base, verification_path: path },
  } as unknown as Integration;
}

const judge = (type: keyof typeof of, fetcher: Fetch = fetch) =>
  verify(
    { integration: integrationOf(type), credentials: of[type], connectionConfig: {} },
    { fetch: fetcher },
  );
const status = (code: number, body = '{}', headers: Record<string, string> = {}) => {
  answer = (response) => response.writeHead(code, headers).end(body);
};

for (const [code, ofKey, ofToken] of [
  [200, 'accepted', 'accepted'],
  [204, 'accepted', 'accepted'],
  [302, 'unproven', 'unproven'],
  [401, 'refused', 'refused'],
  // The token lacks a scope, or the API is disabled.
  [403, 'refused', 'unproven'],
  [404, 'unproven', 'unproven'],
  [429, 'unproven', 'unproven'],
  [503, 'unproven', 'unproven'],
] as const) {
  test(`${code}: a key is ${ofKey}, a token ${ofToken}`, async () => {
    status(code, '<html>', { location: 'https://elsewhere.example/login', 'content-type': 'text/html' });
    assert.equal((await judge('API_KEY')).kind, ofKey);
    assert.equal((await judge('OAUTH2_CC')).kind, ofToken);
    assert.equal((await judge('OAUTH2')).kind, ofToken);
  });
}

test('one call is sent to the address of the definition, with credentials placed as by the proxy', async () => {
  status(302, '', { location: `${base}/other` });
  seen.length = 0;
  await judge('API_KEY');
  assert.deepEqual(
    seen.map(({ path, headers }) => [path, headers.authorization]),
    [['/me', `Bearer ${secret}`]],
  );
});

test('a provider that breaks off proves nothing', async () => {
  answer = (response) => response.destroy();
  assert.deepEqual(await judge('API_KEY'), { kind: 'unproven', status: undefined });
});

for (const [name, begin] of [
  ['ends', (response: ServerResponse) => void response.write('{')],
  ['begins', (response: ServerResponse) => response.flushHeaders()],
] as const) {
  test(`an answer whose body never ${name} is judged by its status, and not waited for`, async () => {
    const left = Promise.withResolvers<void>();
    answer = (response) => {
      response.once('close', left.resolve);
      begin(response.writeHead(401, { 'content-length': '10' }));
    };
    assert.deepEqual(await judge('OAUTH2'), { kind: 'refused', status: 401 });
    await left.promise;
  });
}

test('a caller with a short time limit gets an inconclusive result', async () => {
  answer = () => {};
  const tried = { integration: integrationOf('API_KEY'), credentials: of.API_KEY, connectionConfig: {} };
  assert.deepEqual(await verify(tried, { fetch, timeoutMs: 50 }), { kind: 'unproven', status: undefined });
});

test('a forbidden address is no response of the provider', async () => {
  const refused = new AppError('address_not_allowed');
  const guard = () => Promise.reject(new TypeError('fetch failed', { cause: refused }));
  await assert.rejects(judge('API_KEY', guard), refused);
});

test('without a call that tries them nothing is known against credentials, and nothing is sent', async () => {
  seen.length = 0;
  const integration = integrationOf('API_KEY', '');
  const tried = { integration, credentials: of.API_KEY, connectionConfig: {} };
  assert.deepEqual(await verify(tried, { fetch }), { kind: 'accepted' });
  assert.deepEqual(seen, []);
});

test('the report of a refusal contains no secret', () => {
  const integration = integrationOf('API_KEY');
  for (const verdict of [
    { kind: 'refused', status: 401 },
    { kind: 'unproven', status: undefined },
    { kind: 'unproven', status: 500 },
  ] as const) {
    const error = testFailedError(integration, verdict);
    assert.equal(error.code, 'connection_test_failed');
    assert.deepEqual(error.payload, { status: verdict.status ?? null, refused: verdict.kind === 'refused' });
    assert.ok(!error.message.includes(secret));
  }
});
