import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { z } from 'zod';
import { brandNames } from '../brand.ts';
import { AppError } from '../errors.ts';
import { createLog } from '../log.ts';
import { RawClient } from './raw-client.fixture.ts';
import { createHttp } from './server.ts';

/** A server with an interceptor of the test below `/proxy/`, and with a route `POST /echo` that reads a body. */
async function serve(
  t: TestContext,
  interceptor: RequestListener = (_request, response) => response.end('ok'),
) {
  const unknown = async () => {
    throw new AppError('unknown_account');
  };
  const app = await createHttp({
    config: { brand: brandNames('trellis'), trustedProxies: [], baseUrl: 'http://localhost' },
    log: createLog({ level: 'silent', format: 'json' }),
    authenticate: { key: unknown, session: unknown },
    isRootAlias: () => false,
    interceptor: {
      takes: ({ url }) => url?.startsWith('/proxy/') === true,
      handle: interceptor,
      stopping() {},
      closing() {},
    },
  });
  const config = { access: { by: 'anyone' } } as const;
  app.post('/echo', { config, schema: { body: z.unknown() } }, ({ body }) => body);
  app.get('/now', { config }, () => 'now');
  app.post('/closed', { config: { access: { by: 'key', scope: 'records:read' } } }, () => 'opened');
  await app.listen({ host: '127.0.0.1', port: 0 });
  t.after(async () => {
    app.server.closeAllConnections();
    await app.close();
  });
  const { port } = app.server.address() as AddressInfo;
  return { server: app.server, client: () => new Client(t, port) };
}

class Client extends RawClient {
  /** Of the only answer so far. */
  get refusal(): { code: string; marker: string | undefined; status: string; closes: boolean } {
    const body = this.text.slice(this.text.indexOf('\r\n\r\n') + 4);
    return {
      code: (JSON.parse(body) as { error: { code: string } }).error.code,
      marker: /^x-trellis-error: (\S+)\r$/im.exec(this.text)?.[1],
      status: this.text.slice(9, 12),
      closes: /^connection: close\r$/im.test(this.text),
    };
  }
}

const refusal = (status: string, code: string) => ({ code, marker: code, status, closes: true });

/** Sends a body until the connection ends; how much of it the other side's kernel has taken. */
async function flood(socket: Socket): Promise<number> {
  const part = Buffer.concat([Buffer.from('10000\r\n'), Buffer.alloc(65536), Buffer.from('\r\n')]);
  let count = 0;
  while (!socket.destroyed) {
    if (!socket.write(part)) {
      await new Promise((resolve) => socket.once('drain', resolve).once('close', resolve));
    }
    count += part.length;
  }
  return count;
}

test('an invalid request is refused with our error and marker, and the connection is closed', async (t) => {
  const { client } = await serve(t);
  const cases = [
    ['nonsense\n\n', '400', 'malformed_request'],
    ['GET /now HTTP/1.1\n\n', '400', 'malformed_request'],
    ['GET /now HTTP/1.1\nHost: a\nHost: a\n\n', '400', 'malformed_request'],
    ['POST /echo HTTP/1.0\nConnection: keep-alive\nTransfer-Encoding: chunked\n\n0\n\nGET /now HTTP/1.0\n\n', '400', 'malformed_request'],
    [`GET /now HTTP/1.1\nHost: a\nX: ${'a'.repeat(20_000)}\n\n`, '431', 'headers_too_large'],
    [`GET /now HTTP/1.1\nHost: a\n${'a:\n'.repeat(1_000)}\n`, '431', 'headers_too_large'],
    ['POST /echo HTTP/1.1\nHost: a\nContent-Type: application/json\nTransfer-Encoding: chunked\n\nzz\n', '400', 'malformed_request'],
    ['CONNECT a:1 HTTP/1.1\nHost: a:1\n\n', '405', 'method_not_allowed'],
  ] as const; // biome-ignore format: a table
  for (const [bytes, status, code] of cases) {
    const caller = client().send(bytes);
    await caller.closed;
    assert.deepEqual(caller.refusal, refusal(status, code), bytes.slice(0, 40));
  }
});

test('a refusal never gets into an answer that is under way: the connection is reset', async (t) => {
  const { client } = await serve(t, (_request, response) => {
    response.writeHead(200, { 'content-length': '245' }).write('begun');
  });
  for (const bytes of ['nonsense\n\n', 'CONNECT a:1 HTTP/1.1\nHost: a:1\n\n']) {
    const caller = await client().send('GET /proxy/x HTTP/1.1\nHost: a\n\n').until('begun');
    caller.send(bytes);
    await caller.closed;
    assert.equal(caller.error?.code, 'ECONNRESET');
    assert.ok(caller.text.endsWith('begun'));
  }
  const sender = client().send('POST /proxy/x HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n3\nabc\n');
  (await sender.until('begun')).send('zz\n');
  await sender.closed;
  assert.ok(sender.text.endsWith('begun'));
});

