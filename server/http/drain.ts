/**
 * Stops the HTTP server: it announces the stop, accepts no new connections, closes idle ones, and ends each other connection
 * with its response. Requests that still run when the time is over are aborted.
 */
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import { AppError } from '../errors.ts';

/** How often idle connections are closed. */
const sweepMs = 20;

const stops = new WeakMap<Server, AbortController>();

/** The reason of a stop after which another process of this machine continues. */
const replaced = Symbol('replaced');

function stopOf({ server }: Pick<FastifyInstance, 'server'>): AbortController {
  const stop = stops.get(server) ?? new AbortController();
  stops.set(server, stop);
  return stop;
}

/** Whether a stop was requested: a load balancer must choose another node then, although this one still answers. */
export function isStopping(app: Pick<FastifyInstance, 'server'>): boolean {
  return stopOf(app).signal.aborted;
}

/** As `isStopping`, but false if another process takes the place of this one at the same address. */
export function isLeaving(app: Pick<FastifyInstance, 'server'>): boolean {
  return isStopping(app) && stopOf(app).signal.reason !== replaced;
}

/**
 * From the request of a stop on, each response of a route announces the end of its connection, so that the client sends its
 * next request to another node instead of into a closed connection. `onStop` is for responses without a route. To be called
 * before the server listens.
 */
export function announceStop(app: FastifyInstance, onStop: () => void): void {
  const stop = stopOf(app);
  stop.signal.addEventListener('abort', onStop, { once: true });
  app.addHook('preClose', async () => stop.abort());
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (stop.signal.aborted) reply.header('connection', 'close');
    done(null, payload);
  });
}

/**
 * Returns a function that stops the server; to be called before it listens. For `delayMs` the server continues, but `isStopping`
 * is true and each response ends its connection; then it accepts no new connections. Resolves when all connections and modules
 * are closed: connections after their responses, and after `limitMs` at the latest. With `isReplaced`, `isLeaving` stays false.
 */
export function createDrain(
  app: Pick<FastifyInstance, 'server' | 'close'>,
  wait: (ms: number) => Promise<unknown> = pause,
): (limits: { delayMs?: number; limitMs: number; isReplaced?: boolean }) => Promise<void> {
  const { server } = app;
  const open = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket));
  });
  return async ({ delayMs = 0, limitMs, isReplaced = false }) => {
    stopOf(app).abort(isReplaced ? replaced : undefined);
    if (delayMs > 0) await wait(delayMs);
    const closed = app.close();
    // A response whose head was sent before the stop keeps its connection open.
    const sweep = setInterval(() => server.closeIdleConnections(), sweepMs);
    const limit = setTimeout(() => {
      // A regular end would complete a response without length or chunks (RFC 9112 §6.3).
      for (const socket of open) socket.resetAndDestroy();
    }, limitMs);
    await closed.finally(() => {
      clearInterval(sweep);
      clearTimeout(limit);
    });
  };
}

/** The error for a call that was not sent because the service stops. A retry reaches another node, or the next start. */
export function serviceStops(): AppError {
  return new AppError('unavailable', 'The service is about to stop, and the call was not sent. Try again.', {
    retryAfterS: 1,
  });
}
