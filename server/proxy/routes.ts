/**
 * The proxy: any request to `/proxy/...` goes to the provider with the connection's credentials.
 *
 * Owns: who may call, what our own headers mean, in which words our errors are told. Neighbours: `attempt.ts` says
 * where a request goes and what goes along, `forward.ts` moves the bytes. The server rewrites all proxied
 * URLs to one route before it decodes anything; `request.originalUrl` holds what was sent.
 */
import { METHODS } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest, HTTPMethods } from 'fastify';
import { z } from 'zod';
import type { Brand } from '../brand.ts';
import type { CredentialSource } from '../connections/credentials.ts';
import type { ConnectionReader, LiveConnection } from '../connections/reader.ts';
import { AppError } from '../errors.ts';
import { type App, proxyRoute } from '../http/server.ts';
import type { Outbound } from '../outbound.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { attemptWith } from './attempt.ts';
import { inDialect } from './error-dialect.ts';
import { forward } from './forward.ts';
import { responseHeaders } from './headers.ts';

export type ProxyDeps = {
  brand: Brand;
  connections: Pick<ConnectionReader, 'get' | 'getIntegration'>;
  credentials: Pick<CredentialSource, 'fresh' | 'renewed'>;
  outbound: Outbound;
};

const callHeaders = z.object({
  'provider-config-key': z.string().min(1),
  'connection-id': z.string().min(1),
  retries: z
    .string()
    .regex(/^(\d|10)$/, 'must be a whole number from 0 to 10')
    .optional(),
  'retry-on': z
    .string()
    .regex(/^[1-5]\d\d(, ?[1-5]\d\d)*$/, 'must be HTTP statuses separated by commas')
    .optional(),
  'base-url-override': z.string().optional(),
  decompress: z.enum(['true', 'false']).optional(),
  'quota-wait': z
    .string()
    .regex(/^([0-5]?\d|60)$/, 'must be a whole number of seconds from 0 to 60')
    .optional(),
});
type CallHeaders = z.output<typeof callHeaders>;

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
    leaveBodiesAlone(scope);
    writeErrorsOfOurs(scope, { brand: deps.brand, definitions });
    const route = {
      url: proxyRoute,
      exposeHeadRoute: false,
      config: { access: { by: 'key', scope: 'proxy' } },
    } as const;
    scope.route({
      ...route,
      method: methods,
      // OpenAPI has no words for a route that takes every method and path.
      schema: { headers: callHeaders, hide: true },
      handler: (request, reply) => proxy({ request, reply, deps, definitions }),
    });
    scope.route({
      ...route,
      method: 'TRACE',
      schema: { hide: true },
      handler: (_request, reply) => {
        reply.header('allow', allow);
        throw new AppError('method_not_allowed');
      },
    });
  });
}

type Call = {
  request: FastifyRequest;
  reply: FastifyReply;
  deps: ProxyDeps;
  /** Filled in as soon as the provider of a request is known. */
  definitions: WeakMap<FastifyRequest, ProviderDefinition>;
};

async function proxy(call: Call): Promise<void> {
  const { request, reply, deps, definitions } = call;
  const { brand, credentials, outbound } = deps;
  const connection = await connectionOf(call);
  const { integration } = connection;
  definitions.set(request, integration.provider);
  const { timeouts } = integration.provider.api;
  const used = await credentials.fresh(connection);
  const ask = {
    connection,
    brand,
    rawUrl: request.originalUrl,
    rawHeaders: request.raw.rawHeaders,
    override: (request.headers as CallHeaders)['base-url-override'],
  };
  const attempt = attemptWith(used, ask);
  const outcome = await forward({
    request: request.raw,
    response: reply.raw,
    outbound,
    call: {
      ...attempt,
      method: request.method,
      isTest: integration.isTest,
      headersTimeoutMs: timeouts.headers_ms,
      bodyIdleTimeoutMs: timeouts.body_idle_ms,
    },
    answerHeaders: (rawHeaders) => [
      ...responseHeaders(rawHeaders, { brand, ...attempt }),
      ...corsHeaders(reply),
    ],
    renew: async () => {
      const renewed = await credentials.renewed(connection, used);
      return renewed && attemptWith(renewed, ask);
    },
    takeOver: () => {
      reply.hijack();
    },
  });
  if (outcome !== 'answered') request.log.debug({ outcome }, 'the answer is not whole');
}

/** Throws `unknown_provider_config` (404) or `unknown_connection` (400). */
async function connectionOf({ request, deps, definitions }: Call): Promise<LiveConnection> {
  const headers = request.headers as CallHeaders;
  const at = {
    environmentId: request.caller.environmentId,
    integrationKey: headers['provider-config-key'],
    connectionId: headers['connection-id'],
  };
  try {
    return await deps.connections.get(at);
  } catch (error) {
    if (error instanceof AppError) {
      const { provider } = await deps.connections.getIntegration(at);
      definitions.set(request, provider);
    }
    throw error;
  }
}

/** What `http/cors.ts` has put on the reply, which is not sent by way of it. */
function corsHeaders(reply: FastifyReply): string[] {
  return Object.entries(reply.getHeaders()).flatMap(([name, value]) =>
    name.startsWith('access-control-') ? [name, String(value)] : [],
  );
}

/** Bodies are streamed as they come, whatever they say they are. */
function leaveBodiesAlone(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', (_request, _body, done) => done(null));
  scope.addHook('onRequest', async ({ raw }) => {
    // A Content-Type that is none would be refused before the route; the provider gets it from `rawHeaders`.
    if (raw.headers['content-type'] !== undefined) raw.headers['content-type'] = 'application/octet-stream';
  });
}

/** Marks errors of ours, and tells them in the provider's words once the provider is known. */
function writeErrorsOfOurs(
  scope: FastifyInstance,
  { brand, definitions }: { brand: Brand; definitions: WeakMap<FastifyRequest, ProviderDefinition> },
): void {
  scope.setErrorHandler((thrown, request, reply) => {
    const definition = definitions.get(request);
    const error =
      thrown instanceof AppError ? thrown : new AppError('internal', undefined, { cause: thrown });
    const dialect = definition && inDialect(error, { definition, brand });
    if (dialect === undefined) {
      reply.header(brand.header('Error'), codeOf(thrown));
      throw thrown;
    }
    if (error.code === 'internal') request.log.error({ err: thrown }, 'unexpected error');
    else if (error.status >= 500) request.log.warn({ err: error }, 'proxied request failed');
    if (error.retryAfterS !== undefined) reply.header('retry-after', String(Math.ceil(error.retryAfterS)));
    return reply
      .code(error.status)
      .header(brand.header('Error'), error.code)
      .type('application/json; charset=utf-8')
      .send(JSON.stringify(dialect));
  });
}

/** A fault of the headers is the only one that a schema of this room can find. */
function codeOf(thrown: unknown): string {
  if (thrown instanceof AppError) return thrown.code;
  const isOfHeaders = (thrown as { validationContext?: unknown }).validationContext === 'headers';
  return isOfHeaders ? 'invalid_headers' : 'internal';
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
