import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { sessionOfRequest } from '../connect/session-routes.ts';
import type { Session } from '../connect/sessions.ts';
import type { ConnectDeps } from '../connect/target.ts';
import type { RouteError } from '../http/describe.ts';
import { privateHeaders } from '../http/page.ts';
import type { App } from '../http/server.ts';
import { type Asking, ask, choose, getConnectionOf, prepare, type SetUpDeps } from './sheets.ts';
import {
  bookBody,
  bookWire,
  choiceBody,
  chosenWire,
  previewBody,
  previewWire,
  setUpWire,
  spreadsheetsBody,
  spreadsheetsWire,
} from './wire.ts';

const ofSession = [{ session: [] }];
const setUpErrors = [
  'functions_off',
  'invalid_connect_session_token_format',
  'unknown_connect_session_token',
  'unknown_connection',
  'function_exists',
] as const satisfies readonly RouteError[];
/** Of the action that asks the provider. */
const askedErrors = [
  'setup_refused',
  'invalid_action_input',
  'invalid_action_output',
  'script_internal_error',
  'script_http_error',
  'script_network_error',
  'script_timeout',
  'script_cancelled',
  'connection_needs_reauth',
  'connection_blocked',
  'missing_scopes',
] as const satisfies readonly RouteError[];

type Deps = SetUpDeps &
  Pick<ConnectDeps, 'brand' | 'reading'> & {
    /** Throws where functions are turned off. */
    open: () => Promise<void>;
  };

/**
 * What the connect page asks for once the connection is made, where the session has `setup`: with its token as Bearer, about
 * that connection alone, and until something is chosen or the session expires.
 */
export function setUpRoutes(app: App, { open, ...deps }: Deps): void {
  const path = '/connect/session/setup';
  const admitted = new WeakMap<FastifyRequest, Session>();
  /** The session is used by then, so the routes look at its token themselves: before anything of the body is read. */
  const admit = async (request: FastifyRequest, reply: FastifyReply) => {
    reply.headers(privateHeaders);
    admitted.set(request, await sessionOfRequest(deps, request));
  };
  const common = { config: { access: { by: 'anyone' } }, onRequest: admit, preParsing: open } as const;

  async function opened(request: FastifyRequest) {
    const session = admitted.get(request)!;
    return { session, connection: await getConnectionOf(deps, session) };
  }

  /** The answer of an action; the action ends when its caller hangs up. */
  async function asked<T extends z.ZodType>(
    request: FastifyRequest,
    { reply, name, wire }: { reply: FastifyReply; name: Asking; wire: T },
  ): Promise<{ data: z.output<T> }> {
    const at = await opened(request);
    const gone = new AbortController();
    reply.raw.once('close', () => gone.abort());
    if (reply.raw.destroyed) gone.abort();
    const output = await ask(deps, { ...at, name, input: request.body as object, signal: gone.signal });
    return { data: wire.parse(output) };
  }

  app.get(
    path,
    {
      ...common,
      schema: {
        operationId: 'getSetUp',
        summary: 'What is to be chosen of the connection that the session has made',
        security: ofSession,
        errors: setUpErrors,
        description: '401 where nothing is, or no longer.',
        response: { 200: z.object({ data: setUpWire }) },
      },
    },
    async (request) => {
      const { session, connection } = await opened(request);
      const { integrationKey: provider_config_key, connectionId: connection_id } = connection;
      await prepare(deps, session, provider_config_key);
      const account = connection.account?.email ?? null;
      return { data: { kind: 'sheet' as const, provider_config_key, connection_id, account } };
    },
  );

  app.post(
    `${path}/spreadsheets`,
    {
      ...common,
      schema: {
        operationId: 'listSetUpSpreadsheets',
        summary: 'Spreadsheets that the account can see',
        description: 'For a page to choose from; those whose title holds `search` where it is given.',
        security: ofSession,
        errors: [...setUpErrors, ...askedErrors],
        example: { body: { search: 'Customers' } },
        body: spreadsheetsBody,
        response: { 200: z.object({ data: spreadsheetsWire }) },
      },
    },
    (request, reply) => asked(request, { reply, name: 'list-spreadsheets', wire: spreadsheetsWire }),
  );

  app.post(
    `${path}/describe`,
    {
      ...common,
      schema: {
        operationId: 'describeSetUpSpreadsheet',
        summary: 'Title and tabs of a spreadsheet',
        description: 'By its link or its ID.',
        security: ofSession,
        errors: [...setUpErrors, ...askedErrors],
        body: bookBody,
        response: { 200: z.object({ data: bookWire }) },
      },
    },
    (request, reply) => asked(request, { reply, name: 'describe-spreadsheet', wire: bookWire }),
  );

  app.post(
    `${path}/preview`,
    {
      ...common,
      schema: {
        operationId: 'previewSetUpRows',
        summary: 'The first rows of a tab as they would be saved',
        description: 'With the header row and the key column that are given, or that fit best.',
        security: ofSession,
        errors: [...setUpErrors, ...askedErrors],
        body: previewBody,
        response: { 200: z.object({ data: previewWire }) },
      },
    },
    (request, reply) => asked(request, { reply, name: 'preview-rows', wire: previewWire }),
  );

  app.put(
    path,
    {
      ...common,
      schema: {
        operationId: 'chooseSetUp',
        summary: 'Choose the sheet',
        security: ofSession,
        errors: [...setUpErrors, ...askedErrors],
        description: 'Once for a session. Its rows are read at once, and kept up to date.',
        body: choiceBody,
        response: { 200: z.object({ data: chosenWire }) },
      },
    },
    async (request) => {
      const at = await opened(request);
      const variant = await choose(deps, { ...at, choice: request.body });
      const { integrationKey: provider_config_key, connectionId: connection_id } = at.connection;
      return { data: { provider_config_key, connection_id, variant } };
    },
  );
}
