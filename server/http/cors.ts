/** CORS: which methods and origins may call, and which headers their pages may read. */
import { type IncomingMessage, METHODS } from 'node:http';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Brand } from '../brand.ts';

/**
 * The methods that Node supports, without CONNECT and TRACE (RFC 9110 §9.3.6 and §9.3.8): one would turn the service into a
 * tunnel, the other would echo the credentials.
 */
export const methods: readonly string[] = METHODS.filter(
  (method) => method !== 'CONNECT' && method !== 'TRACE',
);

/** The value of the header Allow. */
export const allowedMethods = methods.join(', ');

/** The CORS headers of every response to a page of any origin. */
export function anyOriginHeaders(brand: Brand): Record<string, string> {
  return {
    'access-control-allow-origin': '*',
    'access-control-expose-headers': [...exposed, brand.header('Error')].join(', '),
  };
}

const exposed = [
  'Etag',
  'Content-Length',
  'Deprecation',
  'Idempotency-Replayed',
  'Link',
  'Location',
  'RateLimit',
  'RateLimit-Policy',
  'Retry-After',
  'Sunset',
  'X-Request-Id',
  'X-RateLimit-Limit',
  'X-RateLimit-Remaining',
  'X-RateLimit-Reset',
];

/**
 * Pages of any origin may call with a key or a session token: a browser sends neither automatically, so `*` is safe.
 * Credentials are never allowed.
 */
export function answerAnyOrigin(app: FastifyInstance, brand: Brand): void {
  const headers = anyOriginHeaders(brand);
  app.addHook('onRequest', (request, reply, done) => {
    reply.headers(headers);
    if (isPreflight(request.raw)) reply.code(204).headers(preflightHeaders(request.raw)).send();
    else done();
  });
}

/** Only our own pages may read the response to a cookie. */
export function answerOwnOrigin(reply: FastifyReply): void {
  reply.removeHeader('access-control-allow-origin').removeHeader('access-control-expose-headers');
}

/** Whether the request is a CORS preflight. */
export function isPreflight({ method, headers }: IncomingMessage): boolean {
  return method === 'OPTIONS' && 'access-control-request-method' in headers;
}

/** The headers of the response to a preflight, in addition to `anyOriginHeaders`. */
export function preflightHeaders({ headers }: IncomingMessage): Record<string, string> {
  const wanted = headers['access-control-request-headers'];
  return {
    'access-control-allow-methods': allowedMethods,
    'access-control-max-age': '600',
    // `*` does not include Authorization (Fetch standard, CORS-preflight fetch), so the requested names are repeated.
    ...(wanted !== undefined && {
      'access-control-allow-headers': wanted,
      vary: 'Access-Control-Request-Headers',
    }),
  };
}
