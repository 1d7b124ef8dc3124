import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { bearerSession, type Session } from '../connect/sessions.ts';
import type { ConnectDeps } from '../connect/target.ts';
import { actionRunErrors } from '../functions/actions/action-routes.ts';
import type { RouteError } from '../http/openapi/describe.ts';
import { privateHeaders } from '../http/pages/page.ts';
import type { App } from '../http/server.ts';
import {
  callSetUpAction,
  choiceBody,
  choose,
  chosenWire,
  enableSetUpActions,
  getConnectionOf,
  previewBody,
  previewWire,
  type SetUpAction,
  type SetUpDeps,
  setUpWire,
  spreadsheetBody,
  spreadsheetsBody,
  spreadsheetsWire,
  spreadsheetWire,
} from './sheets.ts';

const ofSession = [{ session: [] }];
const setUpErrors = [
  'functions_off',
  'invalid_connect_session_token_format',
  'unknown_connect_session_token',
  'unknown_connection',
  'function_exists',
] as const satisfies readonly RouteError[];
/** Of a route that runs an action. */
const actionErrors = ['setup_refused', ...actionRunErrors] as const satisfies readonly RouteError[];

type SetUpRouteDeps = SetUpDeps &
  Pick<ConnectDeps, 'brand' | 'reading'> & {
    /** Throws if functions are turned off. */
    open: () => Promise<void>;
  };

/**
 * The routes with which a connect page configures the new connection of a session with `setup`: with the session's
 * token as Bearer, for that connection only, until the choice is stored or the session expires.
 */
export function setUpRoutes(app: App, { open, ...deps }: SetUpRouteDeps): void {
  const path = '/connect/session/setup';
  const admitted = new WeakMap<FastifyRequest, Session>();
  /** The session is used by now, so each route reads its token itself, before the body. */
  const admit = async (request: FastifyRequest, reply: FastifyReply) => {
    reply.headers(privateHeaders);
    admitted.set(request, await bearerSession(deps, request));
  };
  const common = { config: { access: { by: 'anyone' } }, onRequest: admit, preParsing: open } as const;

  async function opened(request: FastifyRequest) {
    const session = admitted.get(request)!;
    return { session, connection: await getConnectionOf(deps, session) };
  }

  /** The output of an action, which ends when its caller disconnects. */
  async function runAction<T extends z.ZodType>(
    request: FastifyRequest,
    { reply, name, wire }: { reply: FastifyReply; name: SetUpAction; wire: T },
  ): Promise<{ data: z.output<T> }> {
    const at = await opened(request);
    const gone = new AbortController();
    reply.raw.once('close', () => gone.abort());
    if (reply.raw.destroyed) gone.abort();
    const output = await callSetUpAction(deps, {
      ...at,
      name,
      input: request.body as object,
      signal: gone.signal,
    });
    return { data: wire.parse(output) };
  }

  app.get(
    path,
    {
      ...common,
      schema: {
        operationId: 'getSetUp',
        summary: 'Get the choice that the connection of the session requires',
        security: ofSession,
        errors: setUpErrors,
        description: '401 if there is no choice to make, or no longer.',
        response: { 200: z.object({ data: setUpWire }) },
      },
    },
    async (request) => {
      const { session, connection } = await opened(request);
      const { integrationKey: provider_config_key, connectionId: connection_id } = connection;
      await enableSetUpActions(deps, session, provider_config_key);
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
        summary: 'List the spreadsheets that the account can access',
        description:
          'For the page on which the user chooses. With `search`, only spreadsheets whose title contains it.',
        security: ofSession,
        errors: [...setUpErrors, ...actionErrors],
        example: { body: { search: 'Customers' } },
        body: spreadsheetsBody,
        response: { 200: z.object({ data: spreadsheetsWire }) },
      },
    },
    (request, reply) => runAction(request, { reply, name: 'list-spreadsheets', wire: spreadsheetsWire }),
  );

  app.post(
    `${path}/describe`,
    {
      ...common,
      schema: {
        operationId: 'describeSetUpSpreadsheet',
        summary: 'Get the title and the tabs of a spreadsheet',
        description: 'By its link or its ID.',
        security: ofSession,
        errors: [...setUpErrors, ...actionErrors],
        body: spreadsheetBody,
        response: { 200: z.object({ data: spreadsheetWire }) },
      },
    },
    (request, reply) => runAction(request, { reply, name: 'describe-spreadsheet', wire: spreadsheetWire }),
  );

  app.post(
    `${path}/preview`,
    {
      ...common,
      schema: {
        operationId: 'previewSetUpRows',
        summary: 'Preview the first rows of a tab as records',
        description: 'With the given header row and key column, or with the ones that fit best.',
        security: ofSession,
        errors: [...setUpErrors, ...actionErrors],
        body: previewBody,
        response: { 200: z.object({ data: previewWire }) },
      },
    },
    (request, reply) => runAction(request, { reply, name: 'preview-rows', wire: previewWire }),
  );

  app.put(
    path,
    {
      ...common,
      schema: {
        operationId: 'chooseSetUp',
        summary: 'Choose the sheet',
        security: ofSession,
        errors: [...setUpErrors, ...actionErrors],
        description:
          'Possible once for a session. The service reads the rows immediately and keeps them up to date.',
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
