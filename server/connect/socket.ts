import { randomBytes } from 'node:crypto';
import type { IncomingMessage, Server } from 'node:http';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
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
type Waiter = { hash: Buffer; socket: WebSocket };

/** How soon a waiting client knows. */
const askEveryMs = 500;
/** A trip lasts half an hour at most. */
const longestMs = 35 * 60_000;
/** Sockets of one node; one more is refused. */
const mostWaiters = 2_000;

export function connectSocket(app: App, deps: Pick<ConnectDeps, 'db' | 'log'>): void {
  const waiters = new Map<string, Waiter>();
  let asking: ReturnType<typeof setInterval> | undefined;
  let isStopping = false;
  const server: Server & { shouldUpgradeCallback?: (request: IncomingMessage) => boolean } = app.server;
  // Whatever else asks for an upgrade, as clients of the proxy may, is answered as if it had not.
  server.shouldUpgradeCallback = isForUs;
  // A client has nothing to say that is longer than a control frame.
  const upgrades = new WebSocketServer({
    ...{ noServer: true, clientTracking: false, perMessageDeflate: false, maxPayload: 125 },
  });
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    if (isStopping || waiters.size >= mostWaiters) {
      socket.end('HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n');
      return;
    }
    upgrades.handleUpgrade(request, socket, head, wait);
  });
  app.addHook('preClose', async () => {
    isStopping = true;
    clearInterval(asking);
    for (const { socket } of waiters.values()) socket.terminate();
  });

  function wait(socket: WebSocket): void {
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
      asking = undefined;
    });
    waiters.set(hash.toString('hex'), { hash, socket });
    socket.send(JSON.stringify({ message_type: 'connection_ack', ws_client_id: id }));
    asking ??= setInterval(ask, askEveryMs);
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
