import type { FastifyInstance } from 'fastify';
import type { Brand } from '../brand.ts';

const methods = 'GET, HEAD, PUT, PATCH, POST, DELETE, PROPFIND, REPORT';

/**
 * Pages of any origin may call with a key or a session token: neither is sent by a browser on its own accord, so
 * `*` gives nothing away. Credentials are never allowed.
 */
export function answerAnyOrigin(app: FastifyInstance, brand: Brand): void {
  const exposed = [
    'Etag',
    'Content-Length',
    'Location',
    'Retry-After',
    'X-Request-Id',
    brand.header('Error'),
    'X-RateLimit-Limit',
    'X-RateLimit-Remaining',
    'X-RateLimit-Reset',
  ].join(', ');
  app.addHook('onRequest', async (request, reply) => {
    reply.header('access-control-allow-origin', '*').header('access-control-expose-headers', exposed);
    const isPreflight = request.method === 'OPTIONS' && 'access-control-request-method' in request.headers;
    if (!isPreflight) return;
    const wanted = request.headers['access-control-request-headers'];
    reply.header('access-control-allow-methods', methods).header('access-control-max-age', '600');
    // `*` does not cover Authorization (Fetch standard, CORS-preflight fetch), so the wanted names are repeated.
    if (wanted !== undefined)
      reply.header('access-control-allow-headers', wanted).header('vary', 'Access-Control-Request-Headers');
    await reply.code(204).send();
  });
}
