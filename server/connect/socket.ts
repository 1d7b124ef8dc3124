import { randomBytes } from 'node:crypto';
import type { IncomingMessage, Server } from 'node:http';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { createNetworkReader } from '../http/address.ts';
import type { Operation } from '../http/openapi-operation.ts';
import type { App } from '../http/server.ts';
import { type Notice, takeNotices } from './notices.ts';
import { hashOf } from './sessions.ts';
import type { ConnectDeps } from './target.ts';

/**
 * The socket on which official browser clients wait for the end of a trip, at `/`.
 *
 * Each is given an ID, which its window takes along to `/oauth/connect`; the node where the trip ends leaves a notice
 * under it (`notices.ts`), and the node that holds the socket asks for notices while somebody waits. Nothing that a
 * client says is listened to, so a socket carries no right and no credential.
 */
type Waiter = {
  hash: Buffer;
  socket: WebSocket;
  /** Network of the client. */
  network: string;
  /** Whether the last ping was answered. */
  isAlive: boolean;
};

/** How soon a waiting client knows. */
const askEveryMs = 500;
/** A trip lasts half an hour at most. */
const longestMs = 35 * 60_000;
/** Sockets of one node; one more is refused. */
const maxWaiters = 2_000;
/** Of these those of one network; one more ends its oldest, so that nobody can hold the places of everybody. */
const maxOfNetwork = 100;

const socketOperation: Operation = {
  operationId: 'waitForConnect',
  summary: 'The socket on which official browser clients wait',
  description:
    'A WebSocket (RFC 6455). Its first message carries an ID, which goes along as `ws_client_id` to the page that begins; the ' +
    'second says how it ended. Without an upgrade this is the dashboard.',
  tags: ['connect'],
  security: [],
  responses: {
    '101': { description: 'The socket is open.' },
    '200': {
      description: 'The dashboard.',
      content: { 'text/html': { schema: { type: 'string' }, example: '<!doctype html>' } },
    },
    '503': { description: 'As many wait as a node lets, or it stops.' },
  },
};

/** A client that does not answer a ping before the next one, such as a phone out of reach, is disconnected. */
export function connectSocket(
  app: App,
  deps: Pick<ConnectDeps, 'db' | 'log' | 'guard' | 'trustedProxies'>,
  { pingEveryMs = 30_000 }: { pingEveryMs?: number } = {},
): void {
  app.describe(() => ({ paths: { '/': { get: socketOperation } } }));
  const networkOf = createNetworkReader(deps.trustedProxies);
  const waiters = new Map<string, Waiter>();
  let asking: ReturnType<typeof setInterval> | undefined;
  let pinging: ReturnType<typeof setInterval> | undefined;
  let isStopping = false;
  const server: Server & { shouldUpgradeCallback?: (request: IncomingMessage) => boolean } = app.server;
  // Whatever else asks for an upgrade, as clients of the proxy may, is answered as if it had not; so is what is refused
  // before anything else.
  server.shouldUpgradeCallback = (request) => isForUs(request) && deps.guard?.(request) === undefined;
  // A client has nothing to say that is longer than a control frame.
  const upgrades = new WebSocketServer({
    ...{ noServer: true, clientTracking: false, perMessageDeflate: false, maxPayload: 125 },
  });
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    if (isStopping || waiters.size >= maxWaiters) {
      socket.end('HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n');
      return;
    }
    const network = networkOf(request);
    const [oldest, ...others] = [...waiters.values()].filter((waiter) => waiter.network === network);
    if (oldest !== undefined && others.length + 1 >= maxOfNetwork) drop(oldest);
    upgrades.handleUpgrade(request, socket, head, (accepted) => wait(accepted, network));
  });
  app.addHook('preClose', async () => {
    isStopping = true;
    clearInterval(asking);
    clearInterval(pinging);
    for (const { socket } of waiters.values()) socket.terminate();
  });

  function wait(socket: WebSocket, network: string): void {
    const id = randomBytes(24).toString('base64url');
    const hash = hashOf(id);
    const tooLong = setTimeout(() => socket.close(), longestMs);
    tooLong.unref();
    // What is wrong with a socket ends it, and is told by `close`.
    socket.on('error', () => socket.terminate());
    socket.on('close', () => {
      clearTimeout(tooLong);
      waiters.delete(hash.toString('hex'));
      if (waiters.size > 0) return;
      clearInterval(asking);
      clearInterval(pinging);
      asking = undefined;
      pinging = undefined;
    });
    const waiter: Waiter = { hash, socket, network, isAlive: true };
    socket.on('pong', () => {
      waiter.isAlive = true;
    });
    waiters.set(hash.toString('hex'), waiter);
    socket.send(JSON.stringify({ message_type: 'connection_ack', ws_client_id: id }));
    asking ??= setInterval(ask, askEveryMs);
    pinging ??= setInterval(ping, pingEveryMs);
  }

  /** At once: of many that come together each takes the place of another one. */
  function drop({ hash, socket }: Waiter): void {
    waiters.delete(hash.toString('hex'));
    socket.terminate();
  }

  function ping(): void {
    for (const waiter of waiters.values()) {
      if (!waiter.isAlive) {
        drop(waiter);
        continue;
      }
      waiter.isAlive = false;
      waiter.socket.ping();
    }
  }

  let isAsking = false;
  async function ask(): Promise<void> {
    if (isAsking) return;
    isAsking = true;
    try {
      const found = await takeNotices(
        deps,
        Array.from(waiters.values(), ({ hash }) => hash),
      );
      for (const [hash, notice] of found) {
        waiters.get(hash)?.socket.send(JSON.stringify(notice satisfies Notice));
      }
    } catch (err) {
      deps.log.warn({ err }, 'waiting clients were not asked for');
    } finally {
      isAsking = false;
    }
  }
}

function isForUs({ url = '', headers, method }: IncomingMessage): boolean {
  return method === 'GET' && headers.upgrade?.toLowerCase() === 'websocket' && url.split('?', 1)[0] === '/';
}
