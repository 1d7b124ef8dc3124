/** A call releases each resource as soon as it is no longer needed, and observers of its answer are called in time. */
// In a process of its own: it measures memory.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Credentials } from '../auth-modes/modes.ts';
import {
  bearer,
  definitionAt,
  head,
  proxyTo,
  send,
  startHttp,
  startProxy,
  startTcp,
} from './proxy.fixture.ts';

const gc: () => void = (() => {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc');
})();

/** The end may be a reset, if bytes were in transit. */
const endOf = (socket: Socket) => new Promise<void>((resolve) => socket.once('close', () => resolve()));

function heldBytes(): number {
  gc();
  return process.memoryUsage().arrayBuffers;
}

const key = async (): Promise<Credentials> => ({ type: 'API_KEY', apiKey: 'key' });
for (const [when, fresh, isAnswered] of [
  ['when its answer begins, though the answer goes on', async () => bearer('token-1'), true],
  ['as it goes by where no other credentials could be sent with it', key, false],
] as const) {
  test(`a body is released ${when}`, async (t) => {
    const sizeBytes = 900_000;
    const calls = 20;
    const taken = Promise.withResolvers<void>();
    let takenBodies = 0;
    const upstream = await startHttp((request, response) => {
      request.resume().on('end', () => {
        if (isAnswered) response.write('event');
        takenBodies += 1;
        if (takenBodies === calls) taken.resolve();
      });
    });
    const proxy = await startProxy({ definition: definitionAt(upstream.url), fresh });
    t.after(async () => {
      await proxy.close();
      await upstream.close();
    });
    const before = heldBytes();
    const answers: Promise<unknown>[] = [taken.promise];
    for (let count = 0; count < calls; count++) {
      const socket = connect(proxy.port, '127.0.0.1');
      t.after(() => socket.destroy());
      socket.write(head('POST /proxy/x', [`Content-Length: ${sizeBytes}`]));
      socket.write(Buffer.alloc(sizeBytes));
      if (isAnswered) answers.push(once(socket, 'data'));
    }
    await Promise.all(answers);
    // What the sockets have been given is free some turns later.
    const isHeld = () => heldBytes() - before > (calls * sizeBytes) / 4;
    for (let turn = 0; turn < 100 && isHeld(); turn++) await new Promise(setImmediate);
    assert.equal(isHeld(), false);
  });
}

test('a discarded response that does not end is cut off within a second', async (t) => {
  const dripping = Promise.withResolvers<Socket>();
  let connections = 0;
  const upstream = await startTcp((socket) => {
    connections += 1;
    if (connections > 1) {
      socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nok'));
      return;
    }
    socket.once('data', () => {
      socket.write('HTTP/1.1 503 No\r\nContent-Length: 1000\r\nRetry-After: 0\r\n\r\nabc');
      const timer = setInterval(() => socket.write('.'), 50);
      socket.on('close', () => clearInterval(timer));
      dripping.resolve(socket);
    });
  });
  const proxy = await proxyTo(t, upstream);
  const answer = await send(`${proxy.url}/proxy/x`, { headers: { retries: '1' } }).answer;
  assert.equal(answer.statusCode, 200);
  // The answer that the caller gets goes on.
  await endOf(await dripping.promise);
  assert.equal(answer.complete, false);
  answer.on('error', () => {}).destroy();
});

test('a discarded response ends with its caller', async (t) => {
  const dripping = Promise.withResolvers<Socket>();
  const second = Promise.withResolvers<void>();
  let connections = 0;
  const upstream = await startTcp((socket) => {
    connections += 1;
    if (connections > 1) {
      second.resolve();
      return;
    }
    socket.once('data', () => {
      socket.write('HTTP/1.1 503 No\r\nContent-Length: 1000\r\nRetry-After: 0\r\n\r\nabc');
      dripping.resolve(socket);
    });
  });
  const proxy = await proxyTo(t, upstream);
  const { request, answer } = send(`${proxy.url}/proxy/x`, { headers: { retries: '1' } });
  answer.catch(() => {});
  await second.promise;
  const closed = endOf(await dripping.promise);
  request.destroy();
  await closed;
});

test('the quota gets a refusal as soon as 16 KB of it are there, before its end', async (t) => {
  const reported = Promise.withResolvers<{ status: number; body: Buffer }>();
  const admission = { ready: undefined, waitedMs: 0, sent() {}, end() {}, retryAfterS: () => undefined };
  const quota = { admit: () => ({ ...admission, refused: reported.resolve }) };
  const upstream = await startHttp((_request, response) => {
    response.writeHead(429, { 'retry-after': '30' }).write(Buffer.alloc(20_000, 'x'));
  });
  const limits = [{ name: 'reads', per: 'owner', counts: 'read', window_s: 60, count: 10 }];
  const api = { quota: { service: new URL(upstream.url).host, reads: '^GET ', limits } };
  const definition = definitionAt(upstream.url, api);
  const proxy = await startProxy({ definition, quota: quota as never });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
  });
  const caller = connect(proxy.port, '127.0.0.1').pause();
  t.after(() => caller.destroy());
  caller.write(head('GET /proxy/x'));
  const { status, body } = await reported.promise;
  assert.deepEqual([status, body.length], [429, 16 * 1024]);
});

test('a provider that closes before the first byte of a streamed POST got nothing', async (t) => {
  const opened = Promise.withResolvers<Socket>();
  const upstream = await startTcp((socket) => opened.resolve(socket));
  const proxy = await proxyTo(t, upstream, { error_format: undefined });
  const caller = connect(proxy.port, '127.0.0.1');
  t.after(() => caller.destroy());
  caller.write(head('POST /proxy/x', ['Transfer-Encoding: chunked']));
  (await opened.promise).destroy();
  const [bytes] = (await once(caller, 'data')) as [Buffer];
  assert.match(bytes.toString(), /^HTTP\/1\.1 502 /);
  assert.match(bytes.toString(), /x-trellis-error: upstream_unreachable/i);
  assert.match(bytes.toString(), /Nothing was sent/);
});

test('a call that arrives during a stop and would have to wait for credentials is refused at once', async (t) => {
  const upstream = await startHttp((_request, response) => response.end('fine'));
  let calls = 0;
  const fresh = () => {
    calls += 1;
    return new Promise<never>(() => {});
  };
  const proxy = await startProxy({ definition: definitionAt(upstream.url), fresh });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
  });
  // A call that is under way keeps its connection open for another, which comes behind the beginning of the stop.
  const caller = connect(proxy.port, '127.0.0.1');
  t.after(() => caller.destroy());
  const first = head('GET /proxy/x').replace('Connection: close', 'Connection: keep-alive');
  caller.write(first);
  while (calls === 0) await new Promise(setImmediate);
  const other = connect(proxy.port, '127.0.0.1');
  t.after(() => other.destroy());
  other.write(first.slice(0, -2));
  await new Promise((resolve) => setTimeout(resolve, 100));
  const stopped = proxy.stop();
  other.write('\r\n');
  const [bytes] = (await once(other, 'data')) as [Buffer];
  assert.match(bytes.toString(), /^HTTP\/1\.1 503 /);
  assert.match(bytes.toString(), /x-trellis-error: unavailable/i);
  await stopped;
  assert.equal(calls, 2);
});
