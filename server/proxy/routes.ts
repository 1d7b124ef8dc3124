/**
 * The proxy: any request to `/proxy/...` goes to the provider with the connection's credentials.
 *
 * Owns: who may call, what our own headers mean, in which words our errors are told. Neighbours: `attempt.ts` says
 * where a request goes and what goes along, `forward.ts` moves the bytes. The server rewrites all proxied
 * URLs to one route before it decodes anything; `request.originalUrl` holds what was sent.
 */
import { METHODS } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest, HTTPMethods } from 'fastify';
import type { Activity } from '../activity/writer.ts';
import type { Brand } from '../brand.ts';
import type { CredentialSource } from '../connections/credentials.ts';
import type { Observer } from '../connections/observe.ts';
import type { ConnectionReader, LiveConnection } from '../connections/reader.ts';
import { AppError } from '../errors.ts';
import { anyOriginHeaders } from '../http/cors.ts';
import { sendError } from '../http/error-writer.ts';
import { type App, proxyRoute } from '../http/server.ts';
import type { Outbound } from '../outbound.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { attemptWith } from './attempt.ts';
import { type Call, readCall } from './call.ts';
import { CallTrace } from './call-log.ts';
import { inDialect } from './error-dialect.ts';
import { forward, type Outcome } from './forward.ts';
import { AnswerRules } from './headers.ts';
import { ProxiedCall } from './proxied-call.ts';
import type { Quota } from './quota/quota.ts';
import { rulesOf } from './rules.ts';

export type ProxyDeps = {
  brand: Brand;
  connections: Pick<ConnectionReader, 'get' | 'getIntegration'>;
  credentials: Pick<CredentialSource, 'fresh' | 'renewed'>;
  outbound: Outbound;
  /** Is shown the provider's error answers, after the reply. */
  observer?: Pick<Observer, 'wants' | 'observe'>;
  /** Keeps calls within the providers' quotas. */
  quota?: Pick<Quota, 'admit'>;
  /** Is told of each call, after the reply. */
  activity?: Pick<Activity, 'log'>;
};

/** RFC 9110 §9.3.6 and §9.3.8: one would make a tunnel of us, the other an echo of the credentials. */
const refusedMethods = ['CONNECT', 'TRACE'];
const methods = METHODS.filter((method) => !refusedMethods.includes(method)) as HTTPMethods[];
const allow = methods.join(', ');

export async function proxyRoutes(app: App, deps: ProxyDeps): Promise<void> {
  for (const method of METHODS) {
    if (method !== 'CONNECT' && !app.supportedMethods.includes(method as HTTPMethods)) {
      app.addHttpMethod(method, { hasBody: true });
    }
  }
  refuseTunnels(app, deps.brand);
  await app.register(async (scope) => {
    const definitions = new WeakMap<FastifyRequest, ProviderDefinition>();
    // A logger of its own for each request costs more than all of its header rules.
    scope.setChildLoggerFactory((logger) => logger);
    leaveBodiesAlone(scope);
    writeErrorsOfOurs(scope, { brand: deps.brand, definitions });
    const room: Room = {
      ...deps,
      definitions,
      answers: new AnswerRules(deps.brand),
      ownHeaders: Object.entries(anyOriginHeaders(deps.brand)).flat(),
    };
    const route = {
      url: proxyRoute,
      exposeHeadRoute: false,
      config: { access: { by: 'key', scope: 'proxy' }, addsAnyOrigin: true },
      // OpenAPI has no words for a route that takes every method and path.
      schema: { hide: true },
    } as const;
    scope.route({ ...route, method: methods, handler: (request, reply) => proxy(room, request, reply) });
    scope.route({
      ...route,
      method: 'TRACE',
      handler: (_request, reply) => {
        reply.header('allow', allow);
        throw new AppError('method_not_allowed');
      },
    });
  });
}

type Room = ProxyDeps & {
  /** Filled in as soon as the provider of a request is known. */
  readonly definitions: WeakMap<FastifyRequest, ProviderDefinition>;
  readonly answers: AnswerRules;
  readonly ownHeaders: readonly string[];
};

