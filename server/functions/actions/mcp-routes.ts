/**
 * Actions as tools of an MCP server, for the connection that the headers name.
 *
 * Owns: the authentication of callers, and the choice of the connection. Stateless: each request names its caller and its
 * connection, and any node answers it. Does not own: answers and the form of tools (`mcp-server.ts`), calls (`actions.ts`).
 *
 * Source: https://modelcontextprotocol.io/specification/2025-06-18/basic/transports (streamable HTTP).
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { connectionId } from '../../connections/routes/wire.ts';
import type { ConnectionReader, LiveConnection } from '../../connections/store/reader.ts';
import { AppError } from '../../errors.ts';
import { type AuthenticateCall, type ProxyCaller, proxyCallerOf } from '../../http/auth/caller.ts';
import type { RateLimits } from '../../http/limits/rate-limit.ts';
import { connectionErrors } from '../../http/openapi/describe.ts';
import type { App } from '../../http/server.ts';
import { integrationKey } from '../../integrations/wire.ts';
import { disconnectSignal } from './action-routes.ts';
import type { Actions } from './actions.ts';

type McpDeps = {
  actions: Actions;
  connections: Pick<ConnectionReader, 'get'>;
  /** Without cookie authentication: these routes ignore cookies. */
  authenticate: Omit<AuthenticateCall, 'cookies'>;
  /** Origins of pages that may call, including that of BASE_URL. */
  origins: readonly string[];
  /** Throws if functions are turned off. */
  open: () => Promise<void>;
  rates?: RateLimits;
};

const maxBytes = 4 * 1024 * 1024;
/** An error in the form of the protocol. */
const refusal = {
  type: 'application/json',
  schema: { type: 'object', required: ['jsonrpc', 'error'] },
  example: { jsonrpc: '2.0', error: { code: -32000, message: 'Not Acceptable' }, id: null },
};
const headers = z.looseObject({
  'connection-id': connectionId,
  'provider-config-key': integrationKey,
});

export function mcpRoutes(app: App, deps: McpDeps): void {
  const { authenticate, origins, connections, open, rates } = deps;
  // `admit` authenticates the caller.
  const anyone = { access: { by: 'anyone', isLimited: false } } as const;

  /** Called before the body is read. */
  async function admit(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    requireOrigin(request.headers.origin, origins);
    const admit = () => rates?.takeAt(request.raw);
    const caller = await proxyCallerOf(request.raw, { authenticate, scope: 'functions:read', admit });
    const fields = rates?.takeOf(caller);
    if (fields !== undefined) reply.headers(fields);
    admitted.set(request, caller);
    request.isKnown = true;
  }
  const admitted = new WeakMap<FastifyRequest, ProxyCaller>();

  app.post(
    '/mcp',
    {
      config: anyone,
      bodyLimit: maxBytes,
      onRequest: admit,
      preParsing: open,
      schema: {
        operationId: 'callMcp',
        summary: 'Actions of a connection as MCP tools',
        description:
          'Streamable HTTP without sessions. With the scope functions:read, a key or a ticket can list and call the ' +
          'read-only actions; with functions:write, all actions.',
        errors: [
          'functions_off',
          ...connectionErrors,
          'missing_auth_header',
          'malformed_auth_header',
          'invalid_secret_key_format',
          'unknown_account',
          'invalid_ticket',
          'forbidden',
          'proxy_rule_denied',
        ],
        headers,
        // The transport answers invalid messages as JSON-RPC requires.
        body: z.unknown(),
        security: [{ key: [] }, { ticket: [] }],
        example: { body: { jsonrpc: '2.0', id: 1, method: 'tools/list' } },
        answers: {
          200: {
            description: 'The response to the message, as JSON-RPC.',
            type: 'application/json',
            schema: { type: 'object' },
            example: { jsonrpc: '2.0', id: 1, result: { tools: [] } },
          },
          202: { description: 'The notification was accepted.' },
          400: { description: 'The message is not valid JSON-RPC.', ...refusal },
          406: { description: 'Accept must name application/json and text/event-stream.', ...refusal },
        },
      },
    },
    async (request, reply) => {
      const caller = admitted.get(request)!;
      const { 'connection-id': id, 'provider-config-key': key } = request.headers;
      const connection = await connectionOf(connections, caller, { id: String(id), key: String(key) });
      if (Array.isArray(request.body)) throw new AppError('invalid_body', 'Send one message at a time.');
      const session = { ...deps, caller, connection, signal: disconnectSignal(reply) };
      // Loaded on demand: the SDK is large.
      const { answerMessage } = await import('./mcp-server.ts');
      return reply.send(await answerMessage(session, { request: asWeb(request), message: request.body }));
    },
  );

  // There is no stream between requests, and no session to end.
  app.route({
    method: ['GET', 'DELETE'],
    url: '/mcp',
    config: anyone,
    schema: { hide: true },
    handler: async (_request, reply) => {
      reply.code(405).header('allow', 'POST');
      return { jsonrpc: '2.0', error: { code: -32000, message: 'Method not allowed.' }, id: null };
    },
  });
}

/** A page of another origin could use a key with another purpose, or rebind a name to a local address. */
function requireOrigin(origin: string | undefined, origins: readonly string[]): void {
  if (origin === undefined || origins.includes(origin)) return;
  throw new AppError(
    'forbidden',
    'The header Origin names a page that may not call /mcp. TRELLIS_MCP_ORIGINS can permit it.',
  );
}

/** Throws `proxy_rule_denied` (403) for a ticket of another connection, or without actions. */
async function connectionOf(
  connections: McpDeps['connections'],
  caller: ProxyCaller,
  { id, key }: { id: string; key: string },
): Promise<LiveConnection> {
  const refuse = (why: string) => {
    throw new AppError('proxy_rule_denied', `The ticket refuses this call: ${why}.`, {
      payload: { of: 'ticket' },
    });
  };
  const ticket = caller.kind === 'ticket' ? caller.ticket : undefined;
  if (ticket && ticket.actions === undefined)
    refuse('it is valid only for the proxy; create one with `actions`');
  if (ticket && (ticket.integrationKey !== key || ticket.connectionId !== id))
    refuse('it is for another connection');
  const { environmentId } = caller;
  const connection = await connections.get({ environmentId, integrationKey: key, connectionId: id });
  if (
    ticket &&
    (ticket.connectionRow !== connection.id || ticket.connectionMadeAt !== connection.createdAt.getTime())
  )
    refuse('its connection was deleted');
  return connection;
}

/** The request for the transport, without the body, which is already parsed. */
function asWeb({ headers: sent }: FastifyRequest): Request {
  const names = ['accept', 'content-type', 'mcp-protocol-version', 'mcp-session-id', 'last-event-id'];
  const known = names.flatMap((name) => (typeof sent[name] === 'string' ? [[name, sent[name]]] : []));
  return new Request('http://localhost/mcp', { method: 'POST', headers: known as [string, string][] });
}
