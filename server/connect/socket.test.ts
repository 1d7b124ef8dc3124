import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import { after, before, test } from 'node:test';
import { pino } from 'pino';
import { openTestDatabase } from '../../test/support/database.ts';
import { brandNames } from '../brand.ts';
import { AppError } from '../errors.ts';
import { type App, createHttp } from '../http/server.ts';
import { connectSocket } from './socket.ts';

/** Who may wait, and for how long. What a client is told: `test/journeys/connect-socket.test.ts`. */
let app: App;
let port: number;
let database: Awaited<ReturnType<typeof openTestDatabase>>;
before(async () => {
  database = await openTestDatabase();
  const trustedProxies = ['127.0.0.0/8', '::1/128'];
  const refuse = async () => {
    throw new AppError('unknown_account');
  };
  const log = pino({ level: 'silent' });
  app = await createHttp({
    config: { brand: brandNames('trellis'), trustedProxies, baseUrl: 'http://localhost' },
    log,
    authenticate: { key: refuse, session: refuse },
    isRootAlias: () => false,
  });
  connectSocket(app, { db: database.db, log, trustedProxies }, { pingEveryMs: 200 });
  await app.listen({ host: '127.0.0.1', port: 0 });
  ({ port } = app.server.address() as AddressInfo);
});
after(async () => {
  await app.close();
  await database.drop();
});

/** A client that answers no ping: the handshake and nothing else. */
async function openSilent(address: string) {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {});
  socket.write(
    `GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Forwarded-For: ${address}\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n`,
  );
  const closed = new Promise<void>((resolve) => socket.on('close', () => resolve()));
  const [first] = (await once(socket, 'data')) as [Buffer];
  return { line: first.toString('latin1').split('\r\n', 1)[0], socket, closed };
}

test('a client that disappeared is disconnected, and a client that answers is not', async () => {
  const there = new WebSocket(`ws://127.0.0.1:${port}/`);
  await once(there, 'message');
  const gone = await openSilent('203.0.113.1');
  await gone.closed;
  const another = await openSilent('203.0.113.1');
  await another.closed;
  assert.equal(there.readyState, WebSocket.OPEN);
  there.close();
  await once(there, 'close');
});

test('a client that opens too many closes its own, and no other client is refused', async () => {
  const answering = (address: string) =>
    openSilent(address).then((client) => {
      // Any pong will do.
      const pong = setInterval(() => client.socket.write(Buffer.of(0x8a, 0x80, 0, 0, 0, 0)), 50);
      void client.closed.then(() => clearInterval(pong));
      return client;
    });
  const other = await answering('198.51.100.9');
  const first = await answering('203.0.113.7');
  const more = await Promise.all(Array.from({ length: 100 }, () => answering('203.0.113.7')));
  assert.ok(more.every(({ line }) => line === 'HTTP/1.1 101 Switching Protocols'));
  await first.closed;
  const open = [other, ...more].filter(({ socket }) => !socket.destroyed);
  assert.equal(open.length, 101);
  for (const { socket } of open) socket.destroy();
});
