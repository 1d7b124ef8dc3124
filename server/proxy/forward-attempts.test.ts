import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import type { Credentials } from '../auth-modes/modes.ts';
import type { ObservedAnswer } from '../connections/health/observe.ts';
import type { Integration } from '../integrations/store.ts';
import { createOutbound } from '../outbound/outbound.ts';
import {
  bytesOf,
  definitionAt,
  loopbackRanges,
  proxyTo,
  type RunningProxy,
  send,
  startHttp,
  startProxy,
} from './proxy.fixture.ts';

/** A provider that redirects `/from` and records the requested paths. */
async function startRedirecting(t: TestContext, location: (url: string) => string, status = 302) {
  const asked: string[] = [];
  const upstream = await startHttp((request, response) => {
    asked.push(`${request.method} ${request.url} ${request.headers.authorization}`);
    if (request.url?.startsWith('/from'))
      response.writeHead(status, { location: location(upstream.url) }).end();
    else response.end('arrived');
  });
  const proxy = await proxyTo(t, upstream, { redirects: 'same_origin' });
  return { proxy, asked };
}

async function ask({ url }: RunningProxy, path: string, init: Parameters<typeof send>[1] = {}) {
  const answer = await send(url + path, init).answer;
  return { status: answer.statusCode, headers: answer.headers, text: (await bytesOf(answer)).toString() };
}

for (const [how, location] of [
  ['a path', () => '/to?a=%2F'],
  ['a relative path', () => 'to?a=%2F'],
  ['a whole address', (url: string) => `${url}/to?a=%2F`],
] as const) {
  test(`a redirect to ${how} of the same origin is followed if the definition allows it`, async (t) => {
    const { proxy, asked } = await startRedirecting(t, location);
    const { status, text } = await ask(proxy, '/proxy/from');
    assert.deepEqual([status, text], [200, 'arrived']);
    assert.deepEqual(asked, ['GET /from Bearer token-1', 'GET /to?a=%2F Bearer token-1']);
  });
}

test('a redirect to another origin is the caller’s: no credentials go there', async (t) => {
  const other: (string | undefined)[] = [];
  const elsewhere = await startHttp((request, response) => {
    other.push(request.url);
    response.end();
  });
  t.after(() => elsewhere.close());
  for (const location of [`${elsewhere.url}/x`, `//${new URL(elsewhere.url).host}/x`]) {
    const { proxy, asked } = await startRedirecting(t, () => location);
    const { status, headers } = await ask(proxy, '/proxy/from');
    assert.deepEqual([status, headers.location, asked.length], [302, `${elsewhere.url}/x`, 1]);
  }
  assert.deepEqual(other, []);
});

test('a redirect of a call with a body, and one that never ends, are relayed', async (t) => {
  const post = await startRedirecting(t, () => '/to', 307);
  const answer = await ask(post.proxy, '/proxy/from', { method: 'POST', body: Buffer.from('{}') });
  assert.deepEqual([answer.status, post.asked.length], [307, 1]);
  const endless = await startRedirecting(t, () => '/from');
  assert.equal((await ask(endless.proxy, '/proxy/from')).status, 302);
  assert.equal(endless.asked.length, 6);
});

test('a provider without a connection in time is a 504, and nothing was sent', async (t) => {
  // A name that is never resolved stands for a host that never answers.
  const outbound = createOutbound({ allow: [{ addresses: loopbackRanges() }], resolve: () => {} });
  const timeouts = { connect_ms: 150 };
  const definition = definitionAt('https://silent.example', { timeouts, error_format: undefined });
  const proxy = await startProxy({ definition, outbound });
  t.after(() => proxy.close());
  for (const init of [{}, { method: 'POST', body: Buffer.from('{}') }]) {
    const { status, headers, text } = await ask(proxy, '/proxy/x', init);
    assert.deepEqual([status, headers['x-trellis-error']], [504, 'upstream_timeout']);
    assert.doesNotMatch(text, /outcome is unknown/);
  }
});

test("the definition's time for a whole call applies if the caller sets none", async (t) => {
  const upstream = await startHttp(() => {});
  const proxy = await proxyTo(t, upstream, { timeouts: { total_ms: 150 } });
  assert.equal((await ask(proxy, '/proxy/x')).status, 504);
});

