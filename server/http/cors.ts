import type { FastifyInstance } from 'fastify';
import type { Brand } from '../brand.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route puts `anyOriginHeaders` on all of its answers itself. */
    addsAnyOrigin?: true;
  }
}

const methods = 'GET, HEAD, PUT, PATCH, POST, DELETE, PROPFIND, REPORT';

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
    const isPreflight = request.method === 'OPTIONS' && 'access-control-request-method' in request.headers;
    if (!isPreflight) {
      if (request.routeOptions.config?.addsAnyOrigin !== true) reply.headers(headers);
      done();
      return;
    }
    reply.headers(headers);
    const wanted = request.headers['access-control-request-headers'];
    reply.header('access-control-allow-methods', methods).header('access-control-max-age', '600');
    // `*` does not cover Authorization (Fetch standard, CORS-preflight fetch), so the wanted names are repeated.
    if (wanted !== undefined)
      reply.header('access-control-allow-headers', wanted).header('vary', 'Access-Control-Request-Headers');
    reply.code(204).send();
  });
}
