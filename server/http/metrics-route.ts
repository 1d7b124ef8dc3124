import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { FastifySchema } from 'fastify';
import { isLoopback } from '../config/setting-values.ts';
import { AppError } from '../errors.ts';
import type { MetricsText } from '../metrics/metrics.ts';
import { isForwarded } from './address.ts';
import { answerOwnOrigin } from './cors.ts';
import type { App } from './server.ts';

/**
 * `/metrics`, in the format of Prometheus: metrics of the whole installation, which callers must not read. With a token, any
 * client that sends it may read them; without one, only programs of this machine (`requireLocal`), and no client if `baseUrl`
 * is public.
 */
export function metricsRoute(
  app: App,
  { token, baseUrl, read }: { token: string | undefined; baseUrl: string; read: () => Promise<MetricsText> },
): void {
  const access = { by: 'anyone', isLimited: false } as const;
  const schema: FastifySchema = {
    operationId: 'getMetrics',
    summary: 'Get metrics in the Prometheus format',
    description:
      'Metrics of the whole installation. If TRELLIS_METRICS_TOKEN is set, any client that sends it as a bearer token ' +
      'has access; otherwise only programs on this machine.',
    errors: ['missing_auth_header', 'malformed_auth_header', 'unknown_account', 'forbidden'],
    answers: {
      200: {
        description: 'The metrics.',
        type: 'text/plain',
        schema: { type: 'string' },
        example: '# TYPE process_cpu_seconds_total counter\n',
      },
    },
  };
  // A proxy on this machine makes calls look local: only a BASE_URL of this machine excludes such a proxy.
  const isHere = isLoopback(URL.parse(baseUrl)?.hostname ?? '');
  const require = token !== undefined ? requireToken(token) : isHere ? requireLocal : refuseAll;
  app.get('/metrics', { config: { access }, schema }, async (request, reply) => {
    answerOwnOrigin(reply);
    require(request.raw);
    const { contentType, text } = await read();
    return reply.type(contentType).header('cache-control', 'no-store').send(text);
  });
}

/** Compares digests, so that the time reveals neither the length of the token nor a matching prefix. */
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
 * Checks the connection's own address, whatever proxies are trusted; the host name, since a web page can have a name that
 * resolves to this machine (DNS rebinding); and the headers of proxies.
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