test('refusals are shown to the observer after the reply, decoded, the first 16 KB', async (t) => {
  const large = JSON.stringify({ error: { message: 'm'.repeat(40_000) } });
  const upstream = await startHttp((request, response) => {
    if (request.url === '/fine') response.end('fine');
    else response.writeHead(403, { 'content-encoding': 'gzip', 'x-a': '1' }).end(gzipSync(large));
  });
  const seen: ObservedAnswer[] = [];
  const reported = Promise.withResolvers<void>();
  const proxy = await startProxy({
    definition: definitionAt(upstream.url),
    observer: {
      observe: (_connection, answer) => {
        seen.push(answer);
        reported.resolve();
      },
    },
  });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
  });
  assert.equal((await ask(proxy, '/proxy/fine')).status, 200);
  const answer = await send(`${proxy.url}/proxy/denied?x=1`).answer;
  assert.deepEqual(await bytesOf(answer), gzipSync(large));
  await reported.promise;
  assert.equal(seen.length, 1);
  assert.deepEqual(
    [seen[0]?.url, seen[0]?.status, seen[0]?.headers['x-a']],
    [`${upstream.url}/denied?x=1`, 403, '1'],
  );
  assert.equal(seen[0]?.body.toString(), large.slice(0, 16 * 1024));
});

test('a success is shown to the observer while the API counts as disabled', async (t) => {
  const upstream = await startHttp((_request, response) => response.end('fine'));
  const seen: number[] = [];
  const proxy = await startProxy({
    definition: definitionAt(upstream.url),
    observer: { observe: (_connection, { status }) => seen.push(status) },
    fault: { cause: 'api_disabled' } as Integration['fault'],
  });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
  });
  assert.equal((await ask(proxy, '/proxy/fine')).status, 200);
  assert.deepEqual(seen, [200]);
});

test('a redirect is followed to the very path that it names', async (t) => {
  const { proxy, asked } = await startRedirecting(t, () => '/proxy/to');
  assert.equal((await ask(proxy, '/proxy/from')).text, 'arrived');
  assert.deepEqual(asked, ['GET /from Bearer token-1', 'GET /proxy/to Bearer token-1']);
});

test('a redirect to a path that could lead elsewhere is the answer', async (t) => {
  for (const location of ['/x/%2e%2e%2fy', '//x/..%2f']) {
    const { proxy, asked } = await startRedirecting(t, (url) => url + location);
    const { status, headers } = await ask(proxy, '/proxy/from');
    assert.deepEqual([status, headers['x-trellis-error'], asked.length], [302, undefined, 1], location);
  }
});

test('the time for the whole call counts from its arrival, the wait for credentials included', async () => {
  let asked = 0;
  const upstream = await startHttp((_request, response) => {
    asked += 1;
    response.end();
  });
  const never = Promise.withResolvers<Credentials>();
  for (const [api, headers] of [
    [{}, { timeouts: 'total=0.15' }],
    [{ timeouts: { total_ms: 150 } }, {}],
  ] as const) {
    const definition = definitionAt(upstream.url, { error_format: undefined, ...api });
    const proxy = await startProxy({ definition, fresh: () => never.promise });
    const { status, headers: reported } = await ask(proxy, '/proxy/x', { headers });
    assert.deepEqual([status, reported['x-trellis-error'], asked], [504, 'upstream_timeout', 0]);
    await proxy.close();
  }
  await upstream.close();
});

test('a POST that was refused before its time was over is not of unknown outcome', async (t) => {
  const upstream = await startHttp((_request, response) => response.writeHead(401).end());
  const proxy = await proxyTo(t, upstream, { error_format: undefined });
  proxy.renewals.push(new Promise(() => {}));
  const headers = { timeouts: 'total=0.2' };
  const answer = await ask(proxy, '/proxy/x', { method: 'POST', headers, body: Buffer.from('{}') });
  assert.deepEqual([answer.status, answer.headers['x-trellis-error']], [504, 'upstream_timeout']);
  assert.doesNotMatch(answer.text, /unknown/);
});
