/**
 * The result of an authorization for official browser clients, which wait for it on a WebSocket at `/`.
 *
 * A client receives an ID, which its window passes to `/oauth/connect`. The node where the authorization ends stores a
 * notice under the hash of the ID (table `connect_notice`), and the node that holds the socket polls for notices while
 * clients wait. Messages of clients are ignored, so a socket carries no right and no credential.
 */
import { randomBytes } from 'node:crypto';
import type { IncomingMessage, Server } from 'node:http';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { createNetworkReader } from '../http/address.ts';
import type { Operation } from '../http/openapi/openapi-operation.ts';
import type { App } from '../http/server.ts';
import { explainError, unexpected } from './failures.ts';
import { hashOf } from './sessions.ts';
import type { ConnectDeps } from './target.ts';

type Notice =
  | { message_type: 'success'; provider_config_key: string; connection_id: string; is_pending: false }
  | {
      message_type: 'error';
      provider_config_key: string;
      connection_id: string;
      error_type: string;
      error_desc: string;
    };

export function successMessage(made: { integrationKey: string; connectionId: string }): Notice {
  return {
    message_type: 'success',
    provider_config_key: made.integrationKey,
    connection_id: made.connectionId,
    is_pending: false,
  };
}

export function errorMessage(error: unknown, integrationKey: string): Notice {
  const { type, message, evidence } = { evidence: undefined, ...(explainError(error) ?? unexpected) };
  return {
    message_type: 'error',
    provider_config_key: integrationKey,
    connection_id: '',
    error_type: type,
    error_desc: evidence === undefined ? message : `${message} (${evidence})`,
  };
}

/** Stores the notice for a client, unless it has one. Does nothing without a client. Never throws. */
export async function notifyClient(
  { db, log, now }: Pick<ConnectDeps, 'db' | 'log' | 'now'>,
  { waiter, message }: { waiter: string | undefined; message: Notice },
): Promise<void> {
  if (waiter === undefined || !isWaiter(waiter)) return;
  await db
    .query(
      `insert into connect_notice (waiter_hash, message, created_at)
       values ($1, $2, $3)
       on conflict do nothing`,
      [hashOf(waiter), JSON.stringify(message), now()],
    )
    .catch((err: unknown) => log.warn({ err }, 'the notification for a waiting client could not be stored'));
}

/** Whether the text has the form of our IDs; a browser may send any text. */
function isWaiter(text: string): boolean {
  return /^[A-Za-z0-9_-]{32}$/.test(text);
}

type Waiter = {
  hash: Buffer;
  socket: WebSocket;
  /** Network of the client. */
  network: string;
  /** Whether the last ping was answered. */
  isAlive: boolean;
};

/** The interval at which a node reads the notices of its clients. */
const pollEveryMs = 500;
/** An authorization lasts half an hour at most. */
const longestMs = 35 * 60_000;
/** The limit of sockets of a node, which refuses further ones. */
const maxWaiters = 2_000;
/** The limit of sockets of one network. A further one closes the oldest, so that one network cannot take all sockets. */
const maxOfNetwork = 100;

const socketOperation: Operation = {
  operationId: 'waitForConnect',
  summary: 'Open the WebSocket of official browser clients',
  description:
    'A WebSocket (RFC 6455). Its first message has an ID, which the client passes as `ws_client_id` to the page that ' +
    'begins the authorization; the second message has the result. Without an upgrade, the response is the dashboard.',
  tags: ['connect'],
  security: [],
  responses: {
    '101': { description: 'The socket is open.' },
    '200': {
      description: 'The dashboard.',
      content: { 'text/html': { schema: { type: 'string' }, example: '<!doctype html>' } },
    },
    '503': { description: 'The node has the maximum number of sockets, or is about to stop.' },
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
  let polling: ReturnType<typeof setInterval> | undefined;
  let pinging: ReturnType<typeof setInterval> | undefined;
  let isStopping = false;
  const server: Server & { shouldUpgradeCallback?: (request: IncomingMessage) => boolean } = app.server;
  // Other requests with an upgrade, such as those of proxy clients, are served without it; so are refused requests.
  server.shouldUpgradeCallback = (request) => isForUs(request) && deps.guard?.(request) === undefined;
  // The longest message that a client needs is a control frame.
  const upgrades = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: 125,
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
    clearInterval(polling);
    clearInterval(pinging);
    for (const { socket } of waiters.values()) socket.terminate();
  });

  function wait(socket: WebSocket, network: string): void {
    const id = randomBytes(24).toString('base64url');
    const hash = hashOf(id);
    const tooLong = setTimeout(() => socket.close(), longestMs);
    tooLong.unref();
    // An error closes the socket; `close` cleans up.
    socket.on('error', () => socket.terminate());
    socket.on('close', () => {
      clearTimeout(tooLong);
      waiters.delete(hash.toString('hex'));
      if (waiters.size > 0) return;
      clearInterval(polling);
      clearInterval(pinging);
      polling = undefined;
      pinging = undefined;
    });
    const waiter: Waiter = { hash, socket, network, isAlive: true };
    socket.on('pong', () => {
      waiter.isAlive = true;
    });
    waiters.set(hash.toString('hex'), waiter);
    socket.send(JSON.stringify({ message_type: 'connection_ack', ws_client_id: id }));
    polling ??= setInterval(poll, pollEveryMs);
    pinging ??= setInterval(ping, pingEveryMs);
  }

  /** Removes it at once, so that each of many simultaneous sockets replaces another one. */
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

  let isPolling = false;
  /** Reads and removes the notices of the waiting clients. */
  async function poll(): Promise<void> {
    if (isPolling) return;
    isPolling = true;
    try {
      const found = await deps.db.query<{ hash: string; message: Notice }>(
        `delete from connect_notice
         where waiter_hash = any($1)
         returning encode(waiter_hash, 'hex') as hash, message`,
        [Array.from(waiters.values(), ({ hash }) => hash)],
      );
      for (const { hash, message } of found) waiters.get(hash)?.socket.send(JSON.stringify(message));
    } catch (err) {
      deps.log.warn({ err }, 'the notifications for waiting clients could not be read');
    } finally {
      isPolling = false;
    }
  }
}

function isForUs({ url = '', headers, method }: IncomingMessage): boolean {
  return method === 'GET' && headers.upgrade?.toLowerCase() === 'websocket' && url.split('?', 1)[0] === '/';
}
