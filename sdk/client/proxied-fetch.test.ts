import assert from 'node:assert/strict';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { after, before, test } from 'node:test';
import { setTimeout as later } from 'node:timers/promises';
import { auth, sheets as sheetsApi } from '@googleapis/sheets';
import { type ClientBench, openClientBench, startServer, type TestServer } from './client.fixture.ts';
import { type Connection, isTrellisError } from './index.ts';

const apiKey = 'the-users-key';
let bench: ClientBench;
/** A provider of its own, which answers as a test says. */
let provider: TestServer;
let answer: (request: IncomingMessage, response: ServerResponse) => unknown;
let own: Connection;
let google: Connection;
let spreadsheetId: string;
before(async () => {
  provider = await startServer((request, response) => answer(request, response));
  bench = await openClientBench({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128' });
  const { client, service } = bench;
  await client.integrations.create({
    provider: 'private-api-key',
    unique_key: 'own',
    integration_config: { base_url: `${provider.url}/api` },
  });
  await client.connections.create({
    provider_config_key: 'own',
    connection_id: 'one',
    credentials: { type: 'API_KEY', apiKey },
  });
  own = client.connection('own', 'one');
  google = client.connection(bench.integration, bench.connectionId);
  const sheet = { account: 'ada@example.com', title: 'Cities', sheet: 'cities', csv: 'code,city\n7,Oslo' };
  ({ spreadsheetId } = (await service.control('POST', 'spreadsheets', sheet)) as { spreadsheetId: string });
});
after(async () => {
  await bench.close();
  await provider.close();
});

const echo = async (request: IncomingMessage, response: ServerResponse) => {
  const body = Buffer.concat(await Array.fromAsync(request));
  response.writeHead(200, { 'content-type': 'application/json' });
  const {
    method,
    url,
    headers: { authorization, ...headers },
  } = request;
  const isUsers = authorization === `Bearer ${apiKey}`;
  response.end(JSON.stringify({ method, url, headers, isUsers, body: body.toString('utf8') }));
};
type Echoed = {
  method: string;
  url: string;
  headers: Record<string, string>;
  isUsers: boolean;
  body: string;
};
const echoed = async (response: Response) => (await response.json()) as Echoed;

test('a path and a complete URL reach the provider, with the credentials of the user', async () => {
  answer = echo;
  const ways = [
    '/v1/things?x=%2F&ranges=a&ranges=b',
    'v1/things?x=%2F&ranges=a&ranges=b',
    `${provider.url}/api/v1/things?x=%2F&ranges=a&ranges=b`,
    new URL(`${provider.url}/api/v1/things?x=%2F&ranges=a&ranges=b#part`),
    new Request(`${provider.url}/api/v1/things?x=%2F&ranges=a&ranges=b`),
    `${bench.service.baseUrl}/proxy/v1/things?x=%2F&ranges=a&ranges=b`,
  ];
  for (const way of ways) {
    const { url, headers, isUsers } = await echoed(await own.fetch(way));
    assert.equal(url, '/api/v1/things?x=%2F&ranges=a&ranges=b', String(way));
    assert.equal(isUsers, true);
    assert.equal(headers['connection-id'], undefined);
  }
  const { url } = await echoed(await own.fetch(`${provider.url}/api`));
  assert.equal(url, '/api/');
});

test('headers, method and body of a call arrive, for all header names', async () => {
  answer = echo;
  const { fetch } = own;
  const sent = {
    method: 'PATCH',
    body: JSON.stringify({ a: 'ü' }),
    headers: {
      'content-type': 'application/json',
      'notion-version': '2022-06-28',
      authorization: 'Bearer of-the-library',
      cookie: 'a=b',
      'if-match': '"1"',
      'x-request-id': 'mine',
    },
  };
  for (const answered of [
    await fetch('/x', sent),
    await fetch(new Request(`${provider.url}/api/x`, sent)),
    await fetch(new Request(`${provider.url}/api/x`, { method: 'POST' }), sent),
  ]) {
    const { method, headers, isUsers, body } = await echoed(answered);
    assert.equal(method, 'PATCH');
    assert.equal(body, sent.body);
    assert.equal(headers['notion-version'], '2022-06-28');
    assert.equal(headers['if-match'], '"1"');
    assert.equal(headers['x-request-id'], 'mine');
    assert.equal(headers['content-length'], String(Buffer.byteLength(sent.body)));
    assert.equal(isUsers, true);
    assert.equal(headers.cookie, undefined);
  }
});

test('headers for the proxy take effect', async () => {
  let turn = 0;
  answer = (request, response) => {
    turn += 1;
    if (turn === 1) response.writeHead(503, { 'retry-after': '0' }).end();
    else void echo(request, response);
  };
  const { headers } = await echoed(await own.fetch('/x', { headers: { retries: '2', 'quota-wait': '1' } }));
  assert.equal(turn, 2);
  assert.equal(headers.retries, undefined);
  const refused = await own.fetch('/x', { headers: { retries: 'many' } });
  assert.equal((await own.errorOf(refused))?.code, 'invalid_headers');
});

test("a provider's refusal is passed on verbatim, and an error of Trellis is distinguished from it", async () => {
  answer = (_, response) => {
    response.writeHead(418, 'Teapot', { 'content-type': 'text/plain', 'x-own': '1' });
    response.end('short and stout');
  };
  const refused = await own.fetch('/x');
  assert.deepEqual([refused.status, refused.statusText], [418, 'Teapot']);
  assert.equal(refused.headers.get('x-own'), '1');
  assert.equal(await own.errorOf(refused), undefined);
  assert.equal(await refused.text(), 'short and stout');

  const nobody = bench.client.connection('own', 'nobody');
  const missing = await nobody.fetch('/x');
  const reported = await nobody.errorOf(missing);
  assert.ok(isTrellisError(reported, 'unknown_connection'));
  assert.equal(reported.status, 400);
  assert.notEqual(reported.requestId, undefined);
  assert.match(await missing.text(), /unknown_connection/);
});

test("an error in the provider's own shape has our code, too", async () => {
  const nobody = bench.client.connection(bench.integration, 'nobody');
  const answered = await nobody.fetch('/v4/spreadsheets/x');
  const { error } = (await answered.clone().json()) as { error: { code: number } };
  assert.equal(error.code, answered.status);
  const reported = await nobody.errorOf(answered);
  assert.equal(reported?.code, 'unknown_connection');
  await answered.text();
  assert.equal((await nobody.errorOf(answered))?.code, 'unknown_connection', 'also where it was read');
});

test('bodies are streamed in both directions', async () => {
  const got: string[] = [];
  const mayEnd = Promise.withResolvers<void>();
  answer = async (request, response) => {
    response.writeHead(200, { 'content-type': 'text/plain' });
    for await (const chunk of request) {
      got.push(String(chunk));
      response.write(`took ${chunk}\n`);
    }
    response.write('all of it\n');
    await mayEnd.promise;
    response.end('end');
  };
  const parts = ['one', 'two', 'three'];
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const part = parts.shift();
      if (part === undefined) return controller.close();
      await later(10);
      controller.enqueue(new TextEncoder().encode(part));
    },
  });
  const answered = await own.fetch('/x', { method: 'POST', body });
  const reader = answered.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  while (!text.includes('all of it')) text += (await reader.read()).value ?? '';
  assert.equal(got.join(''), 'onetwothree');
  mayEnd.resolve();
  for (;;) {
    const { done, value = '' } = await reader.read();
    text += value;
    if (done) break;
  }
  assert.match(text, /end$/);
});

