import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { bytesOf, exchange, head, proxyTo, send, startHttp, startRecorder } from './proxy.fixture.ts';

test('the provider gets the path, the query and the headers byte for byte', async (t) => {
  const upstream = await startRecorder();
  const proxy = await proxyTo(t, upstream);
  for (const path of [
    "/v4/spreadsheets/S/values/'Sheet1'!A1:append?a=%2f&b=+%20&ranges=A1&ranges=B2",
    '/v4/x/%27Q1%2F2024%20data%27%21A1%3AB2/',
    '/bad%zz/{curly}|pipe^"quote"<>`',
    '/a//b/:batchUpdate?',
  ]) {
    const answer = await exchange(
      proxy.port,
      head(`GET /proxy${path}`, ['Accept: a/b', 'accept: c/d', 'X-Trace: no']),
    );
    assert.match(answer, /^HTTP\/1\.1 200 OK\r\n/);
    const [requestLine, ...headers] = upstream.heads.at(-1)?.split('\r\n') ?? [];
    assert.equal(requestLine, `GET ${path} HTTP/1.1`);
    assert.deepEqual(headers, [
      `host: ${upstream.url.slice(7)}`,
      'connection: keep-alive',
      'Accept: a/b',
      'accept: c/d',
      'Authorization: Bearer token-1',
    ]);
  }
});

test('status, reason and headers come back as the provider sent them, and its hop stays behind', async (t) => {
  const upstream = await startRecorder(
    'HTTP/1.1 207 Quite Special\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nX-Latin: \xe9\r\nDate: then\r\nETag: "x"\r\n' +
      'Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=9\r\nX-Trellis-Error: forged\r\n' +
      'Access-Control-Allow-Origin: https://x.example\r\nAlt-Svc: h3\r\nLocation: /next\r\nContent-Length: 2\r\n\r\nok',
  );
  const proxy = await proxyTo(t, upstream);
  const [headers = '', body] = (await exchange(proxy.port, head('GET /proxy/x'))).split('\r\n\r\n');
  const [statusLine, ...lines] = headers.split('\r\n');
  assert.equal(statusLine, 'HTTP/1.1 207 Quite Special');
  assert.deepEqual(
    lines.filter((line) => !/^(access-control-|connection:)/i.test(line)),
    [
      'Set-Cookie: a=1',
      'set-cookie: b=2',
      'X-Latin: \xe9',
      'Date: then',
      'ETag: "x"',
      `Location: ${upstream.url}/next`,
      'Content-Length: 2',
    ],
  );
  assert.deepEqual(
    lines.filter((line) => /^access-control-allow-origin/i.test(line)),
    ['access-control-allow-origin: *'],
  );
  assert.equal(body, 'ok');
});

test('HEAD, 204 and 304 keep their headers and have no body', async (t) => {
  const upstream = await startHttp((request, response) => {
    const status = Number(request.url?.slice(1));
    response.writeHead(status, status === 204 ? { etag: '"e"' } : { etag: '"e"', 'content-length': '1234' });
    response.end();
  });
  const proxy = await proxyTo(t, upstream);
  for (const [method, status] of [
    ['HEAD', 200],
    ['GET', 204],
    ['GET', 304],
  ] as const) {
    const [headers = '', ...body] = (await exchange(proxy.port, head(`${method} /proxy/${status}`))).split(
      '\r\n\r\n',
    );
    assert.match(headers, new RegExp(`^HTTP/1\\.1 ${status} `));
    assert.match(headers, /\r\netag: "e"/);
    assert.equal(/content-length: 1234/.test(headers), status !== 204);
    assert.doesNotMatch(headers, /transfer-encoding/i);
    assert.deepEqual(body, ['']);
  }
});

test('a compressed answer passes as it is, and numbers beyond 2^53 with it', async (t) => {
  const packed = gzipSync('{"big":9007199254740993123}');
  const upstream = await startHttp((request, response) => {
    assert.equal(request.headers['accept-encoding'], 'gzip');
    response.writeHead(200, { 'content-encoding': 'gzip', 'content-type': 'application/json' }).end(packed);
  });
  const proxy = await proxyTo(t, upstream);
  const answer = await send(`${proxy.url}/proxy/x`, { headers: { 'accept-encoding': 'gzip' } }).answer;
  assert.equal(answer.headers['content-encoding'], 'gzip');
  assert.deepEqual(await bytesOf(answer), packed);
});

