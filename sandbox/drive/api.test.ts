import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { type Bench, driveFile, openBench, openDataDir, spreadsheets } from '../testing.ts';

const auth = 'https://www.googleapis.com/auth/';
const drive = `${auth}drive`;
const sheetType = 'application/vnd.google-apps.spreadsheet';

type Init = {
  method?: string;
  token?: string;
  headers?: Record<string, string>;
  body?: string | Buffer | object;
};
// The tests read answers of every shape the API has.
// biome-ignore lint/suspicious/noExplicitAny: see above
type Told = { status: number; headers: Headers; text: string; json: any };

/** A sandbox, and ada's calls to its Drive with a token of these scopes. */
async function openDrive(
  t: TestContext,
  { scopes = drive, dataDir }: { scopes?: string; dataDir?: string } = {},
) {
  const bench = await openBench(t, dataDir === undefined ? {} : { dataDir });
  const token = await tokenOf(bench, scopes);
  const call = async (path: string, init: Init = {}): Promise<Told> => {
    const { body } = init;
    const isJson = typeof body === 'object' && !Buffer.isBuffer(body);
    const response = await fetch(path.startsWith('http') ? path : bench.sandbox.url + path, {
      method: init.method ?? (body === undefined ? 'GET' : 'POST'),
      headers: {
        ...(init.token !== '' && { authorization: `Bearer ${init.token ?? token}` }),
        ...(isJson && { 'content-type': 'application/json' }),
        ...init.headers,
      },
      ...(body !== undefined && { body: isJson ? JSON.stringify(body) : (body as string) }),
    });
    const text = await response.text();
    const hasJson = response.headers.get('content-type')?.startsWith('application/json');
    return { status: response.status, headers: response.headers, text, json: hasJson && JSON.parse(text) };
  };
  const put = async (name: string, body = 'bytes') => {
    const made = await call('/upload/drive/v3/files?uploadType=media', { body });
    const { id } = made.json as { id: string };
    await call(`/drive/v3/files/${id}`, { method: 'PATCH', body: { name } });
    return id;
  };
  return { bench, call, put };
}

async function tokenOf(bench: Bench, scope: string, account = 'ada@example.com'): Promise<string> {
  return (await bench.connect({ scope }, { account })).access_token;
}

const reasonOf = ({ status, json }: Told) => [status, json.error.errors[0].reason];

test('a file keeps its bytes and metadata over a restart, and no partial file stays', async (t) => {
  const dataDir = await openDataDir(t);
  const first = await openDrive(t, { dataDir });
  const id = await first.put('kept', 'some bytes');
  await first.call('/upload/drive/v3/files?uploadType=resumable', { body: {} });
  await first.bench.sandbox.close();
  const { call } = await openDrive(t, { dataDir });
  assert.equal((await call(`/drive/v3/files/${id}?alt=media`)).text, 'some bytes');
  const told = await call(`/drive/v3/files/${id}?fields=name,size,version`);
  assert.deepEqual(told.json, { name: 'kept', size: '10', version: '2' });
  assert.deepEqual((await readdir(join(dataDir, 'drive'))).sort(), [`${id}.bin`, `${id}.json`]);
});

test('a token needs a scope of the method, and drive.file shows only files that its client created', async (t) => {
  const { bench, call, put } = await openDrive(t);
  const id = await put('mine');
  assert.deepEqual(reasonOf(await call('/drive/v3/files', { token: '' })), [401, 'required']);
  assert.deepEqual(reasonOf(await call('/drive/v3/files', { token: 'ya29.none' })), [401, 'authError']);
  const sheetsOnly = await tokenOf(bench, spreadsheets, 'grace@example.com');
  const refused = await call('/drive/v3/files', { token: sheetsOnly });
  assert.deepEqual(reasonOf(refused), [403, 'insufficientPermissions']);
  assert.equal(refused.json.error.details[0].reason, 'ACCESS_TOKEN_SCOPE_INSUFFICIENT');

  const others = await tokenOf(bench, drive, 'grace@example.com');
  assert.deepEqual(reasonOf(await call(`/drive/v3/files/${id}`, { token: others })), [404, 'notFound']);

  await bench.control('POST /spreadsheets', {
    account: 'grace@example.com',
    title: 'Not mine',
    csv: 'a\r\n',
  });
  const ownOnly = await tokenOf(bench, driveFile, 'grace@example.com');
  assert.deepEqual((await call('/drive/v3/files', { token: ownOnly })).json.files, []);
});

