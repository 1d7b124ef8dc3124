import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { FastifySchema } from 'fastify';
import { isLoopback } from '../config/setting-values.ts';
import { AppError } from '../errors.ts';
import type { MetricsText } from '../metrics/text.ts';
import { answerOwnOrigin } from './cors.ts';
import { isForwarded } from './loopback-only.ts';
import type { App } from './server.ts';

/**
 * `/metrics`, in the form of Prometheus: figures of the whole installation, which callers must not read. With a token it
 * is for any client that sends the token; without one for programs of this machine alone, as `requireLocal` recognizes
 * them, and for no client if `baseUrl` is public.
 */
export function metricsRoute(
  app: App,
  { token, baseUrl, read }: { token: string | undefined; baseUrl: string; read: () => Promise<MetricsText> },
): void {
  const access = { by: 'anyone', isLimited: false } as const;
  const schema: FastifySchema = {
    operationId: 'getMetrics',
    summary: 'Measurements, in the form of Prometheus',
    description:
      'Of the whole installation. When TRELLIS_METRICS_TOKEN is set, for any client that sends it as a bearer token; ' +
      'otherwise for programs of this machine.',
    errors: ['missing_auth_header', 'malformed_auth_header', 'unknown_account', 'forbidden'],
    answers: {
      200: {
        description: 'The measurements.',
        type: 'text/plain',
        schema: { type: 'string' },
        example: '# TYPE process_cpu_seconds_total counter\n',
      },
    },
  };
  // What a proxy on this machine passes on may look like a call from here: only an address of this machine rules one out.
  const isHere = isLoopback(URL.parse(baseUrl)?.hostname ?? '');
  const require = token !== undefined ? requireToken(token) : isHere ? requireLocal : refuseAll;
  app.get('/metrics', { config: { access }, schema }, async (request, reply) => {
    answerOwnOrigin(reply);
    require(request.raw);
    const { contentType, text } = await read();
    return reply.type(contentType).header('cache-control', 'no-store').send(text);
  });
}

/** Compared by digests, so that neither its length nor how much of it fits shows in the time that it takes. */
function requireToken(token: string): (request: IncomingMessage) => void {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  const wanted = digest(token);
  return ({ headers }) => {
    if (headers.authorization === undefined) {
      throw new AppError(
        'missing_auth_header',
        'Send TRELLIS_METRICS_TOKEN as `Authorization: Bearer <token>`.',
      );
    }
    const [, given] = /^Bearer +([^\s]+) *$/i.exec(headers.authorization) ?? [];
    if (given === undefined) throw new AppError('malformed_auth_header');
    if (!timingSafeEqual(digest(given), wanted)) {
      throw new AppError('unknown_account', 'This is not the token of TRELLIS_METRICS_TOKEN.');
    }
  };
}

function refuseAll(): never {
  throw new AppError(
    'forbidden',
    'Metrics are for clients that send TRELLIS_METRICS_TOKEN, and it is not set.',
  );
}

/**
 * By the connection itself, whatever proxies are trusted; by the name that was called, since a page of the web can have one
 * that leads here (DNS rebinding); and by what says that the request was passed on from elsewhere.
 */
function requireLocal({ headers, socket }: IncomingMessage): void {
  const from = (socket.remoteAddress ?? '').replace(/^::ffff:/, '');
  const called = URL.parse(`http://${headers.host ?? ''}`)?.hostname ?? '';
  if (isLoopback(from) && isLoopback(called) && !isForwarded(headers)) return;
  throw new AppError(
    'forbidden',
    'Metrics are for programs of this machine. Once TRELLIS_METRICS_TOKEN is set, they are for any client that sends it as a bearer token.',
  );
}
