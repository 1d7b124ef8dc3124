import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Brand } from '../brand.ts';
import { allowedMethods } from './methods.ts';

/** What every answer says to a page of any origin. */
export function anyOriginHeaders(brand: Brand): Record<string, string> {
  return {
    'access-control-allow-origin': '*',
    'access-control-expose-headers': [...exposed, brand.header('Error')].join(', '),
  };
}

const exposed = [
  'Etag',
  'Content-Length',
  'Location',
  'RateLimit',
  'RateLimit-Policy',
  'Retry-After',
  'X-Request-Id',
  'X-RateLimit-Limit',
  'X-RateLimit-Remaining',
  'X-RateLimit-Reset',
];

/**
 * Pages of any origin may call with a key or a session token: neither is sent by a browser on its own accord, so
 * `*` gives nothing away. Credentials are never allowed.
 */
export function answerAnyOrigin(app: FastifyInstance, brand: Brand): void {
  const headers = anyOriginHeaders(brand);
  app.addHook('onRequest', (request, reply, done) => {
    reply.headers(headers);
    if (isPreflight(request.raw)) reply.code(204).headers(preflightHeaders(request.raw)).send();
    else done();
  });
}

/** An answer to a cookie is for pages of ours alone. */
export function answerOwnOrigin(reply: FastifyReply): void {
  reply.removeHeader('access-control-allow-origin').removeHeader('access-control-expose-headers');
}

/** Whether a browser asks for leave before it sends the request itself. */
export function isPreflight({ method, headers }: IncomingMessage): boolean {
  return method === 'OPTIONS' && 'access-control-request-method' in headers;
}

/** What the answer to a preflight says beyond `anyOriginHeaders`. */
export function preflightHeaders({ headers }: IncomingMessage): Record<string, string> {
  const wanted = headers['access-control-request-headers'];
  return {
    'access-control-allow-methods': allowedMethods,
    'access-control-max-age': '600',
    // `*` does not cover Authorization (Fetch standard, CORS-preflight fetch), so the wanted names are repeated.
    ...(wanted !== undefined && {
      'access-control-allow-headers': wanted,
      vary: 'Access-Control-Request-Headers',
    }),
  };
}