test('every method and content type is forwarded, with its body', async (t) => {
  const upstream = await startHttp(async (request, response) => {
    const body = await bytesOf(request);
    const { 'content-type': type, 'content-length': length, 'transfer-encoding': coding } = request.headers;
    response.end(JSON.stringify([request.method, type, length, coding, body.toString('latin1')]));
  });
  const proxy = await proxyTo(t, upstream);
  for (const [method, type, body] of [
    ['POST', 'application/json', '{"broken": '],
    ['PUT', 'json', 'not a media type'],
    ['PATCH', 'multipart/related; boundary=b', '--b\r\n\r\n\x00\xff\r\n--b--'],
    ['DELETE', 'text/plain', 'why'],
    ['PROPFIND', 'application/xml', '<a/>'],
    ['REPORT', 'application/xml', '<b/>'],
    ['QUERY', 'application/sql', 'select 1'],
    ['OPTIONS', 'text/plain', 'x'],
    ['GET', 'text/plain', 'odd but allowed'],
  ] as const) {
    const bytes = Buffer.from(body, 'latin1');
    const whole = send(`${proxy.url}/proxy/x`, {
      method,
      body: bytes,
      headers: { 'content-type': type, 'content-length': String(bytes.length) },
    });
    assert.deepEqual(JSON.parse((await bytesOf(await whole.answer)).toString()), [
      method,
      type,
      String(bytes.length),
      null,
      body,
    ]);
    const headers = { 'content-type': type, 'transfer-encoding': 'chunked' };
    const chunked = send(`${proxy.url}/proxy/x`, { method, body: Readable.from([bytes]), headers });
    assert.deepEqual(JSON.parse((await bytesOf(await chunked.answer)).toString()), [
      method,
      type,
      null,
      'chunked',
      body,
    ]);
  }
  const empty = send(`${proxy.url}/proxy/x`, { method: 'POST', headers: { 'content-length': '0' } });
  assert.deepEqual(JSON.parse((await bytesOf(await empty.answer)).toString()), ['POST', null, '0', null, '']);
});

test('the first bytes of an answer arrive while the provider still holds the rest back', async (t) => {
  let release = () => {};
  const upstream = await startHttp((_request, response) => {
    response.write('first');
    release = () => response.end('second');
  });
  const proxy = await proxyTo(t, upstream);
  const answer = await send(`${proxy.url}/proxy/x`).answer;
  const [first] = (await once(answer, 'data')) as [Buffer];
  assert.equal(first.toString(), 'first');
  release();
  assert.equal((await bytesOf(answer)).toString(), 'second');
});

test('the headers of an answer arrive before its body has begun', async (t) => {
  let release = () => {};
  const upstream = await startHttp((_request, response) => {
    response.writeHead(200, { 'x-early': 'yes' }).flushHeaders();
    release = () => response.end('body');
  });
  const proxy = await proxyTo(t, upstream);
  const answer = await send(`${proxy.url}/proxy/x`).answer;
  assert.equal(answer.headers['x-early'], 'yes');
  release();
  assert.equal((await bytesOf(answer)).toString(), 'body');
});

test('trailers of an answer are relayed', async (t) => {
  const upstream = await startHttp((_request, response) => {
    response.writeHead(200, { trailer: 'X-Sum' });
    response.write('body');
    response.addTrailers({ 'X-Sum': '42' });
    response.end();
  });
  const proxy = await proxyTo(t, upstream);
  const answer = await send(`${proxy.url}/proxy/x`).answer;
  await bytesOf(answer);
  assert.deepEqual(answer.trailers, { 'x-sum': '42' });
});

test('100 MB pass in both directions at once, unchanged, and never more than some MB of them are under way', async (t) => {
  const block = randomBytes(1024 * 1024);
  const upstream = await startHttp((request, response) => {
    response.writeHead(200);
    request.pipe(response);
  });
  const proxy = await proxyTo(t, upstream);
  const up = createHash('sha256');
  const down = createHash('sha256');
  let sentBytes = 0;
  let receivedBytes = 0;
  let maxUnderWay = 0;
  async function* blocks() {
    for (let count = 0; count < 100; count++) {
      up.update(block);
      sentBytes += block.length;
      maxUnderWay = Math.max(maxUnderWay, sentBytes - receivedBytes);
      yield block;
    }
  }
  const body = Readable.from(blocks(), { highWaterMark: 1 });
  const { answer } = send(`${proxy.url}/proxy/x`, { method: 'POST', body });
  for await (const chunk of await answer) {
    receivedBytes += (chunk as Buffer).length;
    down.update(chunk as Buffer);
  }
  assert.equal(receivedBytes, 100 * block.length);
  assert.equal(down.digest('hex'), up.digest('hex'));
  // The buffers of four connections in the kernel, the client's and the provider's own, and ours.
  assert.ok(maxUnderWay < 48 * 1024 * 1024, `${maxUnderWay} bytes were held at once`);
});

test('a caller that does not read stops the provider from sending', async (t) => {
  const block = Buffer.alloc(64 * 1024);
  let written = 0;
  const stalled = Promise.withResolvers<void>();
  const upstream = await startHttp(async (_request, response) => {
    response.on('error', () => {});
    for (;;) {
      written += block.length;
      if (!response.write(block)) {
        const isDrained = await Promise.race([once(response, 'drain').then(() => true), idle()]);
        if (isDrained !== true) break;
      }
      if (written > 200 * 1024 * 1024) break;
    }
    stalled.resolve();
  });
  const proxy = await proxyTo(t, upstream);
  const socket = connect(proxy.port, '127.0.0.1');
  socket.on('error', () => {});
  socket.pause();
  socket.write(head('GET /proxy/endless'));
  await stalled.promise;
  socket.destroy();
  // Kernel buffers on two connections take some MB; a proxy that reads ahead would take all.
  assert.ok(written < 50 * 1024 * 1024, `${written} bytes were taken from the provider`);
});

/** Long enough for a reader with free space to read more; a slow machine only makes the test easier to pass. */
function idle(): Promise<false> {
  return new Promise((resolve) => setTimeout(resolve, 300, false));
}
