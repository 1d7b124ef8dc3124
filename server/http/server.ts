import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import cookie from '@fastify/cookie';
import {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  fastify,
  LogController,
  type RawServerDefault,
} from 'fastify';
import { serializerCompiler, type ZodTypeProvider } from 'fastify-type-provider-zod';
import type { z } from 'zod';
import type { Config } from '../config.ts';
import { AppError } from '../errors.ts';
import type { Logger } from '../log.ts';
import { type Authenticate, authorizeRoutes } from './authorize.ts';
import { answerAnyOrigin } from './cors.ts';
import { sendError, ValidationFault, writeErrors } from './error-writer.ts';
import { describeRoutes } from './openapi.ts';

/**
 * The HTTP server: what is the same for every route.
 *
 * Owns: parsing, validation, who is calling, how errors are written, CORS, OpenAPI, the request log. Does not
 * own: any route but its own documents. Rooms add theirs in `routes.ts`.
 */
export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  ZodTypeProvider
>;

/** The path all proxied requests are routed by; `originalUrl` keeps what was sent, byte for byte. */
export const proxyRoute = '/proxy/*';

export type HttpSettings = {
  config: Pick<Config, 'brand' | 'trustedProxies' | 'baseUrl'>;
  log: Logger;
  authenticate: Authenticate;
  /** Whether a request without our prefix is one for the proxy: a client that knows the provider's paths alone. */
  isRootAlias: (path: string) => boolean;
};

/** A server without routes yet; it does not listen. */
export async function createHttp({ config, log, authenticate, isRootAlias }: HttpSettings): Promise<App> {
  const app: FastifyInstance = fastify({
    loggerInstance: log as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    trustProxy: config.trustedProxies.length > 0 ? config.trustedProxies : false,
    genReqId: () => randomUUID(),
    bodyLimit: 1024 * 1024,
    requestTimeout: 0,
    keepAliveTimeout: 72_000,
    forceCloseConnections: 'idle',
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 2048 },
    // The router would decode the provider's path and refuse what it cannot decode. It never sees it.
    rewriteUrl: (request) => {
      const url = request.url ?? '/';
      if (url.startsWith('/proxy/')) return '/proxy/_';
      const isForConnection = 'connection-id' in request.headers && 'provider-config-key' in request.headers;
      return isForConnection && isRootAlias(url.split('?', 1)[0] ?? '') ? '/proxy/_' : url;
    },
    frameworkErrors: (_error, request, reply) => {
      sendError(
        reply as FastifyReply,
        new AppError('invalid_uri_params', 'The path is not a valid URL path.'),
        request as FastifyRequest,
      );
    },
  });

  app.setValidatorCompiler<z.ZodType>(({ schema }) => (data) => {
    const result = schema.safeParse(data);
    return result.success ? { value: result.data } : { error: new ValidationFault(result.error.issues) };
  });
  app.setSerializerCompiler(serializerCompiler);
  parseJsonOnly(app);
  writeErrors(app, isRootAlias);
  logRequests(app, log);
  answerAnyOrigin(app, config.brand);
  authorizeRoutes(app, { authenticate, brand: config.brand });
  await app.register(cookie);
  await describeRoutes(app, config);
  return app.withTypeProvider<ZodTypeProvider>();
}

/** JSON and nothing else; an empty body under that type is an empty object. */
function parseJsonOnly(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  app.removeAllContentTypeParsers();
  app.addContentTypeParser<string>('application/json', { parseAs: 'string' }, (request, body, done) => {
    if (body.length === 0) done(null, {});
    else parse(request, body, done);
  });
}

/** One line a request, by route and never by query, so that no code, token or cursor is logged. */
function logRequests(app: FastifyInstance, log: Logger): void {
  app.addHook('onSend', (request, reply, payload, done) => {
    reply.header('x-request-id', request.id);
    done(null, payload);
  });
  app.addHook('onResponse', (request, reply, done) => {
    done();
    if (reply.statusCode < 500 && !log.isLevelEnabled('debug')) return;
    const line = {
      method: request.method,
      route: request.routeOptions.url ?? 'none',
      status: reply.statusCode,
      ms: Math.round(reply.elapsedTime * 10) / 10,
    };
    if (reply.statusCode >= 500) request.log.warn(line, 'request');
    else request.log.debug(line, 'request');
  });
}
