/**
 * The HTTP server that all routes share: parsing, validation, authentication, errors, CORS, OpenAPI and the request log.
 * Modules add their routes in `routes.ts` and `*-routes.ts` files.
 */
import { randomUUID } from 'node:crypto';
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
import { ResponseSerializationError, type ZodTypeProvider } from 'fastify-type-provider-zod';
import type { z } from 'zod';
import type { Config } from '../config/config.ts';
import { AppError } from '../errors.ts';
import type { Logger } from '../log.ts';
import { metrics } from '../metrics/metrics.ts';
import { type Cause, remoteSpanOf, startSpan, within } from '../tracing/tracing.ts';
import { type Authenticate, authorizeRoutes } from './auth/caller.ts';
import { continueWhenRead, limitBody, lingerBehind } from './bodies.ts';
import { compressForUsers } from './compression.ts';
import { allowedMethods, answerAnyOrigin } from './cors.ts';
import { addDeprecatedRoutes } from './deprecation.ts';
import { announceStop, isStopping } from './drain.ts';
import {
  createRefusal,
  createTurnAway,
  type Refuse,
  refuseUnreadable,
  sendError,
  ValidationError,
  writeErrors,
} from './error-writer.ts';
import { parseJsonOnly } from './json-body.ts';
import { limitBodyMemory, refuseCoded } from './limits/body-memory.ts';
import type { Overload } from './limits/overload.ts';
import type { RateLimits } from './limits/rate-limit.ts';
import { addListExports, type ExportLimits } from './list-exports.ts';
import { addLists } from './lists.ts';
import { describeRoutes } from './openapi/openapi.ts';
import { addSpellings, nameAdder } from './spellings.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Undefined after the end of the request. */
    cause: Cause | undefined;
  }
}

export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  ZodTypeProvider
>;

/** Handles some requests before the router, which may not accept their paths and bodies. */
export type RequestInterceptor = {
  /** Whether it handles the request. */
  takes(request: IncomingMessage): boolean;
  /** The server reads the rest of an unfinished body for a while after the response; only a little if it was paused. */
  handle: RequestListener;
  /** Called when a stop begins: responses must announce the end of their connection. Requests still arrive. */
  stopping(): void;
  /** Called after that, when no request arrives any more: calls in flight should end. */
  closing(): void;
};

/** Absent: no limit. */
type Limits = {
  rates?: RateLimits;
  overload?: Overload | undefined;
  /** Of open connections. */
  maxConnections?: number;
  /** Of the memory for large bodies. */
  bodyBytes?: number | undefined;
  exports?: Partial<ExportLimits> | undefined;
};

type HttpSettings = {
  config: Pick<Config, 'brand' | 'trustedProxies' | 'baseUrl'>;
  log: Logger;
  authenticate: Authenticate;
  /** Whether a path is one of a provider. */
  isRootAlias: (path: string) => boolean;
  interceptor?: RequestInterceptor | undefined;
  /** Called first for each request: an error refuses it and ends its connection. */
  guard?: ((request: IncomingMessage) => AppError | undefined) | undefined;
  limits?: Limits;
};

/** A server with the routes of its documents only. It does not listen yet. */
export async function createHttp(settings: HttpSettings): Promise<App> {
  const app = createOwn(settings);
  await app.register(cookie);
  await describeRoutes(app, settings.config);
  return app;
}

