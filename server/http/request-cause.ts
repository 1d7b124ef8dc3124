/**
 * Each request of the routes as a cause: what it sets off names it in the log, is part of its span, and is timed with it.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { metrics } from '../metrics/metrics.ts';
import { type Cause, within } from '../tracing/cause.ts';
import { remoteSpanOf } from '../tracing/span.ts';
import { startSpan } from '../tracing/tracing.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Undefined again once the request is over. */
    cause: Cause | undefined;
  }
}

/** To be called before other hooks are added: they belong to the cause too. */
export function causeRequests(app: FastifyInstance): void {
  app.decorateRequest<Cause | undefined>('cause', undefined);
  app.addHook('onRequest', (request, _reply, done) => {
    const { id, method, headers } = request;
    const span = startSpan(`${method} ${routeOf(request)}`, {
      kind: 'server',
      parent: remoteSpanOf(headers),
      attributes: {
        'http.request.method': method,
        'http.route': routeOf(request),
        'trellis.request_id': id,
      },
    });
    request.cause = { reqId: id, span };
    within(request.cause, done);
  });
  app.addHook('onResponse', (request, reply, done) => {
    over(request, { status: reply.statusCode, elapsedMs: reply.elapsedTime });
    done();
  });
  // A stream of events has no other end.
  app.addHook('onRequestAbort', (request, done) => {
    over(request, { status: undefined, elapsedMs: undefined });
    done();
  });
}

/** Once, however it ends. */
function over(
  request: FastifyRequest,
  { status, elapsedMs }: { status: number | undefined; elapsedMs: FastifyReply['elapsedTime'] | undefined },
): void {
  const { cause, method } = request;
  if (cause === undefined) return;
  request.cause = undefined;
  if (elapsedMs !== undefined)
    metrics.httpDuration.observe([method, routeOf(request), String(status)], elapsedMs / 1000);
  const { span } = cause;
  if (span === undefined) return;
  if (status !== undefined) span.set({ 'http.response.status_code': status });
  span.end(status === undefined ? 'client_gone' : status >= 500 ? String(status) : undefined);
}

/** As it is declared: no path that somebody chose. */
function routeOf({ routeOptions }: FastifyRequest): string {
  return routeOptions.url ?? 'none';
}
