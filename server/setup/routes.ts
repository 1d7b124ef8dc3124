import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { sessionOfRequest } from '../connect/session-routes.ts';
import type { ConnectDeps } from '../connect/target.ts';
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
  /** The session is used by then, so the routes look at its token themselves. */
  const common = { config: { access: { by: 'anyone' } }, preParsing: open } as const;

  async function opened(request: FastifyRequest) {
    const session = await sessionOfRequest(deps, request);
    return { session, connection: await getConnectionOf(deps, session) };
  }

  /** What an action answers; it ends with whoever waits for it. */
  async function asked<T extends z.ZodType>(
    request: FastifyRequest,
    { reply, name, wire }: { reply: FastifyReply; name: Asking; wire: T },
  ): Promise<{ data: z.output<T> }> {
    reply.headers(privateHeaders);
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
        summary: 'What is to be chosen of the connection that the session has made',
        description: '401 where nothing is, or no longer.',
        response: { 200: z.object({ data: setUpWire }) },
      },
    },
    async (request, reply) => {
      reply.headers(privateHeaders);
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
        summary: 'Spreadsheets that the account can see',
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
        summary: 'Title and tabs of a spreadsheet',
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
        summary: 'The first rows of a tab as they would be saved',
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
        summary: 'Choose the sheet',
        description: 'Once for a session. Its rows are read at once, and kept up to date.',
        body: choiceBody,
        response: { 200: z.object({ data: chosenWire }) },
      },
    },
    async (request, reply) => {
      reply.headers(privateHeaders);
      const at = await opened(request);
      const variant = await choose(deps, { ...at, choice: request.body });
      const { integrationKey: provider_config_key, connectionId: connection_id } = at.connection;
      return { data: { provider_config_key, connection_id, variant } };
    },
  );
}
