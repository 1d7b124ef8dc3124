import assert from 'node:assert/strict';
import { type AddressInfo, connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { z } from 'zod';
import { brandNames } from '../brand.ts';
import { AppError } from '../errors.ts';
import { createLog } from '../log.ts';
import type { Caller } from './auth/caller.ts';
import { type App, createHttp } from './server.ts';

const key = 'a-secret-key-of-the-tests';
const caller: Caller = {
  kind: 'key',
  environmentId: 1,
  environment: 'dev',
  keyId: 1,
  scopes: new Set(['records:read']),
};
let app: App;

before(async () => {
  const brand = brandNames('trellis');
  app = await createHttp({
    config: { brand, trustedProxies: [], baseUrl: 'http://localhost:3003' },
    log: createLog({ level: 'silent', format: 'json' }),
    authenticate: {
      async key(secret) {
        if (secret !== key) throw new AppError('unknown_account');
        return caller;
      },
      async session() {
        throw new AppError('unknown_connect_session_token');
      },
    },
    isRootAlias: (path) => path.startsWith('/v4/'),
    interceptor: {
      takes: ({ url }) => url?.startsWith('/proxy/') === true,
      handle: async (request, response) => {
        const body = await text(request);
        response.writeHead(200, { connection: 'close' }).end(`${request.method} ${request.url} ${body}`);
      },
      stopping() {},
      closing() {},
    },
  });
  const byKey = { access: { by: 'key', scope: 'records:read' } } as const;
  app.get('/open', { config: { access: { by: 'anyone' } } }, () => ({ open: true }));
  app.get('/closed', { config: byKey }, () => ({ closed: true }));
  app.get('/scoped', { config: { access: { by: 'key', scope: 'records:write' } } }, () => ({}));
  app.get('/broken', { config: { access: { by: 'anyone' } } }, () => {
    throw new Error('a secret detail');
  });
  app.post(
    '/echo',
    {
      config: { access: { by: 'anyone' } },
      schema: { body: z.strictObject({ list: z.array(z.number()).optional() }) },
    },
    ({ body }) => ({ body }),
  );
  await app.listen({ host: '127.0.0.1', port: 0 });
});
after(() => app.close());

const bearer = { authorization: `Bearer ${key}` };
const bodyOf = (response: { body: string }) =>
  JSON.parse(response.body) as { error: Record<string, unknown> };

describe('the caller of a request', () => {
  const cases: [string, Record<string, string>, number, string][] = [
    ['no header', {}, 401, 'missing_auth_header'],
    ['the bare key', { authorization: key }, 401, 'malformed_auth_header'],
    ['another scheme', { authorization: `Basic ${key}` }, 401, 'malformed_auth_header'],
    ['a wrong key', { authorization: 'Bearer some-other-secret-key' }, 401, 'unknown_account'],
  ];
  for (const [title, headers, status, code] of cases) {
    test(`${title} is ${status} ${code}`, async () => {
      const response = await app.inject({ url: '/closed', headers });
      assert.equal(response.statusCode, status);
      assert.equal(bodyOf(response).error.code, code);
      assert.deepEqual(bodyOf(response).error.payload, {});
    });
  }
  test('a key without the scope is 403, and the error names the scope', async () => {
    const response = await app.inject({ url: '/scoped', headers: bearer });
    assert.equal(response.statusCode, 403);
    assert.match(String(bodyOf(response).error.message), /records:write/);
  });
  test('the right key passes, also with a trailing slash', async () => {
    assert.equal((await app.inject({ url: '/closed/', headers: bearer })).statusCode, 200);
  });
  test('a route that does not say whom it serves is refused at start', async () => {
    const other = await createHttp({
      config: { brand: brandNames('x'), trustedProxies: [], baseUrl: 'http://x' },
      log: createLog({ level: 'silent', format: 'json' }),
      authenticate: { key: async () => caller, session: async () => caller },
      isRootAlias: () => false,
    });
    other.get('/forgotten', {} as never, () => '');
    await assert.rejects(async () => other.ready(), /GET \/forgotten/);
    await other.close();
  });
});

describe('bodies', () => {
  const send = (payload: string | undefined, type?: string) =>
    app.inject({
      method: 'POST',
      url: '/echo',
      ...(payload !== undefined && { payload }),
      headers: type === undefined ? {} : { 'content-type': type },
    });
  test('an empty body under JSON is an empty object', async () => {
    assert.deepEqual(JSON.parse((await send('', 'application/json; charset=utf-8')).body), { body: {} });
  });
  test('another content type, or none, is 415', async () => {
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', undefined]) {
      const response = await send('{}', type);
      assert.equal(response.statusCode, 415, String(type));
      assert.equal(bodyOf(response).error.code, 'invalid_content_type');
    }
  });
  test('broken JSON is 400 invalid_json', async () => {
    for (const text of ['{', '{"__proto__": {}}', 'nope']) {
      const response = await send(text, 'application/json');
      assert.equal(response.statusCode, 400);
      assert.equal(bodyOf(response).error.code, 'invalid_json');
    }
  });
  test('a field that does not fit is named, array indexes as text', async () => {
    const response = await send('{"list": [1, "two"], "more": 1}', 'application/json');
    assert.equal(response.statusCode, 400);
    const { error } = bodyOf(response);
    assert.equal(error.code, 'invalid_body');
    const errors = error.errors as { code: string; path: string[] }[];
    assert.deepEqual(
      errors.map(({ path }) => path),
      [['list', '1'], []],
    );
    assert.equal(errors[1]?.code, 'unrecognized_keys');
  });
  test('a body over the limit is 413', async () => {
    const response = await send(JSON.stringify({ list: Array(400_000).fill(100) }), 'application/json');
    assert.equal(response.statusCode, 413);
  });
});

