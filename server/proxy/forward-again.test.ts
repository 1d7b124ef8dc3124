/** An attempt that comes after a wait is checked again: with the caller and the connection as both are then. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { Credentials } from '../auth-modes/modes.ts';
import type { ProxyDeps } from './exchange.ts';
import {
  bearer,
  bytesOf,
  definitionAt,
  type RunningProxy,
  send,
  startHttp,
  startProxy,
} from './proxy.fixture.ts';

const quotaOf = (url: string) => ({
  service: new URL(url).host,
  reads: '^GET ',
  limits: [{ name: 'reads', per: 'owner', counts: 'read', window_s: 60, count: 10 }],
});

type Ways = { quota?: ProxyDeps['quota']; fresh?: () => Promise<Credentials> };

/** A provider that refuses `/retried` and redirects `/led`, each once, and calls `meanwhile` before it does. */
async function startRefusing(
  t: TestContext,
  { meanwhile, ways = {} }: { meanwhile(proxy: RunningProxy): void; ways?: Ways },
) {
  const asked: string[] = [];
  const upstream = await startHttp((request, response) => {
    asked.push(`${request.url} ${request.headers.authorization}`);
    if (asked.length > 1) {
      response.end('arrived');
      return;
    }
    meanwhile(proxy);
    if (request.url === '/led') response.writeHead(302, { location: '/to' }).end();
    else response.writeHead(503, { 'retry-after': '0' }).end();
  });
  const api = { error_format: undefined, redirects: 'same_origin', quota: quotaOf(upstream.url) };
  const proxy: RunningProxy = await startProxy({ definition: definitionAt(upstream.url, api), ...ways });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
  });
  return { proxy, asked };
}

async function told({ url }: RunningProxy, path: string) {
  const answer = await send(`${url}/proxy${path}`, { headers: { retries: '3' } }).answer;
  return {
    status: answer.statusCode,
    marker: answer.headers['x-trellis-error'],
    text: (await bytesOf(answer)).toString(),
  };
}

for (const [what, path] of [
  ['tried again', '/retried'],
  ['redirected', '/led'],
] as const) {
  test(`a call that is ${what} is refused when its key has been revoked meanwhile`, async (t) => {
    const { proxy, asked } = await startRefusing(t, { meanwhile: (running) => running.revoke() });
    const { status, marker } = await told(proxy, path);
    assert.deepEqual([status, marker, asked.length], [401, 'unknown_account', 1]);
  });

  test(`a call that is ${what} is refused when its connection has been deleted meanwhile`, async (t) => {
    const { proxy, asked } = await startRefusing(t, { meanwhile: (running) => running.forget() });
    const { status, marker } = await told(proxy, path);
    assert.deepEqual([status, marker, asked.length], [400, 'unknown_connection', 1]);
  });
}

test('a retried call has the current credentials', async (t) => {
  let token = 'one';
  const { proxy, asked } = await startRefusing(t, {
    meanwhile: () => {
      token = 'two';
    },
    ways: { fresh: async () => bearer(token) },
  });
  assert.equal((await told(proxy, '/retried')).text, 'arrived');
  assert.deepEqual(asked, ['/retried Bearer one', '/retried Bearer two']);
});

test('a redirect that is followed and retried keeps its target', async (t) => {
  const asked: string[] = [];
  const upstream = await startHttp((request, response) => {
    asked.push(request.url ?? '');
    if (request.url === '/led') response.writeHead(302, { location: '/to' }).end();
    else if (asked.length === 2) response.writeHead(503, { 'retry-after': '0' }).end();
    else response.end('arrived');
  });
  const proxy = await startProxy({ definition: definitionAt(upstream.url, { redirects: 'same_origin' }) });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
  });
  assert.equal((await told(proxy, '/led')).text, 'arrived');
  assert.deepEqual(asked, ['/led', '/to', '/to']);
});

for (const [how, change, refusal] of [
  ['its key is revoked', (proxy: RunningProxy) => proxy.revoke(), [401, 'unknown_account']],
  ['its connection is deleted', (proxy: RunningProxy) => proxy.forget(), [400, 'unknown_connection']],
] as const) {
  test(`a call that waits for the quota while ${how} is never sent`, async (t) => {
    const waits = Promise.withResolvers<void>();
    const admitted = Promise.withResolvers<void>();
    let ended = 0;
    const quota = {
      admit() {
        waits.resolve();
        const end = () => {
          ended += 1;
        };
        return {
          ready: admitted.promise,
          waitedMs: 0,
          sent() {},
          end,
          retryAfterS: () => undefined,
          refused() {},
        };
      },
    };
    const { proxy, asked } = await startRefusing(t, { meanwhile() {}, ways: { quota: quota as never } });
    const answer = told(proxy, '/x');
    await waits.promise;
    change(proxy);
    admitted.resolve();
    const { status, marker } = await answer;
    assert.deepEqual([[status, marker], asked], [refusal, []]);
    assert.ok(ended > 0, 'its place is free again');
  });

  test(`a call whose token is renewed while ${how} is not sent again`, async (t) => {
    let requests = 0;
    const upstream = await startHttp((_request, response) => {
      requests += 1;
      response.writeHead(401).end();
    });
    const proxy = await startProxy({ definition: definitionAt(upstream.url, { error_format: undefined }) });
    t.after(async () => {
      await proxy.close();
      await upstream.close();
    });
    const renewal = Promise.withResolvers<Credentials>();
    proxy.renewals.push(renewal.promise);
    const answer = told(proxy, '/x');
    while (proxy.renewedWith.length === 0) await new Promise(setImmediate);
    change(proxy);
    renewal.resolve(bearer('token-2'));
    const { status, marker } = await answer;
    assert.deepEqual([[status, marker], requests], [refusal, 1]);
  });
}
