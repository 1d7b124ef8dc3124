import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { Socket } from 'node:net';
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
import type { Config } from '../config/config.ts';
import { AppError } from '../errors.ts';
import type { Logger } from '../log.ts';
import { type Authenticate, authorizeRoutes } from './authorize.ts';
import { continueWhenRead, hasBody, limitBody, lingerBehind } from './bodies.ts';
import { limitBodyMemory, refuseCoded } from './body-memory.ts';
import { answerAnyOrigin } from './cors.ts';
import { announceStop, isStopping } from './drain.ts';
import { sendError, ValidationFault, writeErrors } from './error-writer.ts';
import { parseJsonOnly } from './json-body.ts';
import { allowedMethods } from './methods.ts';
import { describeRoutes } from './openapi.ts';
import type { Overload } from './overload.ts';
import type { RateLimits } from './rate-limit.ts';
import { createRefusal, createTurnAway, type Refuse, refuseUnreadable } from './refuse.ts';
import { causeRequests } from './request-cause.ts';
import { requestIds } from './request-id.ts';
import { createRequestQueue, type RequestQueue } from './request-queue.ts';
import { strictTransport } from './strict-transport.ts';

/**
 * The HTTP server: what is the same for every route.
 *
 * Owns: parsing, validation, who is calling, how errors are written, CORS, OpenAPI, the request log. Does not
 * own: any route but its own documents. Modules add theirs in `routes.ts`.
 */
export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  ZodTypeProvider
>;

/** Whatever answers some requests by itself: their paths may be no paths for the router, and their bodies no JSON. */
export type RequestInterceptor = {
  /** Whether a request is for it and not for the routes. */
  takes(request: IncomingMessage): boolean;
  /** A body that is still coming when it has answered is read on for a while; little of it where it was paused. */
  handle: RequestListener;
  /** Called as soon as a stop is asked for: answers from now on say that their connection ends. Requests come yet. */
  stopping(): void;
  /** Called after that, once nothing new is taken: what is in flight should come to its end. */
  closing(): void;
};

/** How much is taken on; what is absent is not limited. */
type Limits = {
  rates?: RateLimits;
  overload?: Overload | undefined;
  /** Open at once. */
  maxConnections?: number;
  /** Of the large bodies that are held at once. */
  bodyBytes?: number | undefined;
};

type HttpSettings = {
  config: Pick<Config, 'brand' | 'trustedProxies' | 'baseUrl'>;
  log: Logger;
  authenticate: Authenticate;
  /** Whether a path is one of a provider's own. */
  isRootAlias: (path: string) => boolean;
  /** Asked before the routes. */
  interceptor?: RequestInterceptor | undefined;
  /** Why a request is refused before anything else, its connection ending with it; undefined: it is not. */
  guard?: ((request: IncomingMessage) => AppError | undefined) | undefined;
  limits?: Limits;
};

/** A server without routes yet but those of its own documents; it does not listen. */
export async function createHttp(settings: HttpSettings): Promise<App> {
  const app = createOwn(settings);
  await app.register(cookie);
  await describeRoutes(app, settings.config);
  return app;
}

/** A server that nobody but the machinery around it calls: it knows no caller and has no documents. */
export async function createBareHttp({
  config,
  log,
  limits = {},
}: Pick<HttpSettings, 'config' | 'log' | 'limits'>): Promise<App> {
  const unknown = async () => {
    throw new AppError('unknown_account');
  };
  return createOwn({
    ...{ config, log, limits },
    authenticate: { key: unknown, session: unknown },
    isRootAlias: () => false,
  });
}

