import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { definitionAt, head, startHttp, startProxy } from './proxy.fixture.ts';
import { Outflow, watchReading } from './response.ts';

/** The answer to a caller that does not read, and the caller. */
async function answering(t: TestContext): Promise<{ response: ServerResponse; caller: Socket }> {
  const server = createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const caller = connect((server.address() as AddressInfo).port, '127.0.0.1').pause();
  caller.on('error', () => {});
  const arrived = once(server, 'request');
  caller.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
  const [, response] = (await arrived) as [unknown, ServerResponse];
  t.after(() => {
    caller.destroy();
    server.closeAllConnections();
    server.close();
  });
  return { response, caller };
}

test('a caller that leaves the end of a response unread is reported, even if no write had to wait', async (t) => {
  const { response } = await answering(t);
  const stalled = Promise.withResolvers<void>();
  const outflow = new Outflow(response, {
    events: { onDrain() {}, onStall: stalled.resolve, onBodyFailure: stalled.reject },
    makeDecoder: undefined,
    maxBytes: Number.POSITIVE_INFINITY,
    idleMs: 100,
  });
  const part = Buffer.alloc(8 * 1024);
  // Until the kernel takes no more, which makes no write wait yet.
  do {
    assert.ok(outflow.write(part));
    await new Promise(setImmediate);
  } while (response.writableLength === 0);
  outflow.end([]);
  await stalled.promise;
});

test('a caller that reads on, however slowly, is not reported', async (t) => {
  const { response, caller } = await answering(t);
  const part = Buffer.alloc(64 * 1024);
  while (response.write(part));
  let stalls = 0;
  watchReading(response, { idleMs: 1_500, onStall: () => (stalls += 1) });
  response.on('drain', () => {
    while (!response.writableEnded && response.write(part));
  });
  const closed = once(response, 'close');
  // The caller reads the data that has arrived, and takes longer than that in total.
  for (let turn = 0; turn < 10; turn++) {
    await new Promise((resolve) => setTimeout(resolve, 200));
    caller.resume();
    await once(response, 'drain');
    caller.pause();
  }
  response.end();
  caller.resume();
  await closed;
  assert.equal(stalls, 0);
});

for (const [what, headers, body] of [
  ['a small body that is large decoded', ['Decompress: true'], gzipSync(Buffer.alloc(32 * 1024 * 1024))],
  ['a large one', [], Buffer.alloc(32 * 1024 * 1024)],
] as const) {
  test(`a call ends when its caller does not read on: ${what}`, async (t) => {
    const upstream = await startHttp((_request, response) => {
      const encoding = headers.length > 0 ? { 'content-encoding': 'gzip' } : {};
      response.on('error', () => {}).writeHead(200, { 'content-length': body.length, ...encoding });
      response.end(body);
    });
    const over = Promise.withResolvers<unknown>();
    const activity = { log: ({ details }: { details?: unknown }) => over.resolve(details) };
    const proxy = await startProxy({ definition: definitionAt(upstream.url), activity });
    t.after(async () => {
      await proxy.close();
      await upstream.close();
    });
    const caller = connect(proxy.port, '127.0.0.1').pause();
    caller.on('error', () => {});
    caller.write(head('GET /proxy/x', ['Timeouts: idle=0.2', ...headers]));
    assert.deepEqual(await over.promise, { outcome: 'client_stalled' });
    caller.destroy();
  });
}
