import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import type { LiveConnection } from '../../connections/store/reader.ts';
import { AppError } from '../../errors.ts';
import { createLog } from '../../log.ts';
import { createOutbound } from '../../outbound/outbound.ts';
import { bearer, brand, definitionAt, loopbackRanges } from '../../proxy/proxy.fixture.ts';
import { createProxy } from '../../proxy/proxy.ts';
import { createQuota } from '../../proxy/quota/quota.ts';
import { createInnerProxy, type ProxiedCall } from './inner-proxy.ts';

let database: TestDatabase;
before(async () => {
  database = await openTestDatabase();
});
after(() => database.drop());

const user = {
  environmentId: 1,
  environment: 'dev',
  integrationKey: 'google',
  connectionId: 'alice',
  connectionRow: 7,
  priority: 'background' as const,
};

/** The proxy in front of an API that answers so; two reads in 0.6 s where it counts them. */
async function open(t: TestContext, answer: RequestListener, { isCounted = false } = {}) {
  await database.db.query('delete from quota_book');
  const api = createServer(answer).listen(0, '127.0.0.1');
  await once(api, 'listening');
  const limits = [{ name: 'Reads', per: 'owner', counts: 'read', count: 2, window_s: 0.6 }];
  const definition = definitionAt(`http://127.0.0.1:${(api.address() as AddressInfo).port}`, {
    ...(isCounted && { quota: { service: 'api.example', limits } }),
  });
  const integration = {
    key: 'google',
    provider: definition,
    isTest: false,
    integrationConfig: {},
    proxyRules: [],
  };
  const connection = {
    id: 7,
    connectionId: 'alice',
    connectionConfig: {},
    integration,
  } as unknown as LiveConnection;
  const outbound = createOutbound({ allow: [{ addresses: loopbackRanges() }] });
  const quota = createQuota({ db: database.db });
  const proxy = createInnerProxy({
    brand,
    ...(isCounted && { quotaWaitS: 0 }),
    createFront: (authenticate) =>
      createProxy({
        brand,
        authenticate,
        outbound,
        quota,
        isRootAlias: () => false,
        log: createLog({ level: 'silent', format: 'json' }),
        connections: {
          known: () => undefined,
          get: async ({ connectionId }) => {
            if (connectionId !== 'alice') throw new AppError('unknown_connection');
            return { ...connection };
          },
          getIntegration: async () => connection.integration,
        },
        credentials: {
          proven: () => {},
          refused: () => {},
          current: () => undefined,
          fresh: async () => bearer('token-1'),
          renewed: async () => undefined,
        },
      }),
  });
  t.after(async () => {
    proxy.close();
    await quota.stop();
    await outbound.close();
    api.closeAllConnections();
    api.close();
  });
  return (call: Partial<ProxiedCall> = {}, of = user) =>
    proxy.call(of, {
      method: 'GET',
      endpoint: '/a',
      query: '',
      headers: {},
      body: undefined,
      signal: new AbortController().signal,
      ...call,
    });
}

async function textOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  const parts: Uint8Array[] = [];
  for await (const part of body) parts.push(part);
  return Buffer.concat(parts).toString();
}

test("a call goes out as the proxy's do, and whatever the provider answers is an answer", async (t) => {
  const call = await open(t, ({ method, url, headers }, response) => {
    response.writeHead(url === '/missing' ? 404 : 201, { 'x-own': 'é', 'set-cookie': ['a=1', 'b=2'] });
    response.end(JSON.stringify([method, url, headers.authorization, headers['x-mine'], headers.trellis]));
  });
  const made = await call({
    endpoint: '/väter/?x=1',
    query: 'y=%20',
    headers: { 'X-Mine': 'yes', Trellis: 'no' },
  });
  assert.deepEqual([made.status, made.statusText], [201, 'Created']);
  assert.equal(await textOf(made.body), '["GET","/v%C3%A4ter/?x=1&y=%20","Bearer token-1","yes","no"]');
  assert.equal((await call({ endpoint: 'missing' })).status, 404);
});

test('a body of 60 MB streams up and down unchanged, no faster than it is taken', async (t) => {
  const piece = randomBytes(1024 * 1024);
  const taking = Promise.withResolvers<void>();
  const call = await open(t, async (request, response) => {
    await taking.promise;
    request.pipe(response);
  });
  let given = 0;
  async function* body() {
    for (; given < 60; given += 1) yield piece;
  }
  const answering = call({
    method: 'POST',
    body: body(),
    headers: { 'content-type': 'application/octet-stream' },
  });
  await pause(500);
  // Buffers of sockets on the way are some MB.
  assert.ok(given < 30, `${given} MB were taken for an API that reads none`);
  taking.resolve();
  const [hash, expected] = [createHash('sha256'), createHash('sha256')];
  for await (const part of (await answering).body) hash.update(part);
  for (let n = 0; n < 60; n += 1) expected.update(piece);
  assert.equal(hash.digest('hex'), expected.digest('hex'));
});

test('what the proxy itself refuses is thrown with its code', async (t) => {
  const call = await open(t, (_request, response) => void response.end());
  await assert.rejects(call({}, { ...user, connectionId: 'bob' }), { code: 'unknown_connection' });
  await assert.rejects(call({ endpoint: '/a/../b' }), { code: 'invalid_proxy_path' });
  await assert.rejects(call({ baseUrlOverride: 'https://elsewhere.example' }), {
    code: 'base_url_override_not_allowed',
  });
});

test('a quota that is used up is waited for, also with a body, and no longer than the run lasts', async (t) => {
  const bodies: string[] = [];
  const call = await open(
    t,
    async (request, response) => {
      bodies.push(await textOf(request));
      response.end();
    },
    { isCounted: true },
  );
  const post = (text: string, signal?: AbortSignal) =>
    call({
      method: 'GET',
      headers: {},
      ...(signal && { signal }),
      body: (async function* () {
        yield Buffer.from(text);
      })(),
    });
  const answers = await Promise.all(['a', 'b', 'c', 'd', 'e'].map((text) => post(text)));
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
  assert.deepEqual(bodies.toSorted(), ['a', 'b', 'c', 'd', 'e']);
  const ended = new AbortController();
  const waiting = Promise.all(['f', 'g', 'h', 'i', 'j'].map((text) => post(text, ended.signal)));
  ended.abort();
  await assert.rejects(waiting);
});

test('a refusal to a HEAD, which has no body, is thrown with its code', async (t) => {
  const call = await open(t, (_request, response) => void response.end());
  await assert.rejects(call({ method: 'HEAD' }, { ...user, connectionId: 'bob' }), {
    code: 'unknown_connection',
  });
});

test('a connection with the reused ID of another is not called, and each attempt checks again', async (t) => {
  let calls = 0;
  const count: RequestListener = (_request, response) => {
    calls += 1;
    response.end();
  };
  const call = await open(t, count, { isCounted: true });
  await assert.rejects(call({}, { ...user, connectionRow: 8 }), { code: 'unknown_connection' });
  assert.equal(calls, 0);
  await Promise.all([call(), call()]);
  let asked = 0;
  const admit = async () => {
    asked += 1;
    if (asked === 2) throw new AppError('run_lost');
  };
  await assert.rejects(call({ admit }), { code: 'run_lost' });
  assert.deepEqual([calls, asked], [2, 2]);
});
