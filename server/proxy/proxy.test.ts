import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { sheets, type sheets_v4 } from '@googleapis/sheets';
import { AppError } from '../errors.ts';
import {
  bearer,
  callHeaders,
  definitionAt,
  exchange,
  head,
  secretKey,
  startHttp,
  startProxy,
  startRecorder,
  startTcp,
} from './proxy.fixture.ts';

type Settings = Partial<Parameters<typeof startProxy>[0]> & { api?: Record<string, unknown> };

/** A provider that returns the request, and 401 for unknown tokens. */
async function startProvider(t: TestContext, tokens = ['token-1']) {
  const calls: { method: string; url: string; authorization: string | undefined; body: string }[] = [];
  const upstream = await startHttp(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += (chunk as Buffer).toString('latin1');
    const { authorization } = request.headers;
    calls.push({ method: request.method ?? '', url: request.url ?? '', authorization, body });
    const isKnown = tokens.some((token) => authorization === `Bearer ${token}`);
    response.writeHead(isKnown ? 200 : 401, { 'content-type': 'application/json', 'x-from': 'provider' });
    response.end(isKnown ? JSON.stringify({ spreadsheetId: 'S1' }) : '{"error":{"code":401}}');
  });
  t.after(() => upstream.close());
  return { ...upstream, calls };
}

async function startFor(t: TestContext, url: string, { api, ...settings }: Settings = {}) {
  const proxy = await startProxy({ definition: definitionAt(url, api), ...settings });
  t.after(() => proxy.close());
  return proxy;
}

async function ask(url: string, init: RequestInit = {}) {
  const answer = await fetch(url, { ...init, headers: { ...callHeaders, ...init.headers } });
  const text = await answer.text();
  return {
    status: answer.status,
    marker: answer.headers.get('x-trellis-error'),
    headers: answer.headers,
    text,
  };
}

function without(name: keyof typeof callHeaders): Record<string, string> {
  return Object.fromEntries(Object.entries(callHeaders).filter(([key]) => key !== name));
}

test('a call without a key, or with a wrong one, is refused in our shape, with our marker', async (t) => {
  const provider = await startProvider(t);
  const proxy = await startFor(t, provider.url);
  for (const [headers, code] of [
    [without('authorization'), 'missing_auth_header'],
    [{ ...callHeaders, authorization: 'Bearer another-key-of-another' }, 'unknown_account'],
  ] as const) {
    const answer = await fetch(`${proxy.url}/proxy/x`, { headers });
    assert.equal(answer.status, 401);
    assert.equal(answer.headers.get('x-trellis-error'), code);
    assert.equal(((await answer.json()) as { error: { code: string } }).error.code, code);
  }
  assert.deepEqual(provider.calls, []);
});

test('a header for us that is missing or malformed is named', async (t) => {
  const provider = await startProvider(t);
  const proxy = await startFor(t, provider.url);
  const faults: [string, string | undefined][] = [
    ['connection-id', undefined],
    ['provider-config-key', undefined],
    ['retries', '11'],
    ['retries', '-1'],
    ['retries', '1.5'],
    ['retry-on', '500;502'],
    ['retry-on', 'all'],
    ['decompress', 'yes'],
    ['quota-wait', '61'],
  ];
  for (const [name, value] of faults) {
    const headers =
      value === undefined ? without(name as keyof typeof callHeaders) : { ...callHeaders, [name]: value };
    const answer = await fetch(`${proxy.url}/proxy/x`, { headers });
    const { error } = (await answer.json()) as { error: { code: string; errors: { path: string[] }[] } };
    const reported = name === 'provider-config-key' ? 'integration-id' : name;
    assert.deepEqual(
      [answer.status, error.code, error.errors[0]?.path],
      [400, 'invalid_headers', [reported]],
    );
    assert.equal(answer.headers.get('x-trellis-error'), 'invalid_headers');
  }
  assert.deepEqual(provider.calls, []);
  const fine = {
    retries: '10',
    'retry-on': '500,502',
    decompress: 'false',
    'quota-wait': '0',
    'base-url-override': '',
  };
  assert.equal((await ask(`${proxy.url}/proxy/x`, { headers: fine })).status, 200);
});