test('metadata.readonly shows the metadata of a file, but not its content', async (t) => {
  const { call, put, bench } = await openDrive(t);
  const id = await put('secret');
  const reader = await tokenOf(bench, `${auth}drive.metadata.readonly`, 'grace@example.com');
  assert.equal((await call('/drive/v3/files', { token: reader })).status, 200);
  const media = await call(`/drive/v3/files/${id}?alt=media`, { token: reader });
  assert.deepEqual(reasonOf(media), [403, 'insufficientPermissions']);
  const written = await call('/drive/v3/files', { token: reader, body: { name: 'x' } });
  assert.deepEqual(reasonOf(written), [403, 'insufficientPermissions']);
});

test('parts of a file are answered by range', async (t) => {
  const { call, put } = await openDrive(t);
  const id = await put('x', '0123456789');
  const part = (range: string) => call(`/drive/v3/files/${id}?alt=media`, { headers: { range } });
  const told = async (range: string) => {
    const { status, headers, text } = await part(range);
    return [status, headers.get('content-range'), text];
  };
  assert.deepEqual(await told('bytes=2-4'), [206, 'bytes 2-4/10', '234']);
  assert.deepEqual(await told('bytes=7-'), [206, 'bytes 7-9/10', '789']);
  assert.deepEqual(await told('bytes=-3'), [206, 'bytes 7-9/10', '789']);
  assert.deepEqual(await told('bytes=8-99'), [206, 'bytes 8-9/10', '89']);
  assert.deepEqual(await told('bytes=4-2'), [200, null, '0123456789']);
  assert.deepEqual(await told('lines=1-2'), [200, null, '0123456789']);
  assert.deepEqual(reasonOf(await part('bytes=10-')), [416, 'requestedRangeNotSatisfiable']);
});

test('a resumable upload continues at its position, in both dialects, without a token', async (t) => {
  const { call } = await openDrive(t);
  const big = Buffer.alloc(256 * 1024, 'a');
  const begun = await call('/upload/drive/v3/files?uploadType=resumable', { body: { name: 'one' } });
  const at = begun.headers.get('location') ?? '';
  const piece = (range: string, body: Buffer | string) =>
    call(at, { method: 'PUT', token: '', headers: { 'content-range': range }, body });
  assert.deepEqual(reasonOf(await piece('bytes 0-2/*', 'abc')), [400, 'badRequest']);
  assert.equal((await piece('bytes */*', '')).headers.get('range'), null);
  assert.equal((await piece(`bytes 0-${big.length - 1}/*`, big)).status, 308);
  assert.deepEqual(reasonOf(await piece('bytes 5-7/8', 'abc')), [400, 'badRequest']);
  const end = await piece(`bytes ${big.length}-${big.length + 2}/${big.length + 3}`, 'end');
  assert.equal(end.json.name, 'one');
  assert.deepEqual(reasonOf(await piece('bytes */*', '')), [404, 'notFound']);

  const common = await call('/upload/drive/v3/files', {
    headers: { 'x-goog-upload-protocol': 'resumable', 'x-goog-upload-command': 'start' },
    body: { name: 'two' },
  });
  assert.equal(common.headers.get('x-goog-upload-status'), 'active');
  const url = common.headers.get('x-goog-upload-url') ?? '';
  const command = (text: string, offset: number, body: Buffer | string) =>
    call(url, {
      method: 'POST',
      token: '',
      headers: { 'x-goog-upload-command': text, 'x-goog-upload-offset': String(offset) },
      body,
    });
  await command('upload', 0, big);
  assert.equal(
    (await command('query', 0, '')).headers.get('x-goog-upload-size-received'),
    String(big.length),
  );
  const done = await command('upload, finalize', big.length, 'end');
  assert.equal(done.json.name, 'two');
  const size = await call(`/drive/v3/files/${done.json.id}?fields=size`);
  assert.equal(size.json.size, String(big.length + 3));
});

