import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, get, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream';
import { text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { EventStream, event } from './tail-route.ts';

let server: Server;
let stream: EventStream;
before(async () => {
  server = createServer((_request, response) => {
    response.flushHeaders();
    pipeline(stream.body, response, () => {});
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
});
after(() => server.close());

/** The answer of a stream to a reader who reads when he likes. */
async function read(given: EventStream): Promise<IncomingMessage> {
  stream = given;
  const request = get({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', agent: false });
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  return response;
}

const large = event('operation', { id: 'x', data: 'y'.repeat(256 * 1024) });

test("events have the standard's format, and the last event has the reason of the end", async () => {
  const open = new EventStream({ stallMs: 1_000, lingerMs: 60_000 });
  await open.send(event('operation', { id: 'a-1', data: { text: 'two\nlines' } }));
  const response = await read(open);
  open.end('stopping');
  open.end('key');
  await open.send('nothing');
  const sent = await text(response);
  assert.ok(sent.startsWith('id: a-1\nevent: operation\ndata: {"text":"two\\nlines"}\n\nevent: end\n'), sent);
  assert.match(sent, /\ndata: \{"reason":"stopping","message":"[^"]+"\}\n\n$/);
  assert.ok(open.body.destroyed);
});

test('a stream to a slow reader ends with `too_slow`, and buffers little', async () => {
  const open = new EventStream({ stallMs: 50, lingerMs: 60_000 });
  const response = await read(open);
  let sent = 0;
  for (; !open.ended.aborted; sent += 1) await open.send(large);
  // What sockets on one machine hold, and no more.
  assert.ok(sent > 1 && sent < 200, String(sent));
  assert.ok(open.body.readableLength < 2 * large.length);
  const got = await text(response);
  assert.equal(got.split(large).length, sent + 1);
  assert.match(got, /event: end\ndata: \{"reason":"too_slow"/);
});

test('a reader that is slow for less than that gets everything', async () => {
  const open = new EventStream({ stallMs: 60_000, lingerMs: 60_000 });
  const response = await read(open);
  const sending = (async () => {
    for (let n = 0; n < 100; n += 1) await open.send(large);
    open.end('stopping');
  })();
  let length = 0;
  for await (const chunk of response) {
    length += (chunk as Buffer).length;
    if (Math.random() < 0.01) await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await sending;
  assert.ok(length > 100 * large.length);
});

test('the stream ends at once when its reader disconnects', async () => {
  const open = new EventStream({ stallMs: 60_000, lingerMs: 60_000 });
  const response = await read(open);
  const sending = (async () => {
    while (!open.ended.aborted) await open.send(large);
  })();
  response.destroy();
  await sending;
  assert.ok(open.body.destroyed);
});