test('an error of unreadable bytes after a request is not sent as its response', async (t) => {
  const arrived = Promise.withResolvers<void>();
  const { client } = await serve(t, () => arrived.resolve());
  const caller = client().send('DELETE /proxy/x HTTP/1.1\nHost: a\n\n');
  await arrived.promise;
  caller.send('nonsense\n\n');
  await caller.closed;
  assert.deepEqual([caller.text, caller.error?.code], ['', 'ECONNRESET']);
});

test('a slow body is refused by a route, but not by the interceptor', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const taken = Promise.withResolvers<void>();
  const { server, client } = await serve(t, () => taken.resolve());
  const body = 'Host: a\nContent-Type: application/json\nContent-Length: 1000\n\nabc';
  const upload = client().send(`POST /proxy/x HTTP/1.1\n${body}`);
  await taken.promise;
  const routed = client().send(`POST /nothing HTTP/1.1\n${body}`);
  await once(server, 'request');
  t.mock.timers.tick(299_000);
  const quick = await client().send('GET /now HTTP/1.1\nHost: a\n\n').until('now');
  assert.equal(routed.text, '');
  t.mock.timers.tick(1_000);
  await routed.closed;
  assert.deepEqual(routed.refusal, refusal('408', 'request_timeout'));
  assert.equal(upload.socket.destroyed || quick.socket.destroyed, false);
});

test('behind an answer a body without end is read for a second at most, and little of it', async (t) => {
  const { server, client } = await serve(t, (_request, response) => {
    response.writeHead(401, { 'content-length': '2' }).end('no');
  });
  const paths = ['/proxy/x', '/closed'];
  for (const path of paths) {
    const accepted = once(server, 'connection') as Promise<[Socket]>;
    const caller = client().send(`POST ${path} HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n`);
    const [socket] = await accepted;
    await flood(caller.socket);
    assert.match(caller.text, /^HTTP\/1\.1 401 /);
    assert.ok(socket.bytesRead < 2 * 1024 * 1024, `${path}: ${socket.bytesRead} bytes were read`);
  }
});

test('a caller that sends the rest behind an error keeps its connection, or gets the whole answer', async (t) => {
  const { client } = await serve(t, ({ headers }, response) => {
    if (headers['x-last'] !== undefined) response.setHeader('connection', 'close');
    response.writeHead(401, { 'content-length': '2' }).end('no');
  });
  const head = 'POST /proxy/x HTTP/1.1\nHost: a\nContent-Length: 100000\n';
  const kept = await client().send(`${head}\n`).until('no');
  kept.send(`${'x'.repeat(100_000)}GET /now HTTP/1.1\nHost: a\n\n`);
  await kept.until('now');
  const last = await client().send(`${head}X-Last: yes\n\n`).until('no');
  last.send('x'.repeat(100_000)).socket.end();
  await last.closed;
  assert.equal(last.error, undefined);
});

test('a body that was being read is read to its end after the response', async (t) => {
  const { client } = await serve(t, (request, response) => {
    request.once('data', () => response.writeHead(413, { 'content-length': '3' }).end('big'));
  });
  const size = 4 * 1024 * 1024;
  const caller = client().send(`POST /proxy/x HTTP/1.1\nHost: a\nContent-Length: ${size}\n\n`);
  await caller.send('begun').until('big');
  caller.send('x'.repeat(size - 5)).send('GET /now HTTP/1.1\nHost: a\n\n');
  await caller.until('now');
});

test('requests of one connection are done one after the other', async (t) => {
  const done: string[] = [];
  const first = Promise.withResolvers<void>();
  const { server, client } = await serve(t, async ({ method, url }, response) => {
    done.push(`${method} ${url}`);
    if (method === 'PUT') await first.promise;
    done.push('answered');
    response.end(`for ${method}`);
  });
  const all = Promise.withResolvers<void>();
  let arrived = 0;
  server.on('request', () => {
    arrived += 1;
    if (arrived === 3) all.resolve();
  });
  const caller = client().send('PUT /proxy/a HTTP/1.1\nHost: a\nContent-Length: 3\n\nabc');
  caller.send('DELETE /proxy/a HTTP/1.1\nHost: a\n\nPOST /proxy/b HTTP/1.1\nHost: a\nContent-Length: 1\n\nx');
  await all.promise;
  assert.deepEqual(done, ['PUT /proxy/a']);
  first.resolve();
  await caller.until('for POST');
  assert.deepEqual(done, [
    'PUT /proxy/a',
    'answered',
    'DELETE /proxy/a',
    'answered',
    'POST /proxy/b',
    'answered',
  ]);
  assert.match(caller.text, /for PUT[\s\S]*for DELETE[\s\S]*for POST$/);
});