/** One call, and its line in the activity log once nothing more happens. */
async function proxy(room: Room, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const trace = new CallTrace();
  try {
    const outcome = await carry(room, { request, reply, trace });
    room.activity?.log(trace.operation(request, { outcome }));
  } catch (error) {
    room.activity?.log(trace.operation(request, { error }));
    throw error;
  }
}

type Carried = { request: FastifyRequest; reply: FastifyReply; trace: CallTrace };

async function carry(room: Room, { request, reply, trace }: Carried): Promise<Outcome> {
  const call = readCall(request.headers);
  const connection = await connectionOf(room, request, call);
  room.definitions.set(request, connection.integration.provider);
  const credentials = await room.credentials.fresh(connection);
  trace.credentialed();
  const ask = {
    connection,
    brand: room.brand,
    method: request.method,
    rules: rulesOf(request.caller, connection),
    rawUrl: request.originalUrl,
    rawHeaders: request.raw.rawHeaders,
    override: call.override,
  };
  const first = attemptWith(credentials, ask);
  const outcome = await forward(new ProxiedCall({ room, call, ask, credentials, first, reply, trace }));
  if (outcome !== 'answered') request.log.debug({ reqId: request.id, outcome }, 'the answer is not whole');
  return outcome;
}

/** Throws `unknown_provider_config` (404) or `unknown_connection` (400). */
async function connectionOf(room: Room, request: FastifyRequest, call: Call): Promise<LiveConnection> {
  const { integrationKey, connectionId } = call;
  const at = { environmentId: request.caller.environmentId, integrationKey, connectionId };
  try {
    return await room.connections.get(at);
  } catch (error) {
    if (error instanceof AppError) {
      const { provider } = await room.connections.getIntegration(at);
      room.definitions.set(request, provider);
    }
    throw error;
  }
}

/** Bodies are streamed as they come, whatever they say they are. */
function leaveBodiesAlone(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', (_request, _body, done) => done(null));
  scope.addHook('onRequest', ({ raw }, _reply, done) => {
    // A Content-Type that is none would be refused before the route; the provider gets it from `rawHeaders`.
    if (raw.headers['content-type'] !== undefined) raw.headers['content-type'] = 'application/octet-stream';
    done();
  });
}

/** Marks errors of ours, and tells them in the provider's words once the provider is known. */
function writeErrorsOfOurs(
  scope: FastifyInstance,
  { brand, definitions }: { brand: Brand; definitions: WeakMap<FastifyRequest, ProviderDefinition> },
): void {
  const anyOrigin = anyOriginHeaders(brand);
  scope.setErrorHandler((thrown, request, reply) => {
    const definition = definitions.get(request);
    const error =
      thrown instanceof AppError ? thrown : new AppError('internal', undefined, { cause: thrown });
    const dialect = definition && inDialect(error, { definition, brand });
    const { id: reqId, log } = request;
    if (error.code === 'internal') log.error({ reqId, err: thrown }, 'unexpected error');
    else if (error.status >= 500) log.warn({ reqId, err: error }, 'proxied request failed');
    reply.headers(anyOrigin).header(brand.header('Error'), error.code);
    if (dialect === undefined) return sendError(reply, error, request);
    if (error.retryAfterS !== undefined) reply.header('retry-after', String(Math.ceil(error.retryAfterS)));
    return reply.code(error.status).type('application/json; charset=utf-8').send(JSON.stringify(dialect));
  });
}

/** Node hands CONNECT to nobody unless asked. */
function refuseTunnels(app: App, brand: Brand): void {
  app.server.on('connect', (_request, socket) => {
    const body = JSON.stringify({
      error: { code: 'method_not_allowed', message: 'There are no tunnels here.' },
    });
    socket.on('error', () => {});
    socket.end(
      `HTTP/1.1 405 Method Not Allowed\r\n${brand.header('Error')}: method_not_allowed\r\nAllow: ${allow}\r\n` +
        'Content-Type: application/json; charset=utf-8\r\n' +
        `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
    );
  });
}
