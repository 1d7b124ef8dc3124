import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { AppError } from '../errors.ts';
import type { Access } from '../http/caller.ts';
import { privateHeaders } from '../http/page.ts';
import type { App } from '../http/server.ts';
import { choicesWire, readChoices } from './choices.ts';
import { askForTheRest, progressWire, readLook, readProgress } from './progress.ts';
import { findSession, getSession, type Session } from './sessions.ts';
import type { ConnectDeps } from './target.ts';

/**
 * The routes for the connect page, and for any other page with the token of a session. Each takes the token as Bearer:
 * logs and histories would store a token in an address.
 */
export function connectSessionRoutes(app: App, deps: ConnectDeps): void {
  const { db, reading } = deps;
  /** A session that is over has a page, too, so these look at the token themselves. */
  const anyState = { access: { by: 'anyone' } as const satisfies Access };

  const sessionOf = (request: FastifyRequest) => sessionOfRequest(deps, request);

  app.get(
    '/connect/session/choices',
    {
      config: { access: { by: 'session' } },
      schema: {
        operationId: 'getConnectChoices',
        summary: 'What the session may connect, whom it is for, and what will be asked',
        description: 'For a connect page, before the end user begins.',
        response: { 200: z.object({ data: choicesWire }) },
      },
    },
    async ({ caller }, reply) => {
      if (caller.kind !== 'session') throw new AppError('invalid_connect_session_token_format');
      const { sessionId: id, environmentId } = caller;
      reply.headers(privateHeaders);
      const session = await getSession(db, { id, environmentId, vault: reading.vault });
      return { data: await readChoices(deps, session) };
    },
  );

  app.get(
    '/connect/session/progress',
    {
      config: anyState,
      schema: {
        operationId: 'getConnectProgress',
        security: [{ session: [] }],
        summary: 'How far the session is',
        description:
          'With the token of a session as Bearer, also of one that is used or has expired. The answer is the same on ' +
          'every node, whichever one the browser came back to. With `settings=true` it says how the page looks.',
        errors: [
          'invalid_connect_session_token_format',
          'unknown_connect_session_token',
          'unknown_connection',
        ],
        querystring: z.strictObject({ settings: z.enum(['true', 'false']).default('false') }),
        response: { 200: z.object({ data: progressWire }) },
      },
    },
    async (request, reply) => {
      reply.headers(privateHeaders);
      const session = await sessionOf(request);
      const progress = await readProgress(deps, session);
      if (request.query.settings === 'false') return { data: progress };
      return { data: { ...progress, settings: await readLook(deps, session) } };
    },
  );

  app.post(
    '/connect/session/rest',
    {
      config: anyState,
      schema: {
        operationId: 'askForMissingScopes',
        security: [{ session: [] }],
        answers: { 204: { description: 'Done; there is no body.' } },
        summary: 'Ask for the scopes that were not granted',
        description:
          'With the token of a used session as Bearer: the session is open again, to renew the connection that it made ' +
          'by what is missing, for the browser that began and until it expires.',
        errors: ['invalid_connect_session_token_format', 'unknown_connect_session_token'],
      },
    },
    async (request, reply) => {
      await askForTheRest(deps, await sessionOf(request));
      return reply.headers(privateHeaders).code(204).send();
    },
  );
}

/** The session whose token a request has as Bearer, used and expired ones too. Throws what says that there is none. */
export async function sessionOfRequest(
  { db, brand, reading }: Pick<ConnectDeps, 'db' | 'brand' | 'reading'>,
  { headers }: FastifyRequest,
): Promise<Session> {
  const [, token = ''] = /^Bearer +([^\s]+) *$/i.exec(headers.authorization ?? '') ?? [];
  if (!token.startsWith(brand.sessionTokenPrefix)) throw new AppError('invalid_connect_session_token_format');
  const session = await findSession(db, { token, brand, vault: reading.vault });
  if (session === undefined) throw new AppError('unknown_connect_session_token');
  return session;
}