function createOwn({
  config,
  log,
  authenticate,
  isRootAlias,
  interceptor,
  guard,
  limits = {},
}: HttpSettings): App {
  const transport = strictTransport(config.baseUrl);
  const refuse = createRefusal(config.brand, transport);
  const turns = createRequestQueue();
  const app: FastifyInstance = fastify({
    serverFactory: (routes) =>
      serverOf(routes, {
        ...{ refuse, turns, turnAway: createTurnAway(config.brand), interceptor, guard, limits },
        ownHeaders: new Map(Object.entries(transport)),
      }),
    clientErrorHandler: (error, socket) => {
      if (!turns.isStop(error, socket)) refuseUnreadable(refuse, { error, socket });
    },
    loggerInstance: log as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    trustProxy: config.trustedProxies.length > 0 ? config.trustedProxies : false,
    genReqId: requestIds(),
    bodyLimit: 1024 * 1024,
    forceCloseConnections: 'idle',
    // A request that comes on an open connection during a stop is answered like those before it: see `drain.ts`.
    return503OnClosing: false,
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 2048 },
    frameworkErrors: (_error, request, reply) => {
      sendError(
        reply as FastifyReply,
        new AppError('invalid_uri_params', 'The path is not a valid URL path.'),
        request as FastifyRequest,
      );
    },
  });

  announceStop(app, () => interceptor?.stopping());
  app.addHook('preClose', async () => interceptor?.closing());
  app.setValidatorCompiler<z.ZodType>(({ schema }) => (data) => {
    const result = schema.safeParse(data);
    return result.success ? { value: result.data } : { error: new ValidationFault(result.error.issues) };
  });
  app.setSerializerCompiler(serializerCompiler);
  causeRequests(app);
  parseJsonOnly(app);
  writeErrors(app, isRootAlias);
  logRequests(app, log);
  answerAnyOrigin(app, config.brand);
  authorizeRoutes(app, { authenticate, brand: config.brand, rates: limits.rates });
  refuseCoded(app);
  if (limits.bodyBytes !== undefined) limitBodyMemory(app, limits.bodyBytes);
  return app.withTypeProvider<ZodTypeProvider>();
}

/** Longer than a balancer in front keeps its connections open (60 s as a rule), so that the end is never ours. */
const keepAliveMs = 72_000;
/** How long the head of a request may take; it is looked for late ones this often. */
const headersMs = 20_000;
const checkEveryMs = 5_000;
/** How long the body of a request to a route may take: what Node allows a request unless told otherwise. */
const bodyMs = 300_000;
/** As Node has it unless told otherwise; together they may have 16 KB. */
const maxHeaders = 1_000;

function serverOf(
  routes: RequestListener,
  {
    refuse,
    turns,
    turnAway,
    interceptor,
    guard,
    ownHeaders,
    limits: { overload, maxConnections },
  }: Pick<HttpSettings, 'interceptor' | 'guard'> & {
    refuse: Refuse;
    turns: RequestQueue;
    turnAway: ReturnType<typeof createTurnAway>;
    /** Of every answer but those of the front. */
    ownHeaders: Map<string, string>;
    limits: Limits;
  },
): Server {
  const listener = turns.each((request, response) => {
    const { url = '' } = request;
    if (url.charCodeAt(0) !== slash) readAbsolute(request);
    const fault = faultOf(request);
    if (fault !== undefined) {
      refuse(request.socket, new AppError('malformed_request', fault));
      return;
    }
    const refusal = guard?.(request);
    if (refusal !== undefined) {
      refuse(request.socket, refusal);
      return;
    }
    const isSent = hasBody(request);
    if (isSent) lingerBehind(request, response);
    const tooMuch = overload?.refusalOf(request.url ?? '');
    if (tooMuch !== undefined) {
      response.setHeaders(ownHeaders);
      if (isStopping({ server })) response.setHeader('connection', 'close');
      turnAway(response, tooMuch);
      return;
    }
    if (interceptor?.takes(request) === true) {
      interceptor.handle(request, response);
      return;
    }
    response.setHeaders(ownHeaders);
    const expire = () => refuse(request.socket, new AppError('request_timeout'));
    if (isSent) limitBody(request, { response, limitMs: bodyMs, expire });
    routes(request, response);
  });
  // The kernel detects a client that vanishes without closing its connection.
  const server = createServer({
    ...{ keepAlive: true, keepAliveInitialDelay: 60_000, requireHostHeader: false },
    ...{ headersTimeout: headersMs, connectionsCheckingInterval: checkEveryMs },
  });
  if (maxConnections !== undefined) limitConnections(server, maxConnections);
  server.on('connection', turns.watch);
  server.on('request', listener);
  server.on('checkContinue', (request, response) => {
    continueWhenRead(request, response);
    listener(request, response);
  });
  // Other expectations may be passed over (RFC 9110 §10.1.1).
  server.on('checkExpectation', listener);
  server.keepAliveTimeout = keepAliveMs;
  // What the front takes may take as long as it keeps coming, which the front sees to.
  server.requestTimeout = 0;
  server.maxHeadersCount = maxHeaders;
  // Node hands CONNECT to nobody unless asked, and then the bare socket.
  server.on('connect', (_request, socket: Socket) => {
    socket.on('error', () => {});
    const error = new AppError('method_not_allowed', 'There are no tunnels here.');
    refuse(socket, error, { allow: allowedMethods });
  });
  return server;
}

