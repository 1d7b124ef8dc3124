/**
 * Actions as tools of an MCP server, for the one connection that the headers name.
 *
 * Owns: who may connect, and what they see. Stateless: each request says who it is from and which connection it is for,
 * and any node answers it. Does not own: how an action runs (`actions.ts`), how one looks as a tool (`mcp-tools.ts`).
 *
 * Source: https://modelcontextprotocol.io/specification/2025-06-18/basic/transports (streamable HTTP).
 */
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import {
  CallToolRequestSchema,
  type CallToolResult,
  ErrorCode,
  ListToolsRequestSchema,
  McpError,
} from '@modelcontextprotocol/sdk/types.js';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { ConnectionReader, LiveConnection } from '../../connections/reader.ts';
import { connectionId } from '../../connections/wire.ts';
import { AppError } from '../../errors.ts';
import { type AuthenticateCall, proxyCallerOf } from '../../http/authorize.ts';
import { holdsScope, type ProxyCaller } from '../../http/caller.ts';
import type { App } from '../../http/server.ts';
import { integrationKey } from '../../integrations/wire.ts';
import type { Actions } from './actions.ts';
import { inputOf, toTool } from './mcp-tools.ts';

type Deps = {
  actions: Actions;
  connections: Pick<ConnectionReader, 'get'>;
  /** Without the door of people: a cookie counts nowhere here. */
  authenticate: Omit<AuthenticateCall, 'door'>;
  /** Origins of pages that may call, BASE_URL's among them. */
  origins: readonly string[];
  /** Throws where functions are turned off. */
  open: () => Promise<void>;
};

type Session = Pick<Deps, 'actions'> & {
  caller: ProxyCaller;
  connection: LiveConnection;
  signal: AbortSignal;
};

const mostBytes = 4 * 1024 * 1024;
const headers = z.looseObject({
  'connection-id': connectionId,
  'provider-config-key': integrationKey,
});

export function mcpRoutes(app: App, deps: Deps): void {
  const { authenticate, origins, connections, open } = deps;
  const anyone = { access: { by: 'anyone' } } as const;

  /** Before the body is read. */
  async function admit(request: FastifyRequest): Promise<void> {
    requireOrigin(request.headers.origin, origins);
    admitted.set(request, await proxyCallerOf(request.raw, { authenticate, scope: 'functions:read' }));
  }
  const admitted = new WeakMap<FastifyRequest, ProxyCaller>();

  app.post(
    '/mcp',
    {
      config: anyone,
      bodyLimit: mostBytes,
      onRequest: admit,
      preParsing: open,
      schema: {
        summary: 'Actions of a connection as MCP tools',
        description:
          'Streamable HTTP without sessions. A key or a ticket with the scope functions:read sees the actions that are ' +
          'read-only; with functions:write all.',
        headers,
        // What is no JSON-RPC is answered as JSON-RPC says.
        body: z.unknown(),
      },
    },
    async (request, reply) => {
      const caller = admitted.get(request)!;
      const { 'connection-id': id, 'provider-config-key': key } = request.headers;
      const connection = await connectionOf(connections, caller, { id: String(id), key: String(key) });
      if (Array.isArray(request.body)) throw new AppError('invalid_body', 'Send one message at a time.');
      const gone = new AbortController();
      const server = serverOf({ ...deps, caller, connection, signal: gone.signal });
      const transport = new WebStandardStreamableHTTPServerTransport();
      reply.raw.once('close', () => {
        gone.abort();
        void server.close();
      });
      // It may have hung up while its key and connection were looked up.
      if (reply.raw.destroyed) gone.abort();
      // The transport's own type says less of `sessionId` than the interface it stands for.
      await server.connect(transport as Parameters<typeof server.connect>[0]);
      return reply.send(await transport.handleRequest(asWeb(request), { parsedBody: request.body }));
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

function serverOf(session: Session): Server {
  const server = new Server({ name: 'trellis', version: '1' }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, async () => ({
    tools: (await toolsOf(session)).map(toTool),
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, { signal }) =>
    callTool(session, { ...params, signal: AbortSignal.any([signal, session.signal]) }),
  );
  return server;
}

/** What the caller may call: without the scope functions:write what changes nothing. */
async function toolsOf({ actions, caller, connection }: Session) {
  const mayWrite = holdsScope(caller.scopes, 'functions:write');
  const named = caller.kind === 'ticket' ? caller.ticket.actions : undefined;
  const { environmentId, integrationKey: key } = connection;
  const all = await actions.list({ environmentId, integrationKey: key });
  return all.filter(
    ({ name, definition }) =>
      (mayWrite || definition.read_only) &&
      (named === undefined || named.includes('*') || named.includes(name)),
  );
}

async function callTool(
  session: Session,
  {
    name,
    arguments: given,
    signal,
  }: { name: string; arguments?: Record<string, unknown> | undefined; signal: AbortSignal },
): Promise<CallToolResult> {
  const found = (await toolsOf(session)).find((one) => one.name === name);
  if (found === undefined)
    throw new McpError(ErrorCode.InvalidParams, `There is no tool "${name.slice(0, 255)}".`);
  const { caller, connection, actions } = session;
  try {
    const output = await actions.call({
      ...{ connection, found, signal, environment: caller.environment },
      input: inputOf(found.definition, given),
    });
    return {
      content: [{ type: 'text', text: JSON.stringify(output ?? null) }],
      ...(isPlain(output) && { structuredContent: output }),
    };
  } catch (error) {
    if (!(error instanceof AppError))
      throw new McpError(ErrorCode.InternalError, 'Something went wrong in the service.');
    // For the model to read and to do better: an error of the protocol would not reach it.
    const { code, message, payload } = error;
    const text = JSON.stringify({ error: { code, message, ...(payload !== undefined && { payload }) } });
    return { content: [{ type: 'text', text }], isError: true };
  }
}

function isPlain(output: unknown): output is Record<string, unknown> {
  return typeof output === 'object' && output !== null && !Array.isArray(output);
}

/** The request as the transport looks at it: its body was read. */
function asWeb({ headers: sent }: FastifyRequest): Request {
  const names = ['accept', 'content-type', 'mcp-protocol-version', 'mcp-session-id', 'last-event-id'];
  const known = names.flatMap((name) => (typeof sent[name] === 'string' ? [[name, sent[name]]] : []));
  return new Request('http://localhost/mcp', { method: 'POST', headers: known as [string, string][] });
}
