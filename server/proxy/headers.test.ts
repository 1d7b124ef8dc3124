import assert from 'node:assert/strict';
import { test } from 'node:test';
import { brandNames } from '../brand.ts';
import { AnswerRules, RequestRules, requestHeaders } from './headers.ts';
import { definitionAt } from './proxy.fixture.ts';

const brand = brandNames('trellis');
const definition = definitionAt('https://api.example', { pass_headers: ['X-Api-Version'] });

const sent = (raw: string[], placed: Record<string, string> = {}) =>
  requestHeaders(raw, new RequestRules({ brand, definition, placed }));
const relayed = (raw: string[], { path = '/v4/a/b?x=1', query = '' } = {}) =>
  new AnswerRules(brand).headers(raw, { origin: 'https://api.example', path, placed: { query } });

test('headers of the message go on, with their case, order and repetitions', () => {
  const raw = [
    ['Accept', 'application/json'],
    ['accept', 'text/csv'],
    ['Accept-Encoding', 'gzip'],
    ['Accept-Language', 'de'],
    ['Cache-Control', 'no-cache'],
    ['Content-Type', 'multipart/related; boundary="x"'],
    ['Content-Length', '7'],
    ['Content-MD5', 'Q2hlY2s='],
    ['Digest', 'sha-256=x'],
    ['Idempotency-Key', 'k'],
    ['If-Match', '"e"'],
    ['If-None-Match', 'W/"e"'],
    ['Last-Event-ID', '7'],
    ['Mcp-Session-Id', 's'],
    ['Prefer', 'return=minimal'],
    ['Range', 'bytes=0-1'],
    ['TE', 'trailers'],
    ['User-Agent', 'google-api-nodejs-client/8.0.3 (gzip)'],
    ['x-goog-api-client', 'gdcl/8.0.3'],
    ['X-Goog-FieldMask', 'a,b'],
    ['X-Goog-Upload-Offset', '0'],
    ['X-Upload-Content-Type', 'text/csv'],
    ['X-Api-Version', '3'],
  ].flat();
  assert.deepEqual(sent(raw), raw);
});

test("what is the caller's own business never reaches the provider, with or without prefix", () => {
  for (const name of [
    'Authorization',
    'Cookie',
    'Host',
    'Origin',
    'Referer',
    'Forwarded',
    'X-Forwarded-For',
    'X-Forwarded-Proto',
    'Connection',
    'Keep-Alive',
    'Proxy-Connection',
    'Proxy-Authorization',
    'Transfer-Encoding',
    'Upgrade',
    'Provider-Config-Key',
    'Connection-Id',
    'Retries',
    'Retry-On',
    'Base-Url-Override',
    'Decompress',
    'Quota-Wait',
    'Timeouts',
    'X-Trellis-Environment',
    'Trellis-Is-Sync',
    'x-goog-user-project',
    'X-Goog-Api-Key',
  ]) {
    assert.deepEqual(sent([name, 'x', `Trellis-Proxy-${name}`, 'x']), [], name);
  }
});

test('tracing, browser and infrastructure headers need the prefix', () => {
  const names = ['traceparent', 'b3', 'X-Request-Id', 'Sec-Fetch-Mode', 'X-Real-Ip', 'CF-Ray', 'X-Custom'];
  assert.deepEqual(sent(names.flatMap((name) => [name, 'v'])), []);
  assert.deepEqual(
    sent(names.flatMap((name) => [`trellis-PROXY-${name}`, 'v'])),
    names.flatMap((name) => [name, 'v']),
  );
});

test("a prefixed header replaces the client's default of the same name and may be repeated", () => {
  const raw = [
    'Accept',
    '*/*',
    'trellis-proxy-accept',
    'text/csv',
    'trellis-proxy-X-A',
    '1',
    'trellis-proxy-X-A',
    '2',
  ];
  assert.deepEqual(sent(raw), ['accept', 'text/csv', 'X-A', '1', 'X-A', '2']);
});

test('the framing of the message cannot be set through the prefix', () => {
  assert.deepEqual(
    sent(['trellis-proxy-Content-Length', '3', 'trellis-proxy-Trailer', 'x', 'trellis-proxy-', 'x']),
    [],
  );
  assert.deepEqual(sent(['TE', 'gzip, trailers']), []);
});

test('headers that Connection lists stay on their hop', () => {
  assert.deepEqual(
    sent(['Connection', 'close, Prefer', 'Prefer', 'x', 'Connection', 'TE', 'TE', 'trailers']),
    [],
  );
  assert.deepEqual(relayed(['Connection', 'X-Hop', 'X-Hop', '1', 'X-End', '2']), ['X-End', '2']);
});

test("the connection's credentials replace what the caller sent under their name", () => {
  const raw = ['trellis-proxy-X-Api-Token', 'mine', 'Accept', '*/*'];
  assert.deepEqual(sent(raw, { 'X-Api-Token': 'theirs' }), ['Accept', '*/*', 'X-Api-Token', 'theirs']);
});

test('an answer keeps everything but what belongs to the hop or pretends to be ours', () => {
  const kept = [
    'Content-Type',
    'text/csv',
    'Set-Cookie',
    'a=1',
    'Set-Cookie',
    'b=2',
    'ETag',
    '"x"',
    'X-Request-Id',
    'r',
  ];
  const dropped = [
    ['Transfer-Encoding', 'chunked'],
    ['Keep-Alive', 'timeout=5'],
    ['Proxy-Authenticate', 'Basic'],
    ['Upgrade', 'h2c'],
    ['Alt-Svc', 'h3=":443"'],
    ['Access-Control-Allow-Origin', 'https://x.example'],
    ['access-control-allow-credentials', 'true'],
    ['X-TRELLIS-Error', 'forged'],
  ].flat();
  assert.deepEqual(relayed([...dropped, ...kept]), kept);
});

test('credentials in the query come back in no address of an answer, wherever it leads', () => {
  const query = 'api_key=s%2Fe%20c';
  const cases: [string, string, string][] = [
    ['Location', '', 'https://api.example/v4/a?x=1'],
    ['Location', '#part', 'https://api.example/v4/a?x=1#part'],
    ['Location', '/v4/a/?x=1&api_key=s%2fe+c&y=2', 'https://api.example/v4/a/?x=1&y=2'],
    ['Location', 'https://cdn.example/?api_key=s/e%20c', 'https://cdn.example/'],
    ['Location', 'https://cdn.example/?api_key=another', 'https://cdn.example/?api_key=another'],
    ['Content-Location', '/a?api_key=s%2Fe%20c', '/a'],
    ['Link', '</a?api_key=s%2Fe%20c&p=2>; rel="next", </b>', '</a?p=2>; rel="next", </b>'],
    ['refresh', '5; url=/a?p=1&api_key=s%2Fe%20c', '5; url=/a?p=1'],
  ];
  for (const [name, value, expected] of cases) {
    const path = `/v4/a?x=1&${query}`;
    assert.deepEqual(relayed([name, value], { path, query }), [name, expected], value);
  }
});

test('a Location leads to the provider, not to us', () => {
  const cases: [string, string][] = [
    ['/v4/next?a=%2F', 'https://api.example/v4/next?a=%2F'],
    ['next', 'https://api.example/v4/a/next'],
    ['?page=2', 'https://api.example/v4/a/b?page=2'],
    ['//cdn.example/x', 'https://cdn.example/x'],
    ['https://other.example/%7Ex', 'https://other.example/%7Ex'],
  ];
  for (const [location, expected] of cases)
    assert.deepEqual(relayed(['Location', location]), ['Location', expected]);
});