test('a client that pipelines requests and reads nothing is not read, and gets every response once it reads', async (t) => {
  let answered = 0;
  let arrived = 0;
  let max = 0;
  const first = Promise.withResolvers<void>();
  const { server, client } = await serve(t, async (_request, response) => {
    if (answered === 0) await first.promise;
    answered += 1;
    response.end('.');
  });
  server.on('request', () => {
    arrived += 1;
    max = Math.max(max, arrived - answered);
  });
  const pair =
    'GET /proxy/x HTTP/1.1\r\nHost:a\r\n\r\nPOST /proxy/x HTTP/1.1\r\nHost:a\r\nContent-Length:1\r\n\r\nx';
  const count = 10_000;
  const caller = client();
  await new Promise((resolve) => caller.socket.write(pair.repeat(count / 2), resolve));
  // By then all that the kernel holds could have been read.
  for (let turn = 0; turn < 100; turn += 1) await setImmediate();
  first.resolve();
  while (answered < count) await setImmediate();
  // Sixteen, and the one that is being done.
  assert.equal(max, 17);
  await caller.until('.');
  // Every head was read where the one before it ended.
  caller.send('GET /now HTTP/1.1\nHost: a\n\n');
  await caller.until('now');
  assert.equal(caller.text.match(/HTTP\/1\.1 200 /g)?.length, count + 1);
});

test('a client that pipelines thousands of requests does not delay others', async (t) => {
  let ahead = 0;
  const { server, client } = await serve(t, (_request, response) => {
    ahead += 1;
    response.end('.');
  });
  const senders = Array.from({ length: 20 }, () => client());
  const flood = 'GET /proxy/x HTTP/1.1\nHost: a\n\n'.repeat(5_000);
  for (const sender of senders) sender.send(flood);
  await senders[19]!.until('.');
  for (let asked = 0; asked < 5; asked++) {
    const accepted = once(server, 'connection');
    const caller = client().send('GET /now HTTP/1.1\nHost: a\n\n');
    await accepted;
    const before = ahead;
    await caller.until('now');
    assert.ok(ahead - before < 1_000, `${ahead - before} were done first`);
  }
  assert.ok(ahead < senders.length * 5_000, 'the flood was over before');
});

test('an invalid request after many pipelined ones ends the connection', async (t) => {
  const { client } = await serve(t);
  const caller = client().send(`${'GET /proxy/x HTTP/1.1\nHost: a\n\n'.repeat(100)}nonsense\n\n`);
  await caller.closed;
  assert.match(caller.text, /^HTTP\/1\.1 200 /);
});

test('a thousand headers are read', async (t) => {
  const { client } = await serve(t, ({ rawHeaders }, response) => response.end(`${rawHeaders.length / 2}.`));
  await client()
    .send(`GET /proxy/x HTTP/1.1\nHost: a\n${'a:\n'.repeat(999)}\n`)
    .until('1000.');
});

test('a client that waits for 100 gets it when its body is read, and not if it is refused', async (t) => {
  const { client } = await serve(t, async (request, response) => {
    if (request.headers.authorization === undefined) {
      response.writeHead(401, { 'content-length': '2' }).end('no');
      return;
    }
    let size = 0;
    for await (const part of request) size += (part as Buffer).length;
    response.end(`${size} bytes`);
  });
  const head = 'POST /proxy/x HTTP/1.1\nHost: a\nExpect: 100-continue\nContent-Length: 4\n';
  const refused = await client().send(`${head}\n`).until('no');
  await refused.closed;
  assert.match(refused.text, /^HTTP\/1\.1 401 [\s\S]*connection: close/i);
  const told = await client().send(`${head}Authorization: key\n\n`).until('100 Continue\r\n\r\n');
  await told.send('abcd').until('4 bytes');
  const type = 'Content-Type: application/json\n';
  const routed = client().send(`${head.replace('/proxy/x', '/echo')}${type}\n`);
  await (await routed.until('100 Continue\r\n\r\n')).send('1234').until('\r\n\r\n1234');
  const stranger = client().send(`${head.replace('/proxy/x', '/closed')}${type}\n`);
  await stranger.closed;
  assert.match(stranger.text, /^HTTP\/1\.1 401 /);
});

test('a target that names a host is taken by its path', async (t) => {
  const { client } = await serve(t, ({ url }, response) => response.end(`at ${url}.`));
  const ask = (target: string) => client().send(`GET ${target} HTTP/1.1\nHost: a\n\n`);
  await ask('http://proxy.example:3003/proxy/a%2Fb?c=%zz').until('at /proxy/a%2Fb?c=%zz.');
  await ask('HTTPS://proxy.example/now').until('\r\n\r\nnow');
  await ask('http://proxy.example').until('HTTP/1.1 ');
});

test('a preflight allows every method that is served', async (t) => {
  const { client } = await serve(t);
  const asked = client().send('OPTIONS /now HTTP/1.1\nHost: a\nAccess-Control-Request-Method: MKCOL\n\n');
  await asked.until('\r\n\r\n');
  const allowed = /access-control-allow-methods: (.*)\r/i.exec(asked.text)?.[1]?.split(', ') ?? [];
  for (const method of ['GET', 'PATCH', 'MKCOL', 'QUERY']) assert.ok(allowed.includes(method), method);
});