test("errors have the provider's format once the provider is known, and ours before", async (t) => {
  const provider = await startProvider(t);
  const proxy = await startFor(t, provider.url);
  const unknown = await ask(`${proxy.url}/proxy/x`, { headers: { 'provider-config-key': 'nobody' } });
  assert.equal(unknown.status, 404);
  assert.equal(unknown.marker, 'unknown_provider_config');
  assert.equal(JSON.parse(unknown.text).error.code, 'unknown_provider_config');

  const nobody = await ask(`${proxy.url}/proxy/x`, { headers: { 'connection-id': 'bob' } });
  assert.equal(nobody.marker, 'unknown_connection');
  const { error } = JSON.parse(nobody.text);
  assert.deepEqual([nobody.status, error.code, error.status], [400, 400, 'INVALID_ARGUMENT']);
  assert.deepEqual(error.details, [
    {
      '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
      reason: 'UNKNOWN_CONNECTION',
      domain: 'trellis',
      metadata: {},
    },
  ]);
});

test('a dead connection is 424 with its cause, in the dialect and without it', async (t) => {
  const provider = await startProvider(t);
  const fresh = async () => {
    throw new AppError('connection_needs_reauth', 'Connect again.', {
      payload: { status: 'needs_reauth', since: 7 },
    });
  };
  const google = await ask(`${(await startFor(t, provider.url, { fresh })).url}/proxy/x`);
  assert.deepEqual([google.status, google.marker], [424, 'connection_needs_reauth']);
  const { error } = JSON.parse(google.text);
  assert.deepEqual([error.code, error.status, error.message], [424, 'FAILED_PRECONDITION', 'Connect again.']);
  assert.deepEqual(error.details[0].metadata, { status: 'needs_reauth', since: '7' });

  const plain = await startFor(t, provider.url, { fresh, api: { error_format: undefined } });
  const ours = await ask(`${plain.url}/proxy/x`);
  assert.deepEqual([ours.status, ours.marker], [424, 'connection_needs_reauth']);
  assert.equal(JSON.parse(ours.text).error.code, 'connection_needs_reauth');
});

test('an error of the service is a bare 500 in the dialect, and a temporary one has a retry time', async (t) => {
  const provider = await startProvider(t);
  const thrown = [
    new Error('secret detail'),
    new AppError('connection_refresh_failed', undefined, { retryAfterS: 30 }),
  ];
  const fresh = async () => {
    throw thrown.shift();
  };
  const proxy = await startFor(t, provider.url, { fresh });
  const broken = await ask(`${proxy.url}/proxy/x`);
  assert.deepEqual([broken.status, broken.marker], [500, 'internal']);
  assert.doesNotMatch(broken.text, /secret detail/);
  const later = await ask(`${proxy.url}/proxy/x`);
  assert.deepEqual([later.status, later.headers.get('retry-after')], [503, '30']);
});

test('a 401 from the provider leads to one refresh and one replay, with the same body', async (t) => {
  const provider = await startProvider(t, ['token-2']);
  const proxy = await startFor(t, provider.url);
  for (const [method, body] of [
    ['GET', undefined],
    ['POST', '{"values":[[1]]}'],
    ['DELETE', undefined],
    ['PUT', 'x'.repeat(1024 * 1024)],
  ] as const) {
    provider.calls.length = 0;
    proxy.renewals.push(bearer('token-2'));
    const answer = await ask(`${proxy.url}/proxy/v4/a%2Fb?key=K&x=1`, {
      method,
      ...(body !== undefined && { body }),
    });
    assert.deepEqual([method, answer.status, answer.text], [method, 200, '{"spreadsheetId":"S1"}']);
    const call = { method, url: '/v4/a%2Fb?x=1', body: body ?? '' };
    assert.deepEqual(provider.calls, [
      { ...call, authorization: 'Bearer token-1' },
      { ...call, authorization: 'Bearer token-2' },
    ]);
  }
  assert.equal(proxy.renewedWith.length, 4);
  assert.deepEqual(proxy.renewedWith[0], bearer('token-1'));
});

