/**
 * How the HTTP server ends. It says so; then no new connections; those that nobody uses are closed; what is in flight may end, and its
 * connection ends with it; what still runs when the time is over is broken off.
 */
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import { AppError } from '../errors.ts';
import type { App } from './server.ts';

/** How often it is looked for connections whose last answer is out. */
const sweepMs = 20;

const stops = new WeakMap<Server, AbortController>();

function stopOf({ server }: Pick<App, 'server'>): AbortController {
  const stop = stops.get(server) ?? new AbortController();
  stops.set(server, stop);
  return stop;
}

/** Whether a stop was requested: a load balancer must choose another node then, although this one still answers. */
export function isStopping(app: Pick<App, 'server'>): boolean {
  return stopOf(app).signal.aborted;
}

/**
 * As soon as a stop is asked for, in whatever way, each answer of a route says that its connection ends: a client sends its
 * next request to another node then, instead of into a closed connection. Whatever else answers is told by `tell`. To be
 * called before the server listens.
 */
export function announceStop(app: FastifyInstance, tell: () => void): void {
  const stop = stopOf(app);
  stop.signal.addEventListener('abort', tell, { once: true });
  app.addHook('preClose', async () => stop.abort());
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (stop.signal.aborted) reply.header('connection', 'close');
    done(null, payload);
  });
}

/**
 * Stops the server; to be created before it listens. For `delayMs` the server goes on as before, except that `isStopping`
 * is true and that each answer ends its connection; then it accepts nothing new. Resolves once every connection and every
 * module is closed, which takes no longer than the answers do, and `limitMs` at most for the connections.
 */
export function createDrain(
  app: App,
  wait: (ms: number) => Promise<unknown> = pause,
): (limits: { delayMs?: number; limitMs: number }) => Promise<void> {
  const { server } = app;
  const open = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket));
  });
  return async ({ delayMs = 0, limitMs }) => {
    stopOf(app).abort();
    if (delayMs > 0) await wait(delayMs);
    const closed = app.close();
    // An answer whose head was out before the stop has left its connection open for more.
    const sweep = setInterval(() => server.closeIdleConnections(), sweepMs);
    const limit = setTimeout(() => {
      // A plain end would be the regular end of an answer without length or chunks (RFC 9112 §6.3).
      for (const socket of open) socket.resetAndDestroy();
    }, limitMs);
    await closed.finally(() => {
      clearInterval(sweep);
      clearTimeout(limit);
    });
  };
}

/** What a caller is told whose call was not sent because the service stops: another node, or the next start, answers. */
export function serviceStops(): AppError {
  return new AppError('unavailable', 'The service is about to stop, and the call was not sent. Try again.', {
    retryAfterS: 1,
  });
}
