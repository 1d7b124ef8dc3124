import assert from 'node:assert/strict';
import { test } from 'node:test';
import { brandNames } from '../brand.ts';
import { createLog } from '../log.ts';
import { metricsRoute } from './metrics-route.ts';
import { createBareHttp } from './server.ts';

const text = 'trellis_database_up 1\n';

async function serve(token: string | undefined, baseUrl = 'http://localhost:3003') {
  const config = {
    brand: brandNames('trellis'),
    trustedProxies: ['127.0.0.0/8'],
    baseUrl: 'http://localhost:1',
  };
  const app = await createBareHttp({ config, log: createLog({ level: 'silent', format: 'json' }) });
  metricsRoute(app, {
    token,
    baseUrl,
    read: async () => ({ contentType: 'text/plain; version=0.0.4', text }),
  });
  return async (headers: Record<string, string>, remoteAddress = '127.0.0.1') => {
    const answer = await app.inject({
      method: 'GET',
      url: '/metrics',
      remoteAddress,
      headers: { host: '127.0.0.1:3003', ...headers },
    });
    const { error } = answer.statusCode === 200 ? { error: undefined } : answer.json();
    if (answer.statusCode !== 200) assert.ok(!answer.body.includes('trellis_database_up'));
    return { status: answer.statusCode, code: error?.code, headers: answer.headers, body: answer.body };
  };
}

test('without a token, a public service serves no metrics', async () => {
  const ask = await serve(undefined, 'https://trellis.example.com');
  // As a proxy sends it that sets no header.
  const { status, code } = await ask({}, '127.0.0.1');
  assert.deepEqual([status, code], [403, 'forbidden']);
});

test('without a token, only programs of this machine read the metrics', async () => {
  const ask = await serve(undefined);
  for (const [headers, from] of [
    [{}, '127.0.0.1'],
    [{}, '::1'],
    [{}, '::ffff:127.0.0.1'],
    [{ host: 'localhost:3003' }, '127.0.0.1'],
    [{ host: '[::1]:3003' }, '::1'],
  ] as const) {
    const answer = await ask(headers, from);
    assert.deepEqual([answer.status, answer.body], [200, text], `${JSON.stringify(headers)} ${from}`);
    assert.equal(answer.headers['cache-control'], 'no-store');
  }
  for (const [headers, from] of [
    [{}, '10.0.0.7'],
    [{}, '::ffff:10.0.0.7'],
    // From a proxy on this machine, whose client could be anybody; trusted or not.
    [{ 'x-forwarded-for': '127.0.0.1' }, '127.0.0.1'],
    [{ 'x-forwarded-for': '203.0.113.9' }, '127.0.0.1'],
    [{ 'x-forwarded-proto': 'https' }, '127.0.0.1'],
    [{ forwarded: 'for=127.0.0.1' }, '127.0.0.1'],
    [{ via: '1.1 proxy' }, '127.0.0.1'],
    // A page of the web whose name leads here, and a proxy that says nothing.
    [{ host: 'evil.example.com:3003' }, '127.0.0.1'],
    [{ host: 'trellis.example.com' }, '127.0.0.1'],
    [{ authorization: 'Bearer whatever-this-may-be' }, '10.0.0.7'],
  ] as const) {
    const answer = await ask(headers, from);
    assert.deepEqual([answer.status, answer.code], [403, 'forbidden'], `${JSON.stringify(headers)} ${from}`);
  }
});

test('with a token any client that sends it reads the metrics, also from this machine', async () => {
  const token = 'a-token-of-the-operator';
  const ask = await serve(token);
  const bearer = (given: string) => ({ authorization: `Bearer ${given}` });
  assert.equal((await ask(bearer(token))).status, 200);
  assert.equal((await ask({ ...bearer(token), 'x-forwarded-for': '1.2.3.4' }, '10.0.0.7')).status, 200);
  assert.deepEqual((await ask({})).code, 'missing_auth_header');
  assert.deepEqual((await ask({ authorization: token })).code, 'malformed_auth_header');
  for (const wrong of [`${token}x`, token.slice(1), token.toUpperCase()]) {
    const answer = await ask(bearer(wrong));
    assert.deepEqual([answer.status, answer.code], [401, 'unknown_account'], wrong);
  }
});

test('no page of another origin is let read the metrics', async () => {
  const ask = await serve(undefined);
  const { headers } = await ask({ origin: 'https://evil.example.com' });
  assert.equal(headers['access-control-allow-origin'], undefined);
});
