import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { after, afterEach, before, test } from 'node:test';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { brandNames } from '../brand.ts';
import { AppError } from '../errors.ts';
import type { KeyCaller } from '../http/auth/caller.ts';
import { type App, createHttp } from '../http/server.ts';
import { createLog } from '../log.ts';
import { type TailTiming, tailRoute } from './tail-route.ts';
import { createActivity } from './writer.ts';

const environmentId = 1;
const caller: KeyCaller = {
  ...({ kind: 'key', environmentId, environment: 'dev', keyId: 1 } as const),
  scopes: new Set(['activity:read']),
};
const log = createLog({ level: 'silent', format: 'json' });
let database: TestDatabase;
let app: App | undefined;
before(async () => {
  database = await openTestDatabase();
});
afterEach(() => app?.close());
after(() => database.drop());

/** The route alone, in a hurry. */
async function serve(
  timing: Partial<TailTiming>,
  authorizeAgain: () => Promise<typeof caller> = async () => caller,
): Promise<number> {
  app = await createHttp({
    config: { brand: brandNames('trellis'), trustedProxies: [], baseUrl: 'http://localhost' },
    log,
    authenticate: {
      key: async () => caller,
      session: async () => {
        throw new AppError('unknown_connect_session_token');
      },
    },
    isRootAlias: () => false,
  });
  tailRoute(app, {
    db: database.db,
    now: () => new Date(),
    authorizeAgain,
    timing: { pollMs: 5, heartbeatMs: 60_000, stallMs: 60_000, lingerMs: 60_000, ...timing },
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  return (app.server.address() as AddressInfo).port;
}

/** A reader who reads when he likes. */
async function openTail(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  socket.write(
    'GET /operations/tail HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a-key-of-the-tests-here\r\n\r\n',
  );
  return socket;
}

/** What comes until the text is there, or until the end. */
async function readUntil(socket: Socket, wanted: string): Promise<string> {
  let text = '';
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    text += String(chunk);
    if (text.includes(wanted)) return text;
  }
  assert.fail(`${wanted} did not come: ${text.slice(-200)}`);
}

async function write(count: number, more: { path?: string } = {}): Promise<void> {
  const activity = createActivity({ db: database.db, log, settings: { sampleRate: 1 } });
  for (let n = 0; n < count; n += 1)
    activity.log({ environmentId, type: 'proxy', status: 'success', ...more });
  await activity.stop();
}

test('a stream on which nothing happens gives signs of life', async () => {
  const socket = await openTail(await serve({ heartbeatMs: 20 }));
  const text = await readUntil(socket, '\n: nothing new\n\n');
  assert.match(text, /^HTTP\/1\.1 200 OK\r\n/);
  assert.match(text, /\r\ncontent-type: text\/event-stream; charset=utf-8\r\n/);
  assert.match(text, /\r\nx-accel-buffering: no\r\n/);
  await readUntil(socket, '\n: nothing new\n\n');
  socket.destroy();
});

test('the connection of a reader who never reads is ended', async () => {
  const port = await serve({ stallMs: 50, lingerMs: 50 });
  const socket = await openTail(port);
  await readUntil(socket, 'retry: 1000\n\n');
  socket.pause();
  const open = () =>
    new Promise<number>((resolve) => app!.server.getConnections((_, count) => resolve(count)));
  assert.equal(await open(), 1);
  // More than sockets hold.
  while ((await open()) > 0) await write(2_000, { path: `/${'x'.repeat(2_000)}` });
  socket.destroy();
});

test('a log that cannot be read ends the stream, and so does a key that holds no more', async () => {
  const faults: [unknown, string][] = [
    [new AppError('unavailable'), 'failed'],
    [new Error('unexpected'), 'failed'],
    [new AppError('unknown_account'), 'key'],
    [new AppError('forbidden'), 'key'],
  ];
  for (const [fault, reason] of faults) {
    let asked = 0;
    const port = await serve({}, async () => {
      asked += 1;
      if (asked > 3) throw fault;
      return caller;
    });
    const socket = await openTail(port);
    await readUntil(socket, `event: end\ndata: {"reason":"${reason}"`);
    socket.destroy();
    await app!.close();
  }
});
