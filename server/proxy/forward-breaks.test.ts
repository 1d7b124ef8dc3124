import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { test } from 'node:test';
import {
  bytesOf,
  definitionAt,
  exchange,
  head,
  proxyTo,
  send,
  startHttp,
  startProxy,
  startTcp,
} from './proxy.fixture.ts';

test('a caller that hangs up while it waits ends the request to the provider', async (t) => {
  const arrived = Promise.withResolvers<IncomingMessage>();
  const upstream = await startHttp((request) => arrived.resolve(request));
  const proxy = await proxyTo(t, upstream);
  const { request, answer } = send(`${proxy.url}/proxy/slow`);
  answer.catch(() => {});
  const seen = await arrived.promise;
  const closed = once(seen.socket, 'close');
  request.destroy();
  await closed;
});

test('a caller that hangs up in the middle of the answer ends the request to the provider', async (t) => {
  const arrived = Promise.withResolvers<IncomingMessage>();
  const upstream = await startHttp((request, response) => {
    response.write('some');
    arrived.resolve(request);
  });
  const proxy = await proxyTo(t, upstream);
  const { request, answer } = send(`${proxy.url}/proxy/slow`);
  const message = await answer;
  message.on('error', () => {});
  const closed = once((await arrived.promise).socket, 'close');
  request.destroy();
  await closed;
});

test('a caller that breaks off in the middle of its body breaks the request off too', async (t) => {
  const broken = Promise.withResolvers<{ isComplete: boolean; seen: number }>();
  const upstream = await startHttp((request) => {
    let seen = 0;
    request.on('data', (chunk: Buffer) => {
      seen += chunk.length;
      if (seen === 5) socket.destroy();
    });
    request.on('error', () => {}).on('close', () => broken.resolve({ isComplete: request.complete, seen }));
  });
  const proxy = await proxyTo(t, upstream);
  const socket = connect(proxy.port, '127.0.0.1');
  socket.write(`${head('POST /proxy/x', ['Transfer-Encoding: chunked'])}5\r\nhello\r\n`);
  assert.deepEqual(await broken.promise, { isComplete: false, seen: 5 });
});

for (const [framing, bytes] of [
  ['with a length', 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf'],
  ['in chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n'],
] as const) {
  test(`an answer ${framing} that the provider breaks off is broken off for the caller`, async (t) => {
    const upstream = await startTcp((socket) => socket.once('data', () => socket.end(bytes)));
    const proxy = await proxyTo(t, upstream);
    const answer = await send(`${proxy.url}/proxy/x`).answer;
    await assert.rejects(bytesOf(answer), { code: 'ECONNRESET' });
    assert.equal(answer.complete, false);
  });
}

test('a provider that answers before the body has come is heard, and the connection stays of use', async (t) => {
  const upstream = await startTcp((socket) =>
    socket.once('data', () => socket.write('HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig')),
  );
  const proxy = await proxyTo(t, upstream);
  const body = 'x'.repeat(4 * 1024 * 1024);
  const first = head('POST /proxy/x', [`Content-Length: ${body.length}`]).replace('close', 'keep-alive');
  const answer = await exchange(proxy.port, first + body + head('GET /proxy/y'));
  assert.equal(answer.match(/HTTP\/1\.1 413 Too Large\r\n/g)?.length, 2);
  assert.equal(answer.match(/\r\n\r\nbig/g)?.length, 2);
});

async function errorOf(answer: Promise<IncomingMessage>) {
  const message = await answer;
  const { error } = JSON.parse((await bytesOf(message)).toString());
  return {
    status: message.statusCode,
    marker: message.headers['x-trellis-error'],
    reason: error.details[0].reason,
  };
}

test('the error distinguishes an unreachable provider from one that broke off after the request', async (t) => {
  const gone = await startHttp(() => {});
  const nobody = gone.url;
  await gone.close();
  const upstream = await startTcp((socket) => socket.once('data', () => socket.destroy()));
  const proxy = await proxyTo(t, upstream);
  const unreachable = await startProxy({ definition: definitionAt(nobody) });
  t.after(() => unreachable.close());
  const post = { method: 'POST', body: Buffer.from('{}') };
  assert.deepEqual(await errorOf(send(`${unreachable.url}/proxy/x`, post).answer), {
    status: 502,
    marker: 'upstream_unreachable',
    reason: 'UPSTREAM_UNREACHABLE',
  });
  assert.deepEqual(await errorOf(send(`${proxy.url}/proxy/x`, post).answer), {
    status: 502,
    marker: 'upstream_unknown_outcome',
    reason: 'UPSTREAM_UNKNOWN_OUTCOME',
  });
  assert.equal((await errorOf(send(`${proxy.url}/proxy/x`).answer)).marker, 'upstream_unreachable');
});

test('a provider that does not answer in time is a 504, and one that stalls later is broken off', async (t) => {
  const upstream = await startHttp((request, response) => {
    if (request.url === '/stalls') response.write('some');
  });
  const proxy = await proxyTo(t, upstream, { timeouts: { headers_ms: 200, body_idle_ms: 200 } });
  assert.equal((await errorOf(send(`${proxy.url}/proxy/silent`).answer)).marker, 'upstream_timeout');
  const answer = await send(`${proxy.url}/proxy/stalls`).answer;
  await assert.rejects(bytesOf(answer), { code: 'ECONNRESET' });
});