/** A server for probes and metrics: it has no callers and no documents. */
export async function createBareHttp({
  config,
  log,
  limits = {},
}: Pick<HttpSettings, 'config' | 'log' | 'limits'>): Promise<App> {
  const unknown = async () => {
    throw new AppError('unknown_account');
  };
  return createOwn({
    config,
    log,
    limits,
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
  const nextId = requestIds();
  const refuse = createRefusal(config.brand, { own: transport, nextId });
  const queue = createRequestQueue();
  const app: FastifyInstance = fastify({
    serverFactory: (routes) =>
      serverOf(routes, {
        refuse,
        queue,
        turnAway: createTurnAway(config.brand, nextId),
        interceptor,
        guard,
        limits,
        ownHeaders: new Map(Object.entries(transport)),
      }),
    clientErrorHandler: (error, socket) => {
      if (!queue.isStop(error, socket)) refuseUnreadable(refuse, { error, socket });
    },
    loggerInstance: log as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    trustProxy: config.trustedProxies.length > 0 ? config.trustedProxies : false,
    genReqId: nextId,
    bodyLimit: 1024 * 1024,
    forceCloseConnections: 'idle',
    // During a stop, requests on open connections are served as usual; see `drain.ts`.
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
    return result.success ? { value: result.data } : { error: new ValidationError(result.error.issues) };
  });
  app.setSerializerCompiler<z.ZodType>(({ schema, method, url }) => {
    const addNames = nameAdder(schema);
    return (response) => {
      const { data, error } = schema.safeEncode(response);
      if (error) throw new ResponseSerializationError(method, url, { cause: error });
      addNames?.(data);
      return JSON.stringify(data);
    };
  });
  addDeprecatedRoutes(app, config.baseUrl);
  addLists(app);
  addSpellings(app);
  addListExports(app, { brand: config.brand, limits: limits.exports });
  addRequestContext(app);
  parseJsonOnly(app);
  writeErrors(app, isRootAlias);
  logRequests(app, log);
  compressForUsers(app);
  answerAnyOrigin(app, config.brand);
  authorizeRoutes(app, { authenticate, brand: config.brand, rates: limits.rates });
  refuseCoded(app);
  if (limits.bodyBytes !== undefined) limitBodyMemory(app, limits.bodyBytes);
  return app.withTypeProvider<ZodTypeProvider>();
}

/**
 * The header that makes browsers use https for this host for a year (RFC 6797), if BASE_URL is https. For our own responses
 * only: a provider's response passes the proxy unchanged.
 */
export function strictTransport(baseUrl: string): Record<string, string> {
  return new URL(baseUrl).protocol === 'https:' ? { 'strict-transport-security': 'max-age=31536000' } : {};
}

/**
 * Makes request IDs: UUIDs of version 8 (RFC 9562 §5.8) with a random part for the process, and a counter. They are unique,
 * but not secret.
 */
export function requestIds(): () => string {
  const random = randomUUID();
  const start = `${random.slice(0, 14)}8${random.slice(15, 24)}`;
  let count = 0;
  return () => start + (count++).toString(16).padStart(12, '0');
}

/** Longer than a load balancer keeps its connections open (usually 60 s), so that the balancer closes them first. */
const keepAliveMs = 72_000;
/** The time limit for the head of a request, and how often it is checked. */
const headersMs = 20_000;
const checkEveryMs = 5_000;
/** The time limit for the body of a request to a route: Node's default. */
const bodyMs = 300_000;
/** Node's default; the limit for all headers together is 16 KB. */
const maxHeaders = 1_000;

function serverOf(
  routes: RequestListener,
  {
    refuse,
    queue,
    turnAway,
    interceptor,
    guard,
    ownHeaders,
    limits: { overload, maxConnections },
  }: Pick<HttpSettings, 'interceptor' | 'guard'> & {
    refuse: Refuse;
    queue: RequestQueue;
    turnAway: ReturnType<typeof createTurnAway>;
    /** For every response, except those of the interceptor. */
    ownHeaders: Map<string, string>;
    limits: Limits;
  },
): Server {
  const listener = queue.each((request, response) => {
    const { url = '' } = request;
    if (url.charCodeAt(0) !== slash) readAbsolute(request);
    const fault = requestFault(request);
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
  // The kernel detects a client that disappears without closing its connection.
  const server = createServer({
    keepAlive: true,
    keepAliveInitialDelay: 60_000,
    requireHostHeader: false,
    headersTimeout: headersMs,
    connectionsCheckingInterval: checkEveryMs,
  });
  if (maxConnections !== undefined) limitConnections(server, maxConnections);
  server.on('connection', queue.watch);
  server.on('request', listener);
  server.on('checkContinue', (request, response) => {
    continueWhenRead(request, response);
    listener(request, response);
  });
  // Other expectations may be ignored (RFC 9110 §10.1.1).
  server.on('checkExpectation', listener);
  server.keepAliveTimeout = keepAliveMs;
  // Requests for the interceptor may last as long as data arrives, which the interceptor checks.
  server.requestTimeout = 0;
  server.maxHeadersCount = maxHeaders;
  // Node passes CONNECT to this event only, with the bare socket.
  server.on('connect', (_request, socket: Socket) => {
    socket.on('error', () => {});
    const error = new AppError('method_not_allowed', 'This server does not open tunnels.');
    refuse(socket, error, { allow: allowedMethods });
  });
  return server;
}

const slash = 0x2f;

/** Why a parsed request is invalid nevertheless; undefined: it is valid. */
function requestFault({ headers, httpVersion, rawHeaders }: IncomingMessage): string | undefined {
  // A proxy without support for chunks could parse another request from them (RFC 9112 §6.1).
  if (httpVersion === '1.0' && headers['transfer-encoding'] !== undefined) {
    return 'An HTTP/1.0 request cannot have a Transfer-Encoding.';
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

/** Whether the request has a body (RFC 9112 §6.3). */
export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/** The host of an absolute-form target replaces Host (RFC 9112 §3.2.2); other forms stay unchanged. */
function readAbsolute(request: IncomingMessage): void {
  const [, host, path] = /^https?:\/\/([^/?#]*)(.*)$/is.exec(request.url ?? '') ?? [];
  if (host === undefined || path === undefined) return;
  request.url = path.startsWith('/') ? path : `/${path}`;
  request.headers.host = host;
}

/** Logs each request by its route, never its query, so that no code, token or cursor is logged. */
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

/** One pass over all connections makes space for several new ones. */
const evictedShare = 0.02;

/** Node's names for the response that a socket is writing, and for the parser of its requests. */
type Connection = Socket & { _httpMessage?: ServerResponse | null; parser?: object | null };

/**
 * Limits the number of open connections.
 *
 * At the limit, a new connection replaces one without a request in flight: first one that has never sent a complete request,
 * however slowly it sends, then one that is idle between two. So no client can keep others out by holding connections. A new
 * connection is refused only if each open one has a request in flight.
 */
export function limitConnections(server: Server, max: number): void {
  const open = new Set<Connection>();
  server.on('connection', (socket: Connection) => {
    // This runs before the other listeners, so a refused connection costs nothing.
    if (open.size >= max && !evict(open, Math.ceil(max * evictedShare))) {
      socket.destroy();
      return;
    }
    open.add(socket);
    socket.on('close', () => open.delete(socket));
  });
}

/** Ends up to `wanted` unused connections; returns whether there were any. */
function evict(open: Set<Connection>, wanted: number): boolean {
  const unused = [...open].filter(isUnused);
  const silent = unused.filter(({ bytesWritten }) => bytesWritten === 0);
  const waiting = unused.filter(({ bytesWritten }) => bytesWritten > 0);
  const ended = [...silent, ...waiting].slice(0, wanted);
  for (const socket of ended) {
    // The `close` event comes later.
    open.delete(socket);
    socket.destroy();
  }
  return ended.length > 0;
}

/** A socket that was upgraded to another protocol has no parser, and counts as used. */
function isUnused({ _httpMessage: answer, parser }: Connection): boolean {
  return !answer && parser !== null && parser !== undefined;
}

/**
 * Executes pipelined requests of a connection one after the other, as unsafe requests require (RFC 9112 §9.3.2). Only a few
 * may wait, since they use memory before their key was checked; further requests are not read. Each turn of the event loop
 * begins a few of them, so that a client which sends thousands does not delay others.
 */
type RequestQueue = {
  /** Calls `listener` with each request when all responses before its own have been sent. */
  each(listener: RequestListener): RequestListener;
  /** To be called with each connection when it opens. */
  watch(socket: Socket): void;
  /** Whether the error that Node reports is a parser that was stopped here. */
  isStop(error: Error, socket: Socket): boolean;
};

/** When so many requests wait on a connection, it is not read until half of them have begun. */
const maxWaiting = 16;
/** The number of requests that begin in one turn of the event loop. */
const maxAtOnce = 16;

/**
 * Node parses all heads in a chunk of up to 64 KB at once: 1,800 requests in 10 ms. So the parser is stopped in between, by
 * the value that `onIncoming` returns to llhttp; Node reports that as an error with the rest of the chunk.
 */
type Read = Socket & { parser?: Reader | null };
type Reader = { onIncoming: (...given: unknown[]) => number; resume(): void };
type Stop = Partial<{ code: string; rawPacket: Buffer; bytesParsed: number }>;
/** `HPE_OK` and `HPE_PAUSED` of llhttp. */
const goOn = 0;
const stop = 21;

function createRequestQueue(): RequestQueue {
  const waiting = new WeakMap<Socket, number>();
  /** The rest of the chunk at which a parser was stopped. */
  const unread = new WeakMap<Socket, Buffer>();
  const ready: (() => void)[] = [];
  let isDue = false;

  const isFull = (socket: Socket) => (waiting.get(socket) ?? 0) >= maxWaiting || unread.has(socket);

  function leave(socket: Socket): void {
    const left = (waiting.get(socket) ?? 1) - 1;
    waiting.set(socket, left);
    if (left === maxWaiting / 2 && unread.has(socket)) setImmediate(() => readOn(socket));
  }

  function readOn(socket: Read): void {
    const rest = unread.get(socket);
    unread.delete(socket);
    if (!socket.parser) return;
    socket.parser.resume();
    // Not by the stream, which would begin to read ahead.
    socket.emit('data', rest);
    if (!unread.has(socket)) socket.resume();
  }

  function begin(work: () => void): void {
    ready.push(work);
    if (isDue) return;
    isDue = true;
    setImmediate(beginSome);
  }

  function beginSome(): void {
    for (const work of ready.splice(0, maxAtOnce)) setImmediate(work);
    isDue = ready.length > 0;
    if (isDue) setImmediate(beginSome);
  }

  return {
    each: (listener) => (request, response) => {
      // Node assigns the socket to a response when its turn has come.
      if (response.socket !== null) {
        listener(request, response);
        return;
      }
      const { socket } = request;
      waiting.set(socket, (waiting.get(socket) ?? 0) + 1);
      response.once('socket', () => {
        leave(socket);
        begin(() => {
          if (!socket.destroyed) listener(request, response);
        });
      });
    },
    watch(socket: Read) {
      const { parser } = socket;
      if (!parser) return;
      const { onIncoming } = parser;
      parser.onIncoming = (...given) => {
        const answer = onIncoming(...given);
        return answer === goOn && isFull(socket) ? stop : answer;
      };
      // Code that reads or skips a body resumes the connection.
      socket.on('resume', () => {
        if (!isFull(socket)) return;
        socket.pause();
        // Node would keep reading: it does not emit this event for a stream that was paused during `resume`.
        socket.emit('pause');
      });
    },
    isStop(error, socket) {
      const { code, rawPacket, bytesParsed } = error as Stop;
      if (code !== 'HPE_PAUSED' || rawPacket === undefined || unread.has(socket)) return false;
      unread.set(socket, rawPacket.subarray(bytesParsed));
      socket.pause();
      return true;
    },
  };
}

/**
 * Sets the async context of each request to a route: log lines name the request, its spans belong to it, and its duration is
 * measured. To be called before other hooks are added, so that they run in the context too.
 */
function addRequestContext(app: FastifyInstance): void {
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
    endRequest(request, { status: reply.statusCode, elapsedMs: reply.elapsedTime });
    done();
  });
  // An event stream ends only by an abort.
  app.addHook('onRequestAbort', (request, done) => {
    endRequest(request, { status: undefined, elapsedMs: undefined });
    done();
  });
}

/** Has an effect once, at the first end. */
function endRequest(
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

/** The declared path of the route, not that of the request, which the caller chooses. */
function routeOf({ routeOptions }: FastifyRequest): string {
  return routeOptions.url ?? 'none';
}