test('a 401 of the provider reaches the caller if there are no newer credentials, and after one repetition', async (t) => {
  const provider = await startProvider(t, []);
  const proxy = await startFor(t, provider.url);
  const first = await ask(`${proxy.url}/proxy/x`);
  assert.deepEqual([first.status, first.text, first.marker], [401, '{"error":{"code":401}}', null]);
  assert.equal(first.headers.get('x-from'), 'provider');
  assert.equal((await ask(`${proxy.url}/proxy/x`, { method: 'HEAD' })).status, 401);
  assert.deepEqual([provider.calls.length, proxy.renewedWith.length], [2, 2]);

  proxy.renewals.push(bearer('token-3'), bearer('token-4'));
  const second = await ask(`${proxy.url}/proxy/x`, { method: 'POST', body: 'b' });
  assert.deepEqual([second.status, second.text], [401, '{"error":{"code":401}}']);
  assert.deepEqual([provider.calls.length, proxy.renewedWith.length], [4, 3]);
});

test('a 401 that breaks off is replayed all the same', async (t) => {
  let count = 0;
  const upstream = await startTcp((socket) =>
    socket.on('data', () => {
      if (++count === 2) socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
      else socket.end('HTTP/1.1 401 No\r\nContent-Length: 100\r\n\r\nhalf');
    }),
  );
  t.after(() => upstream.close());
  const proxy = await startFor(t, upstream.url);
  const renewed = Promise.withResolvers<ReturnType<typeof bearer>>();
  proxy.renewals.push(renewed.promise);
  const answer = ask(`${proxy.url}/proxy/x`);
  void setTimeout(50).then(() => renewed.resolve(bearer('token-2')));
  assert.deepEqual([(await answer).status, count], [200, 2]);
});

test('a 401 that breaks off is an error if there are no newer credentials', async (t) => {
  const broken = Promise.withResolvers<void>();
  const upstream = await startTcp((socket) =>
    socket.once('data', () => {
      socket.on('close', () => broken.resolve());
      socket.write('HTTP/1.1 401 No\r\nContent-Length: 100\r\n\r\nhalf', () => socket.resetAndDestroy());
    }),
  );
  t.after(() => upstream.close());
  const proxy = await startFor(t, upstream.url);
  proxy.renewals.push(broken.promise.then(() => setTimeout(50)).then(() => undefined));
  const answer = await ask(`${proxy.url}/proxy/x`);
  assert.deepEqual([answer.status, answer.marker], [502, 'upstream_unreachable']);
});

test('a body too large to keep is not replayed: the 401 is relayed', async (t) => {
  const provider = await startProvider(t, ['token-2']);
  const proxy = await startFor(t, provider.url);
  proxy.renewals.push(bearer('token-2'));
  const answer = await ask(`${proxy.url}/proxy/x`, { method: 'POST', body: 'x'.repeat(1024 * 1024 + 1) });
  // The next call goes with other credentials all the same.
  assert.deepEqual([answer.status, provider.calls.length, proxy.renewedWith.length], [401, 1, 1]);
});

test('CONNECT and TRACE are 405 with the allowed methods; the proxy answers a preflight, and forwards other OPTIONS', async (t) => {
  const upstream = await startRecorder();
  t.after(() => upstream.close());
  const proxy = await startFor(t, upstream.url);
  for (const line of ['TRACE /proxy/x', 'CONNECT api.example:443']) {
    const answer = await exchange(proxy.port, head(line));
    assert.match(answer, /^HTTP\/1\.1 405 /);
    assert.match(answer, /\r\nallow: .*PROPFIND/i);
    assert.match(answer, /\r\nx-trellis-error: method_not_allowed/i);
  }
  assert.deepEqual(upstream.heads, []);
  const preflight =
    'OPTIONS /proxy/x HTTP/1.1\r\nHost: p\r\nConnection: close\r\nOrigin: https://a.example\r\nAccess-Control-Request-Method: PUT\r\n\r\n';
  assert.match(await exchange(proxy.port, preflight), /^HTTP\/1\.1 204 /);
  assert.deepEqual(upstream.heads, []);
  assert.match(await exchange(proxy.port, head('OPTIONS /proxy/x')), /^HTTP\/1\.1 200 /);
  assert.match(upstream.heads[0] ?? '', /^OPTIONS \/x HTTP/);
});