describe('errors and addresses', () => {
  test('an unknown path is 404 JSON, and the query is not repeated', async () => {
    const response = await app.inject({ url: '/nowhere?secret=1' });
    assert.equal(response.statusCode, 404);
    assert.equal(bodyOf(response).error.code, 'not_found');
    assert.ok(!response.body.includes('secret'));
  });
  test('an unexpected error is bare and carries the request id', async () => {
    const response = await app.inject({ url: '/broken' });
    assert.equal(response.statusCode, 500);
    assert.ok(!response.body.includes('a secret detail'));
    assert.ok(response.body.includes(String(response.headers['x-request-id'])));
  });
  test('an unreadable address is 400 JSON', async () => {
    const response = await app.inject({ url: '/%zz' });
    assert.equal(response.statusCode, 400);
    assert.equal(bodyOf(response).error.code, 'invalid_uri_params');
  });
  test('requests reach the interceptor as they were sent, whatever the router accepts', async () => {
    const { port } = app.server.address() as AddressInfo;
    const url = "/proxy/v4/a%2Fb/values/'S'!A1:append?ranges=1&ranges=%zz";
    const socket = connect(port, '127.0.0.1');
    socket.end(
      `PURGE ${url} HTTP/1.1\r\nHost: x\r\nContent-Type: not a type\r\nContent-Length: 3\r\n\r\n{{{`,
    );
    const [, seen] = /(PURGE .*)\r\n/.exec(await text(socket)) ?? [];
    assert.equal(seen, `PURGE ${url} {{{`);
  });
  test('a path of a provider that the interceptor does not handle is 404, and the error names the missing headers', async () => {
    const lost = await app.inject({ url: '/v4/spreadsheets/1' });
    assert.equal(lost.statusCode, 404);
    assert.match(lost.body, /Connection-Id and Integration-Id/);
  });
  test('a preflight is answered for any origin, without credentials', async () => {
    const response = await app.inject({
      method: 'OPTIONS',
      url: '/closed',
      headers: {
        origin: 'https://a.example',
        'access-control-request-method': 'PATCH',
        'access-control-request-headers': 'authorization',
      },
    });
    assert.equal(response.statusCode, 204);
    assert.equal(response.headers['access-control-allow-origin'], '*');
    assert.equal(response.headers['access-control-allow-headers'], 'authorization');
    assert.equal(response.headers['access-control-allow-credentials'], undefined);
  });
});