test('lists are filtered, ordered and paged', async (t) => {
  const { call, put } = await openDrive(t);
  for (const name of ['b', "it's", 'a plan', 'c']) await put(name);
  const names = async (q: string) => {
    const { status, json } = await call(`/drive/v3/files?orderBy=name&q=${encodeURIComponent(q)}`);
    return status === 200
      ? json.files.map((file: { name: string }) => file.name)
      : json.error.errors[0].reason;
  };
  assert.deepEqual(await names("name = 'it\\'s'"), ["it's"]);
  assert.deepEqual(await names("name contains 'PL' or (name = 'b' and not trashed = true)"), ['a plan', 'b']);
  assert.deepEqual(await names("mimeType != 'x' and 'root' in parents and name > 'b'"), 'invalid');
  assert.deepEqual(await names('name ='), 'invalid');
  assert.deepEqual(await names("fullText contains 'x'"), 'notImplemented');
  const first = await call('/drive/v3/files?pageSize=3&orderBy=name%20desc&fields=nextPageToken,files/name');
  assert.deepEqual(first.json.files, [{ name: "it's" }, { name: 'c' }, { name: 'b' }]);
  const second = await call(`/drive/v3/files?orderBy=name%20desc&pageToken=${first.json.nextPageToken}`);
  assert.deepEqual([second.json.files.length, second.json.nextPageToken], [1, undefined]);
  assert.deepEqual(reasonOf(await call('/drive/v3/files?pageToken=x')), [400, 'invalidParameter']);
});