test('an unsafe path and a forbidden override are not sent', async (t) => {
  const provider = await startProvider(t);
  const other = await startProvider(t);
  const proxy = await startFor(t, provider.url, { integrationConfig: { allowed_base_urls: other.url } });
  for (const path of ['/proxy//evil.example/x', '/proxy/a/%2e%2e/b', '/proxy/a/../../b', '/proxy/a\\b']) {
    const answer = await exchange(proxy.port, head(`GET ${path}`));
    assert.match(answer, /^HTTP\/1\.1 400 /, path);
    assert.match(answer, /"reason":"INVALID_PROXY_PATH"/, path);
  }
  const evil = await ask(`${proxy.url}/proxy/x`, { headers: { 'base-url-override': 'http://127.0.0.1:9' } });
  assert.deepEqual([evil.status, evil.marker], [400, 'base_url_override_not_allowed']);
  assert.deepEqual(provider.calls, []);
  const fine = await ask(`${proxy.url}/proxy/x?a=1`, {
    headers: { 'base-url-override': `${other.url}/base` },
  });
  assert.equal(fine.status, 200);
  assert.equal(other.calls[0]?.url, '/base/x?a=1');
});

test("an override may name the provider's own addresses and what lies below them, without a setting", async (t) => {
  const provider = await startProvider(t);
  const other = await startProvider(t);
  const definition = definitionAt(`${provider.url}/api/1.0`);
  definition.api.other_base_urls = { 'https://content.example/v2': `${other.url}/v2` };
  const proxy = await startFor(t, provider.url, { definition });
  const call = (override: string) =>
    ask(`${proxy.url}/proxy/x?a=1`, { headers: { 'base-url-override': override } });
  for (const [override, { calls }, url] of [
    [`${provider.url}/api/1.0`, provider, '/api/1.0/x?a=1'],
    [`${provider.url}/api/1.0/`, provider, '/api/1.0/x?a=1'],
    [`${provider.url}/api/1.0/workspaces/%20`, provider, '/api/1.0/workspaces/%20/x?a=1'],
    ['https://content.example/v2', other, '/v2/x?a=1'],
    ['https://content.example/v2/files', other, '/v2/files/x?a=1'],
  ] as const) {
    assert.equal((await call(override)).status, 200, override);
    assert.equal(calls.at(-1)?.url, url);
  }
  const sent = provider.calls.length + other.calls.length;
  for (const override of [
    provider.url,
    `${provider.url}/api`,
    `${provider.url}/api/1.00`,
    `${provider.url}/api/1.0/../2.0`,
    `${provider.url}/api/1.0/%2e%2e/2.0`,
    `${provider.url}/api/1.0/..%2f2.0`,
    `${provider.url}/api/1.0//2.0`,
    `${provider.url}/api/1.0?x`,
    `${provider.url.replace('127.0.0.1', 'localhost')}/api/1.0`,
    'https://content.example',
    'https://content.example/v2/%2e%2e/v1',
    'http://content.example/v2',
    `${other.url}/v2`,
  ]) {
    const { status, marker } = await call(override);
    assert.deepEqual([status, marker], [400, 'base_url_override_not_allowed'], override);
  }
  assert.equal(provider.calls.length + other.calls.length, sent);
  const secret = definitionAt(`${provider.url}/bot\${credentials.accessToken}`);
  const keyed = await startFor(t, provider.url, { definition: secret });
  const named = { headers: { 'base-url-override': `${provider.url}/bottoken-1` } };
  assert.equal((await ask(`${keyed.url}/proxy/x`, named)).marker, 'base_url_override_not_allowed');
});

