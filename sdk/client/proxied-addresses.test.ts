import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type ClientBench, openClientBench, respond, startServer } from './client.fixture.ts';
import { Trellis, type TrellisOptions } from './index.ts';

const whole = 'https://sheets.googleapis.com/v4/spreadsheets/nosuch/values/cities';
const path = '/v4/spreadsheets/nosuch/values/cities';
let bench: ClientBench;
before(async () => {
  bench = await openClientBench();
});
after(() => bench.close());

/** A client, and what it asks. */
function counted(options: Partial<TrellisOptions> = {}, hold?: (url: string, init?: RequestInit) => boolean) {
  const requests: string[] = [];
  const client = bench.open({
    ...options,
    fetch: (input, init) => {
      requests.push(new URL(String(input)).pathname);
      if (!hold?.(String(input), init)) return fetch(input, init);
      return new Promise((_, reject) => {
        init?.signal?.addEventListener('abort', () => reject(init.signal?.reason));
      });
    },
  });
  return { client, requests };
}

test('a complete URL that the service refuses gets the same response as a path', async () => {
  const wrong = bench.open({ key: `trs_dev_${'x'.repeat(32)}` });
  for (const [handle, status] of [
    [bench.client.connection('nope', bench.connectionId), undefined],
    [wrong.connection(bench.integration, bench.connectionId), 401],
    [bench.client.connection(bench.integration, 'nobody'), undefined],
  ] as const) {
    const [one, other] = [await handle.fetch(path), await handle.fetch(whole)];
    assert.ok(one.status >= 400);
    assert.equal(one.status, status ?? one.status);
    const code = (await handle.errorOf(one))?.code;
    assert.notEqual(code, undefined);
    assert.deepEqual([other.status, (await handle.errorOf(other))?.code], [one.status, code]);
    assert.deepEqual(await other.json(), await one.json());
  }
});

test('an unreachable service is a TypeError for paths and complete URLs', async () => {
  const away = new Trellis({ url: 'http://127.0.0.1:9', key: 'k', retries: 0 }).connection('i', 'c');
  for (const address of [path, whole]) await assert.rejects(away.fetch(address), { name: 'TypeError' });
});

test('the base URL of a provider is requested once for all handles', async () => {
  const { client, requests } = counted();
  const ask = async () =>
    (await client.connection(bench.integration, bench.connectionId).fetch(whole)).body?.cancel();
  await Promise.all([ask(), ask(), ask()]);
  await ask();
  assert.equal(requests.filter((one) => one.startsWith('/integrations/')).length, 1);
  assert.equal(requests.filter((one) => one.startsWith('/proxy/')).length, 4);
});

test('an abort ends the request for a base URL, unless other calls wait for it', async () => {
  let signal: AbortSignal | null | undefined;
  const { client, requests } = counted({}, (url, init) => {
    if (!url.includes('/integrations/') || signal !== undefined) return false;
    signal = init?.signal;
    return true;
  });
  const { fetch: ask } = client.connection(bench.integration, bench.connectionId);
  const stops = [new AbortController(), new AbortController()];
  const calls = stops.map(({ signal: one }, at) =>
    assert.rejects(ask(at === 0 ? whole : new Request(whole, { signal: one }), { signal: one }), /enough/),
  );
  while (signal === undefined) await new Promise((resolve) => setImmediate(resolve));
  stops[0]!.abort(new Error('enough'));
  await calls[0];
  assert.equal(signal?.aborted, false);
  stops[1]!.abort(new Error('enough'));
  await calls[1];
  assert.equal(signal?.aborted, true);
  await assert.rejects(ask(whole, { signal: AbortSignal.abort(new Error('enough')) }), /enough/);
  assert.equal(requests.length, 1);
  assert.equal((await ask(whole)).status, 404);
});

test('dot segments are also refused in a complete URL', async () => {
  const { client, requests } = counted();
  const { fetch: ask } = client.connection(bench.integration, bench.connectionId);
  const origin = 'https://sheets.googleapis.com';
  for (const behind of ['/v4/../x', '/v4/%2e%2E/x', '/v4\\..\\x', '/v4/..', '/v4/./x?a', '/.\t./x'])
    await assert.rejects(ask(origin + behind), { name: 'TypeError', message: /dot segments/ }, behind);
  assert.deepEqual(requests, []);
  await ask(`${whole}..x?at=/../x#/../x`);
  assert.equal(requests.at(-1), `/proxy${path}..x`);
  await ask(new URL(`${origin}/v4/..${path}`));
  assert.equal(requests.at(-1), `/proxy${path}`);
});

test('undefined options do not override those of a Request', async () => {
  const said: (string | undefined)[] = [];
  const service = await startServer((request, response) => {
    said.push(request.method);
    respond(response, { body: {} });
  });
  try {
    const { fetch: ask } = new Trellis({ url: service.url, key: 'k' }).connection('i', 'c', {
      baseUrl: 'https://sheets.googleapis.com',
    });
    const request = () => new Request(whole, { method: 'POST', body: 'x' });
    const nothing = { method: undefined, headers: undefined, body: undefined, signal: undefined };
    await ask(request(), nothing as unknown as RequestInit);
    assert.deepEqual(said, ['POST']);
  } finally {
    await service.close();
  }
});