test('a channel for a file or an account gets each change until it ends', async (t) => {
  const { bench, call, put } = await openDrive(t, { scopes: `${drive} ${spreadsheets}` });
  const got: { channel: unknown; state: unknown; number: unknown; token: unknown }[] = [];
  const server = createServer((request, response) => {
    const header = (name: string) => request.headers[`x-goog-${name}`];
    const told = { channel: header('channel-id'), state: header('resource-state') };
    got.push({ ...told, number: header('message-number'), token: header('channel-token') });
    response.writeHead(200).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  const told = async (count: number) => {
    while (got.length < count) await pause(5);
    return got
      .splice(0)
      .map(({ channel, state, number }) => `${channel} ${state} ${number}`)
      .toSorted();
  };
  const id = (await call('/drive/v3/files', { body: { name: 'Table', mimeType: sheetType } })).json.id;
  const other = await put('other');
  const channel = { id: 'of-file', type: 'web_hook', address, token: 'secret' };
  const watch = (body: object, file = id) => call(`/drive/v3/files/${file}/watch`, { body });
  const opened = await watch({ ...channel, expiration: Date.now() + 10 * 86_400_000 });
  assert.equal(opened.status, 200, opened.text);
  assert.ok(Number(opened.json.expiration) <= Date.now() + 86_400_000 + 1_000, 'a day at most');
  assert.deepEqual([opened.json.kind, opened.json.token], ['api#channel', 'secret']);
  const changes = { ...channel, id: 'of-account' };
  assert.deepEqual(reasonOf(await call('/drive/v3/changes/watch', { body: changes })), [
    400,
    'invalidParameter',
  ]);
  const { startPageToken } = (await call('/drive/v3/changes/startPageToken')).json;
  assert.equal(
    (await call(`/drive/v3/changes/watch?pageToken=${startPageToken}`, { body: changes })).status,
    200,
  );
  assert.deepEqual(await told(2), ['of-account sync 1', 'of-file sync 1']);

  const range = `/v4/spreadsheets/${id}/values/A1?valueInputOption=RAW`;
  assert.equal((await call(range, { method: 'PUT', body: { values: [['x']] } })).status, 200);
  assert.deepEqual(await told(2), ['of-account change 2', 'of-file update 2']);
  await call(`/drive/v3/files/${other}`, { method: 'PATCH', body: { name: 'new' } });
  assert.deepEqual(await told(1), ['of-account change 3']);

  assert.deepEqual(reasonOf(await watch(channel)), [400, 'channelIdNotUnique']);
  assert.deepEqual(reasonOf(await watch({ ...channel, id: '2', address: 'http://a.example' })), [
    400,
    'push.webhookUrlNotHttps',
  ]);
  assert.deepEqual(reasonOf(await watch({ ...channel, id: '2', address: 'https://a.example' })), [
    401,
    'push.webhookUrlUnauthorized',
  ]);
  assert.deepEqual(reasonOf(await watch({ ...channel, id: '2' }, 'none')), [404, 'notFound']);
  const { channels } = (await (await bench.ask('GET /channels')).json()) as { channels: { id: string }[] };
  assert.deepEqual(
    channels.map((one) => one.id),
    ['of-file', 'of-account'],
  );

  const stop = (resourceId: string) =>
    call('/drive/v3/channels/stop', { body: { id: 'of-file', resourceId } });
  assert.deepEqual(reasonOf(await stop('wrong')), [404, 'notFound']);
  assert.equal((await stop(opened.json.resourceId)).status, 204);
  assert.deepEqual(reasonOf(await stop(opened.json.resourceId)), [404, 'notFound']);
  await bench.control('POST /clock', { advance_s: 3601 });
  assert.deepEqual(((await (await bench.ask('GET /channels')).json()) as { channels: [] }).channels, []);
});

test('spreadsheets are files too, the same in both APIs', async (t) => {
  const { call } = await openDrive(t, { scopes: driveFile });
  const made = await call('/drive/v3/files', { body: { name: 'Table', mimeType: sheetType } });
  const { id } = made.json as { id: string };
  assert.equal((await call(`/v4/spreadsheets/${id}?fields=properties.title`)).json.properties.title, 'Table');
  const q = encodeURIComponent(`mimeType="${sheetType}" and name = "Table"`);
  assert.equal((await call(`/drive/v3/files?q=${q}`)).json.files[0].id, id);
  assert.deepEqual(reasonOf(await call(`/drive/v3/files/${id}?alt=media`)), [403, 'fileNotDownloadable']);
  assert.deepEqual(reasonOf(await call(`/drive/v3/files/${id}`, { method: 'DELETE' })), [
    501,
    'notImplemented',
  ]);
});

test('an invalid field is refused by name, and changes nothing', async (t) => {
  const { call } = await openDrive(t);
  const multipart = (type: string, body: string) =>
    call('/upload/drive/v3/files?uploadType=multipart', { headers: { 'content-type': type }, body });
  const refused = [
    await call('/drive/v3/about'),
    await call('/drive/v3/files?fields=files(nope)'),
    await call('/drive/v3/files?pageSize=0'),
    await call('/drive/v3/files', { body: '{' }),
    await call('/drive/v3/files', { body: { name: 1 } }),
    await call('/drive/v3/files', { body: { size: '1' } }),
    await call('/drive/v3/files', { body: { permissions: [] } }),
    await call('/upload/drive/v3/files?uploadType=odd', { body: 'x' }),
    await multipart('multipart/related', 'x'),
    await multipart('multipart/related; boundary=b', '--b\r\n\r\n{}\r\n--b--'),
  ].map(reasonOf);
  assert.deepEqual(refused, [
    [400, 'invalidParameter'],
    [400, 'invalidParameter'],
    [400, 'invalidParameter'],
    [400, 'badRequest'],
    [400, 'badRequest'],
    [403, 'fieldNotWritable'],
    [501, 'notImplemented'],
    [400, 'badRequest'],
    [400, 'badRequest'],
    [400, 'badRequest'],
  ]);
  assert.equal((await call('/drive/v3/nothing')).headers.get('content-type'), 'text/html; charset=UTF-8');
  assert.deepEqual((await call('/drive/v3/files')).json.files, []);
});