test('an address that must not be reached is refused before anything is sent', async (t) => {
  const proxy = await startFor(t, 'https://10.0.0.1');
  const answer = await ask(`${proxy.url}/proxy/latest/meta-data`);
  assert.deepEqual([answer.status, answer.marker], [400, 'address_not_allowed']);
});

test("credentials in the query replace the caller's parameter", async (t) => {
  const upstream = await startRecorder();
  t.after(() => upstream.close());
  const definition = {
    ...definitionAt(upstream.url),
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a placeholder of a definition
    placement: [{ in: 'query' as const, name: 'api_key', value: '${credentials.apiKey}' }],
  };
  const fresh = async () => ({ type: 'API_KEY' as const, apiKey: 's&p' });
  const proxy = await startFor(t, upstream.url, { definition, fresh });
  await exchange(proxy.port, head('GET /proxy/x?api_key=mine&a=1'));
  assert.match(upstream.heads[0] ?? '', /^GET \/x\?a=1&api_key=s%26p HTTP/);
  await exchange(proxy.port, head('GET /proxy/x?API-Key=mine&a=1;api_key=mine&api_key[]=mine&?api_key=mine'));
  assert.match(upstream.heads[1] ?? '', /^GET \/x\?a=1&api_key=s%26p HTTP/);
});

test("a client that keeps no path prefix is served by the provider's own paths", async (t) => {
  const provider = await startProvider(t);
  const proxy = await startFor(t, provider.url);
  assert.equal((await ask(`${proxy.url}/v4/spreadsheets/S1?a=%2F`)).status, 200);
  assert.equal(provider.calls[0]?.url, '/v4/spreadsheets/S1?a=%2F');
  const authorization = `Bearer ${secretKey}`;
  assert.equal((await fetch(`${proxy.url}/v4/spreadsheets/S1`, { headers: { authorization } })).status, 404);
});

for (const [name, settings] of [
  ['each call', (root: string) => ({ perCall: { rootUrl: root }, perClient: {} })],
  ['the client', (root: string) => ({ perCall: {}, perClient: { rootUrl: root } })],
] as const) {
  test(`Google's own client works through the proxy with its root set for ${name}`, async (t) => {
    const provider = await startProvider(t);
    const proxy = await startFor(t, provider.url);
    const { perCall, perClient } = settings(`${proxy.url}/proxy/`);
    const client: sheets_v4.Sheets = sheets({ version: 'v4', headers: callHeaders, ...perClient });
    const found = await client.spreadsheets.get({ spreadsheetId: 'S1', ranges: ['A1', 'B2'] }, perCall);
    assert.equal(found.data.spreadsheetId, 'S1');
    const range = "'Q1/2024 data'!A1:B2";
    const requestBody = { values: [['1', '2']] };
    const append = { spreadsheetId: 'S1', range, valueInputOption: 'RAW', requestBody };
    await client.spreadsheets.values.append(append, perCall);
    assert.deepEqual(
      provider.calls.map(({ method, url, authorization, body }) => [method, url, authorization, body]),
      [
        ['GET', '/v4/spreadsheets/S1?ranges=A1&ranges=B2', 'Bearer token-1', ''],
        [
          'POST',
          '/v4/spreadsheets/S1/values/%27Q1%2F2024%20data%27%21A1%3AB2:append?valueInputOption=RAW',
          'Bearer token-1',
          JSON.stringify(requestBody),
        ],
      ],
    );
    const bob = { ...perCall, headers: { ...callHeaders, 'connection-id': 'bob' } };
    await assert.rejects(
      client.spreadsheets.get({ spreadsheetId: 'S1' }, bob),
      (error: Error & { code?: unknown }) => {
        assert.match(error.message, /No connection has this ID/);
        return Number(error.code) === 400;
      },
    );
  });
}