const slash = 0x2f;

/** Why a request that Node has read is none; undefined: it is one. */
function faultOf({ headers, httpVersion, rawHeaders }: IncomingMessage): string | undefined {
  // A proxy in front of us that does not know chunks would find another request in them (RFC 9112 §6.1).
  if (httpVersion === '1.0' && headers['transfer-encoding'] !== undefined) {
    return 'A request of HTTP/1.0 has no Transfer-Encoding.';
  }
  let hosts = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts += 1;
  }
  // RFC 9112 §3.2
  if (hosts > 1) return 'There is more than one header Host.';
  return hosts === 0 && httpVersion === '1.1' ? 'The header Host is missing.' : undefined;
}

/** An absolute-form target names a host too, which counts in the place of Host (RFC 9112 §3.2.2); another form stays. */
function readAbsolute(request: IncomingMessage): void {
  const [, host, path] = /^https?:\/\/([^/?#]*)(.*)$/is.exec(request.url ?? '') ?? [];
  if (host === undefined || path === undefined) return;
  request.url = path.startsWith('/') ? path : `/${path}`;
  request.headers.host = host;
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

/**
 * How many connections callers may have open.
 *
 * Where all places are taken, a newcomer gets the place of somebody who uses theirs for nothing: first of those who have
 * never sent a whole request, however slowly they send, then of those who wait between two. So nobody keeps others out by
 * holding connections; only where each has a request under way is a newcomer turned away.
 */

/** One pass over all connections frees places for several newcomers at once. */
const evictedShare = 0.02;

/** Node's names for the answer that is under way on a socket, and for what reads requests from it. */
type Connection = Socket & { _httpMessage?: ServerResponse | null; parser?: object | null };

export function limitConnections(server: Server, max: number): void {
  const open = new Set<Connection>();
  server.on('connection', (socket: Connection) => {
    // Before the others are told of it: a place that is not to be had costs nothing.
    if (open.size >= max && !evict(open, Math.ceil(max * evictedShare))) {
      socket.destroy();
      return;
    }
    open.add(socket);
    socket.on('close', () => open.delete(socket));
  });
}

/** Ends up to `wanted` of them; whether any was. */
function evict(open: Set<Connection>, wanted: number): boolean {
  const unused = [...open].filter(isUnused);
  const silent = unused.filter(({ bytesWritten }) => bytesWritten === 0);
  const waiting = unused.filter(({ bytesWritten }) => bytesWritten > 0);
  const ended = [...silent, ...waiting].slice(0, wanted);
  for (const socket of ended) {
    // Its place is free at once, whenever it is told of its end.
    open.delete(socket);
    socket.destroy();
  }
  return ended.length > 0;
}

/** One that became a socket of another protocol has no parser of requests any more. */
function isUnused({ _httpMessage: answer, parser }: Connection): boolean {
  return !answer && parser !== null && parser !== undefined;
}
