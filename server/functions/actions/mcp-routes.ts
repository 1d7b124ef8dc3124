/**
 * Actions as tools of an MCP server, for the one connection that the headers name.
 *
 * Owns: who may connect, and what they see. Stateless: each request says who it is from and which connection it is for,
 * and any node answers it. Does not own: what is answered (`mcp-server.ts`), how an action runs
 * (`actions.ts`), how one looks as a tool (`mcp-server.ts`).
 *
 * Source: https://modelcontextprotocol.io/specification/2025-06-18/basic/transports (streamable HTTP).
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { ConnectionReader, LiveConnection } from '../../connections/reader.ts';
import { connectionId } from '../../connections/wire.ts';
import { AppError } from '../../errors.ts';
import { type AuthenticateCall, proxyCallerOf } from '../../http/authorize.ts';
import type { ProxyCaller } from '../../http/caller.ts';
import { connectionErrors } from '../../http/describe.ts';
import type { RateLimits } from '../../http/rate-limit.ts';
import type { App } from '../../http/server.ts';
import { integrationKey } from '../../integrations/wire.ts';
import type { Actions } from './actions.ts';

type Deps = {
  actions: Actions;
  connections: Pick<ConnectionReader, 'get'>;
  /** Without cookie authentication: these routes ignore cookies. */
  authenticate: Omit<AuthenticateCall, 'cookies'>;
  /** Origins of pages that may call, BASE_URL's among them. */
  origins: readonly string[];
  /** Throws where functions are turned off. */
  open: () => Promise<void>;
  rates?: RateLimits;
};

const maxBytes = 4 * 1024 * 1024;
/** In the words of the protocol. */
const refusal = {
  type: 'application/json',
  schema: { type: 'object', required: ['jsonrpc', 'error'] },
  example: { jsonrpc: '2.0', error: { code: -32000, message: 'Not Acceptable' }, id: null },
};
const headers = z.looseObject({
  'connection-id': connectionId,
  'provider-config-key': integrationKey,
});

export function mcpRoutes(app: App, deps: Deps): void {
  const { authenticate, origins, connections, open, rates } = deps;
  // They look at the key themselves.
  const anyone = { access: { by: 'anyone', isLimited: false } } as const;

  /** Before the body is read. */
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
          'Streamable HTTP without sessions. A key or a ticket with the scope functions:read sees the actions that are ' +
          'read-only; with functions:write all.',
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
        // What is no JSON-RPC is answered as JSON-RPC says.
        body: z.unknown(),
        security: [{ key: [] }, { ticket: [] }],
        example: { body: { jsonrpc: '2.0', id: 1, method: 'tools/list' } },
        answers: {
          200: {
            description: 'The answer to the message, as JSON-RPC.',
            type: 'application/json',
            schema: { type: 'object' },
            example: { jsonrpc: '2.0', id: 1, result: { tools: [] } },
          },
          202: { description: 'A notification was taken.' },
          400: { description: 'The message is none of JSON-RPC.', ...refusal },
          406: { description: 'Accept must name application/json and text/event-stream.', ...refusal },
        },
      },
    },
    async (request, reply) => {
      const caller = admitted.get(request)!;
      const { 'connection-id': id, 'provider-config-key': key } = request.headers;
      const connection = await connectionOf(connections, caller, { id: String(id), key: String(key) });
      if (Array.isArray(request.body)) throw new AppError('invalid_body', 'Send one message at a time.');
      const gone = new AbortController();
      reply.raw.once('close', () => gone.abort());
      // It may have hung up while its key and connection were looked up.
      if (reply.raw.destroyed) gone.abort();
      const session = { ...deps, caller, connection, signal: gone.signal };
      // Large, and not needed by most.
      const { answerMessage } = await import('./mcp-server.ts');
      return reply.send(await answerMessage(session, { request: asWeb(request), message: request.body }));
    },
  );

  // There is nothing to listen for between requests, and no session to end.
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

/** A page of another origin could use a key that it was given for something else, or rebind a name to a local address. */
function requireOrigin(origin: string | undefined, origins: readonly string[]): void {
  if (origin === undefined || origins.includes(origin)) return;
  throw new AppError(
    'forbidden',
    'The header Origin names a page that may not call /mcp. TRELLIS_MCP_ORIGINS can permit it.',
  );
}

/** Throws `proxy_rule_denied` (403) where the caller holds a ticket for another connection, or without actions. */
async function connectionOf(
  connections: Deps['connections'],
  caller: ProxyCaller,
  { id, key }: { id: string; key: string },
): Promise<LiveConnection> {
  const refuse = (why: string) => {
    throw new AppError('proxy_rule_denied', `The ticket refuses this call: ${why}.`, {
      payload: { of: 'ticket' },
    });
  };
  const ticket = caller.kind === 'ticket' ? caller.ticket : undefined;
  if (ticket && ticket.actions === undefined) refuse('it is for the proxy alone; ask for one with `actions`');
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

/** The request as the transport looks at it: its body was read. */
function asWeb({ headers: sent }: FastifyRequest): Request {
  const names = ['accept', 'content-type', 'mcp-protocol-version', 'mcp-session-id', 'last-event-id'];
  const known = names.flatMap((name) => (typeof sent[name] === 'string' ? [[name, sent[name]]] : []));
  return new Request('http://localhost/mcp', { method: 'POST', headers: known as [string, string][] });
}