test('a hundred concurrent calls get their own responses', async () => {
  answer = echo;
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, at) => own.fetch(`/x/${at}`, { method: 'PUT', body: `body ${at}` })),
  );
  for (const [at, answered] of answers.entries()) {
    const { url, body } = await echoed(answered);
    assert.deepEqual([url, body], [`/api/x/${at}`, `body ${at}`]);
  }
});

test('an abort ends the call at the provider', async () => {
  const gone = Promise.withResolvers<void>();
  const come = Promise.withResolvers<void>();
  answer = (_, response) => {
    response.on('close', gone.resolve);
    come.resolve();
  };
  const stop = new AbortController();
  const call = own.fetch('/x', { signal: stop.signal });
  await come.promise;
  stop.abort();
  await assert.rejects(call, { name: 'AbortError' });
  await gone.promise;
});

test('no address leads away from the provider, or with the key to another route of the service', async () => {
  const reached: string[] = [];
  const client = bench.open({
    fetch: (input, init) => {
      reached.push(String(input));
      return fetch(input, init);
    },
  });
  const { fetch: ask } = client.connection('own', 'one', { baseUrl: `${provider.url}/api` });
  for (const path of [
    '/../environment/api-keys',
    '/x/../../environment/api-keys',
    '..\\..\\environment/api-keys',
    '/%2e%2e/environment/api-keys',
    '/.%2E/x',
    '/.\t./environment/api-keys',
    '/x/./y',
    '..',
    '/x/..',
    '/..;a=b/x',
  ])
    await assert.rejects(ask(path), { name: 'TypeError' }, path);
  assert.equal(reached.length, 0);
  answer = echo;
  for (const [path, arrives] of [
    ['//elsewhere.example/x', undefined],
    ['/x..y/...?a=/../b', '/api/x..y/...?a=/../b'],
    ['@elsewhere.example/', '/api/@elsewhere.example/'],
    [':80/x', '/api/:80/x'],
  ] as const) {
    const answered = await ask(path);
    assert.ok(reached.at(-1)?.startsWith(`${bench.service.baseUrl}/proxy/`));
    if (arrives === undefined) assert.equal((await own.errorOf(answered))?.code, 'invalid_proxy_path');
    else assert.equal((await echoed(answered)).url, arrives);
  }
  const elsewhere = await own.fetch('https://elsewhere.example/x');
  assert.equal((await own.errorOf(elsewhere))?.code, 'base_url_override_not_allowed');
});

