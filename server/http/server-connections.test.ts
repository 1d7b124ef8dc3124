import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { RawClient } from './raw-client.fixture.ts';
import { limitConnections } from './server.ts';

/** A server with ten places, whose answers to `/slow` come when the test says so. */
async function serve(t: TestContext) {
  const slow: ServerResponse[] = [];
  const server = createServer((request, response) => {
    if (request.url === '/slow') slow.push(response);
    else response.end('ok');
  });
  server.on('upgrade', (_request, socket) =>
    socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n'),
  );
  const upgraded: RawClient[] = [];
  limitConnections(server, 10);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => {
    for (const { socket } of upgraded) socket.destroy();
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const open = async () => {
    const client = new RawClient(t, port);
    await once(client.socket, 'connect');
    return client;
  };
  const ask = (client: RawClient, path: string) => client.send(`GET ${path} HTTP/1.1\nHost: a\n\n`);
  return { slow, upgraded, open, ask };
}

test('if all places are taken, a connection without a whole request is closed first, then an idle one', async (t) => {
  const { slow, upgraded, open, ask } = await serve(t);
  const socket = await open();
  upgraded.push(socket);
  socket.send('GET / HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: x\n\n');
  await socket.until('101');
  const between = await open();
  await ask(between, '/').until('ok');
  const busy = await open();
  ask(busy, '/slow');
  while (slow.length === 0) await new Promise(setImmediate);
  const half = await Promise.all(Array.from({ length: 7 }, open));
  for (const client of half) client.send('GET / HTTP/1.1\nHost: ');
  // As many new connections as there are places, one after the other; each keeps its place until another one needs it.
  const newcomers: RawClient[] = [];
  for (const client of half) {
    const newcomer = await open();
    newcomers.push(newcomer);
    await ask(newcomer, '/').until('ok');
    await client.closed;
  }
  assert.equal(between.socket.closed, false);
  await ask(await open(), '/').until('ok');
  await between.closed;
  slow[0]?.end('late');
  await busy.until('late');
  assert.equal(socket.socket.closed, false);
});

test('a new connection is refused while each open one has a request in flight', async (t) => {
  const { slow, open, ask } = await serve(t);
  const clients = await Promise.all(Array.from({ length: 10 }, open));
  for (const client of clients) ask(client, '/slow');
  while (slow.length < 10) await new Promise(setImmediate);
  const refused = await open();
  await refused.closed;
  assert.equal(refused.text, '');
  slow[3]?.end('done');
  await clients
    .find((client) => client.text.includes('done') || client === clients[3])!
    .until('done')
    .catch(() => {});
  await ask(await open(), '/').until('ok');
});
