/** Answers one message of an MCP client: lists the tools, or calls one. */
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import {
  CallToolRequestSchema,
  type CallToolResult,
  ErrorCode,
  ListToolsRequestSchema,
  McpError,
} from '@modelcontextprotocol/sdk/types.js';
import type { LiveConnection } from '../../connections/store/reader.ts';
import { AppError } from '../../errors.ts';
import { holdsScope, type ProxyCaller } from '../../http/auth/caller.ts';
import type { Definition, JsonSchema } from '../deploys/definition.ts';
import type { DeployedFunction } from '../deploys/store.ts';
import { examineJson, maxParsedBytes, maxParsedValues } from '../isolation/json-limits.ts';
import type { Actions } from './actions.ts';

export type Session = {
  actions: Actions;
  caller: ProxyCaller;
  connection: LiveConnection;
  /** Aborts when the client has disconnected. */
  signal: AbortSignal;
};

/** The answer to a parsed message. `request` has its headers. */
export async function answerMessage(
  session: Session,
  { request, message }: { request: Request; message: unknown },
): Promise<Response> {
  const server = serverOf(session);
  session.signal.addEventListener('abort', () => void server.close(), { once: true });
  const transport = new WebStandardStreamableHTTPServerTransport();
  // The type of the transport declares `sessionId` differently from its interface.
  await server.connect(transport as Parameters<typeof server.connect>[0]);
  return transport.handleRequest(request, { parsedBody: message });
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

/** The actions that the caller may call: without the scope functions:write only read-only ones. */
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
      connection,
      found,
      signal,
      environment: caller.environment,
      input: inputOf(found.definition, given),
    });
    return {
      content: [{ type: 'text', text: output.toString('utf8') }],
      ...structured(output),
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

/** An object once more as such, unless reading it here would take long. */
function structured(json: Buffer): Pick<CallToolResult, 'structuredContent'> {
  if (json[0] !== openBrace || json.length > maxParsedBytes) return {};
  if (examineJson(json).values > maxParsedValues) return {};
  return { structuredContent: JSON.parse(json.toString('utf8')) as Record<string, unknown> };
}

const openBrace = 0x7b;

/** Actions as MCP tools: how each is shown, and what it is given. Pure. */

/** A tool as https://modelcontextprotocol.io/specification/2025-06-18/server/tools has it. */
type ActionTool = {
  name: string;
  description: string;
  inputSchema: JsonSchema & { type: 'object' };
  annotations: { readOnlyHint: boolean };
};

/** The arguments of a tool are an object. Any other input is a field of it with this name. */
const wrapped = 'input';

function toTool({ name, definition }: Pick<DeployedFunction, 'name' | 'definition'>): ActionTool {
  return {
    name,
    description: definition.description,
    inputSchema: schemaOf(definition.input),
    annotations: { readOnlyHint: definition.read_only },
  };
}

/** The input of the action. An action that accepts any input gets undefined if there are no arguments. */
export function inputOf(
  { input }: Pick<Definition, 'input'>,
  given: Record<string, unknown> | undefined,
): unknown {
  if (isObject(input)) return given ?? {};
  if (takesAnything(input)) return given === undefined || Object.keys(given).length === 0 ? undefined : given;
  return given?.[wrapped];
}

function schemaOf(input: JsonSchema | null): ActionTool['inputSchema'] {
  if (isObject(input)) return input;
  if (takesAnything(input)) return { type: 'object', properties: {} };
  const { definitions, ...rest } = input;
  return {
    type: 'object',
    // A reference to the root would refer to another root here.
    properties: { [wrapped]: JSON.stringify(rest).includes('"$ref":"#"') ? {} : rest },
    required: [wrapped],
    ...(definitions !== undefined && { definitions }),
  };
}

function isObject(input: JsonSchema | null): input is ActionTool['inputSchema'] {
  return input?.type === 'object';
}

/** True also for an input that JSON Schema cannot express, such as `z.void()`. */
function takesAnything(input: JsonSchema | null): input is null {
  return input === null || Object.keys(input).length === 0;
}
