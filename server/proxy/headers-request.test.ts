import assert from 'node:assert/strict';
import { test } from 'node:test';
import { brandNames } from '../brand.ts';
import { RequestHeaderRules } from './headers.ts';
import { definitionAt } from './proxy.fixture.ts';

const brand = brandNames('trellis');
const definition = definitionAt('https://api.example', { pass_headers: ['X-Api-Version'] });
const sent = (raw: string[], placed: Record<string, string> = {}) =>
  new RequestHeaderRules(placed, { brand, api: definition.api }).headers(raw);

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

test('headers that identify the caller never reach the provider, with or without prefix', () => {
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
});

test("the connection's credentials replace the caller's header of the same name", () => {
  const raw = ['trellis-proxy-X-Api-Token', 'mine', 'Accept', '*/*'];
  assert.deepEqual(sent(raw, { 'X-Api-Token': 'theirs' }), ['Accept', '*/*', 'X-Api-Token', 'theirs']);
});

test('a name that servers read as another is treated as that', () => {
  const placed = { 'X-Api-Key': 'theirs' };
  for (const name of [
    'Content_Length', 'Transfer_Encoding', 'TRANSFER.ENCODING', 'x_forwarded_for', 'X-Forwarded_Host', 'x_goog_user_project',
    'X_Api_Key', 'x.api-key', 'Trellis_Is_Sync', 'Connection_Id',
  ]) // biome-ignore format: a list reads better in lines
    assert.deepEqual(sent([name, '7', `trellis-proxy-${name}`, '7'], placed), ['X-Api-Key', 'theirs'], name);
  assert.deepEqual(sent(['trellis-proxy-X_Custom', '1']), ['X_Custom', '1']);
});
