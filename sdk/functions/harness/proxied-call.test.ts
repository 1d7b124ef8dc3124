import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ProxyConfiguration, ProxyError } from '../http.ts';
import { proxiedCall } from './proxied-call.ts';
import type { Service } from './service.ts';

/** A service that answers all alike, and what reached it. */
function serviceOf(status: number, body: string | Buffer = '') {
  const seen: { args: Record<string, unknown>; body: string | undefined }[] = [];
  const service: Service = {
    signal: new AbortController().signal,
    log() {},
    async call(_name, args, sent) {
      const parts = sent && (await Array.fromAsync(sent as Iterable<string>));
      seen.push({ args: args as Record<string, unknown>, body: parts?.join('') });
      async function* bytes() {
        yield Buffer.from(body);
      }
      return { value: { status, statusText: 'said', headers: { 'x-a': '1' } }, body: bytes() };
    },
  };
  return { service, seen };
}
const get = (config: Partial<ProxyConfiguration>) => ({ endpoint: '/rows', ...config });

test('a body is encoded by its type, and sets Content-Type unless the caller did', async () => {
  const { service, seen } = serviceOf(200);
  for (const [data, headers] of [
    [{ a: 1 }, undefined],
    ['text', undefined],
    [{ a: 'b c' }, { 'Content-Type': 'application/x-www-form-urlencoded' }],
    [new URLSearchParams({ d: 'e' }), undefined],
    [{ a: 1 }, { 'Content-Type': 'application/vnd.api+json' }],
  ] as const) {
    await proxiedCall(service, get({ method: 'POST', data, ...(headers && { headers }) }));
  }
  assert.deepEqual(
    seen.map(({ args, body }) => [(args.headers as Record<string, string>)['content-type'], body]),
    [
      ['application/json', '{"a":1}'],
      [undefined, 'text'],
      ['application/x-www-form-urlencoded', 'a=b+c'],
      ['application/x-www-form-urlencoded', 'd=e'],
      ['application/vnd.api+json', '{"a":1}'],
    ],
  );
});

test('a query repeats the names of lists, and omits undefined values', async () => {
  const { service, seen } = serviceOf(200);
  await proxiedCall(service, get({ params: { ranges: ['A1', 'B2'], none: undefined, no: null, n: 0 } }));
  await proxiedCall(service, get({ params: '?as=it&is' }));
  assert.deepEqual(
    seen.map(({ args }) => args.query),
    ['ranges=A1&ranges=B2&n=0', 'as=it&is'],
  );
});

test('an answer is parsed as JSON by its content type, else as text, or as bytes on request', async () => {
  const read = async (body: string, config = {}) =>
    (await proxiedCall(serviceOf(200, body).service, get(config))).data;
  assert.deepEqual(await read('{"a":[1]}'), { a: [1] });
  assert.equal(await read('<html>'), '<html>');
  assert.equal(await read('1', { responseType: 'text' }), '1');
  assert.deepEqual(await read('ab', { responseType: 'arraybuffer' }), Buffer.from('ab'));
});

test('a refusal of the provider is thrown with its answer', async () => {
  const { service } = serviceOf(404, '{"error":"gone"}');
  await assert.rejects(proxiedCall(service, get({})), (error: ProxyError) => {
    assert.equal(error.message, 'Request failed with status code 404');
    assert.equal(error.code, 'ERR_BAD_REQUEST');
    assert.deepEqual(error.response?.data, { error: 'gone' });
    assert.equal(error.response?.headers['x-a'], '1');
    return true;
  });
});

test("without a response the error has the service's code", async () => {
  const { service } = serviceOf(200);
  service.call = () => Promise.reject(Object.assign(new Error('No answer.'), { code: 'upstream_timeout' }));
  await assert.rejects(proxiedCall(service, get({})), { isAxiosError: true, code: 'upstream_timeout' });
});