test('a ticket calls paths, and complete URLs if baseUrl is set', async () => {
  answer = echo;
  const { ticket } = await bench.client.tickets.create({
    provider_config_key: 'own',
    connection_id: 'one',
    methods: ['GET'],
    paths: ['/v1/**'],
  });
  const client = bench.open({ key: ticket });
  const held = client.connection('own', 'one');
  assert.equal((await echoed(await held.fetch('/v1/x'))).url, '/api/v1/x');
  await assert.rejects(held.fetch(`${provider.url}/api/v1/x`), { name: 'TypeError', message: /baseUrl/ });
  const { fetch: ask } = client.connection('own', 'one', { baseUrl: `${provider.url}/api/` });
  assert.equal((await echoed(await ask(`${provider.url}/api/v1/x`))).url, '/api/v1/x');
  const refused = await held.fetch('/v2/x');
  assert.equal((await held.errorOf(refused))?.code, 'proxy_rule_denied');
});

test("Google's own client takes it as its fetch", async () => {
  const oauth = new auth.OAuth2();
  oauth.setCredentials({ access_token: 'of nobody' });
  const sheets = sheetsApi({ version: 'v4', auth: oauth, fetchImplementation: google.fetch });
  const { data } = await sheets.spreadsheets.values.get({ spreadsheetId, range: 'cities' });
  assert.deepEqual(data.values, [
    ['code', 'city'],
    ['7', 'Oslo'],
  ]);
  await sheets.spreadsheets.values.append({
    spreadsheetId,
    range: 'cities',
    valueInputOption: 'RAW',
    requestBody: { values: [['8', 'Rome']] },
  });
  const answered = await google.fetch(`/v4/spreadsheets/${spreadsheetId}/values/cities`);
  assert.equal(((await answered.json()) as { values: unknown[] }).values.length, 3);
});
