import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { AppError } from '../errors.ts';
import { type Page, privateHeaders } from '../http/page.ts';
import type { App } from '../http/server.ts';
import { text } from '../http/text.ts';
import { findIntegration, type Integration, listIntegrations } from '../integrations/store.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { hasAttempt } from './attempts.ts';
import { begin } from './begin.ts';
import { createBrowserCookies } from './browser-cookies.ts';
import { finish } from './callback.ts';
import { beginPage, choicePage, endedPage, usedPage } from './connect-page.ts';
import { ConnectFault, explainError } from './fault.ts';
import { donePage, faultPage, type MissingScopes } from './pages.ts';
import { queryOf } from './query.ts';
import { findSession, type Session } from './sessions.ts';
import { type ConnectDeps, getTarget } from './target.ts';

/** The routes that people see: where a trip begins and ends, and the connect page. Their faults are pages, too. */
export function pageRoutes(app: App, deps: ConnectDeps): void {
  const { db, reading, brand, baseUrl } = deps;
  const cookies = createBrowserCookies({ brand, baseUrl });
  const errorHandler = (error: Error, request: FastifyRequest, reply: FastifyReply) =>
    sendPage(reply, pageOf(error, { request, deps }));

  app.get(
    '/oauth/connect/:key',
    {
      // A HEAD would bind the session, and below take the attempt, for whoever only checks links.
      exposeHeadRoute: false,
      config: { access: { by: 'session in query' } },
      errorHandler,
      schema: { hide: true, params: z.object({ key: text({ min: 1, max: 255 }) }) },
    },
    async (request, reply) => {
      if (request.caller.kind !== 'session') throw new AppError('invalid_connect_session_token_format');
      const { location, browser } = await begin(deps, {
        session: request.caller,
        key: request.params.key,
        url: request.originalUrl,
        secrets: cookies.read(request),
      });
      cookies.set(reply, browser);
      return reply.headers(privateHeaders).redirect(location, 302);
    },
  );

  app.get(
    '/oauth/callback',
    { exposeHeadRoute: false, config: { access: { by: 'anyone' } }, errorHandler, schema: { hide: true } },
    async (request, reply) => {
      const trip = { params: queryOf(request.originalUrl), secrets: cookies.read(request) };
      const finished = await finish(deps, trip).catch((error) => {
        throw asCallbackError(error);
      });
      if (finished.kind === 'again') return reply.headers(privateHeaders).redirect(finished.location, 302);
      const { provider } = finished.integration;
      return sendPage(
        reply,
        donePage({
          brand,
          provider: provider.display_name,
          account: finished.connection.account?.email,
          isOtherAccount: finished.isOtherAccount,
          missing: described(provider, finished.missingScopes),
        }),
      );
    },
  );

  app.get(
    '/connect/',
    {
      config: { access: { by: 'anyone' } },
      errorHandler,
      schema: {
        hide: true,
        querystring: z.looseObject({
          session_token: text({ max: 255 }).optional(),
          integration: text({ max: 255 }).optional(),
        }),
      },
    },
    async ({ query: { session_token: token, integration: key } }, reply) => {
      if (token === undefined) return sendPage(reply, endedPage('incomplete'));
      const session = await findSession(db, { token, brand, vault: reading.vault });
      return sendPage(reply, await connectPage(deps, { session, token, key }));
    },
  );
}

async function connectPage(
  { db, reading, brand, baseUrl, now }: ConnectDeps,
  { session, token, key }: { session: Session | undefined; token: string; key: string | undefined },
): Promise<Page> {
  if (session === undefined) return endedPage('unknown');
  if (session.usedAt !== undefined) {
    const { integration = '', missing_scopes: missing = [] } = session.outcome ?? {};
    const made = await findIntegration(db, {
      ...reading,
      environmentId: session.environmentId,
      key: integration,
    });
    if (made === undefined) return endedPage('unknown');
    return usedPage({ provider: made.provider.display_name, missing: described(made.provider, missing) });
  }
  if (session.expiresAt <= now()) return endedPage('expired');
  const settings = { brand, baseUrl, token };
  const choices = await choicesOf(session, { db, reading });
  const [only] = choices;
  const chosen = key ?? (choices.length === 1 ? only?.key : undefined);
  if (chosen === undefined) return choicePage(session, choices, settings);
  const target = await getTarget(db, { reading, session, key: chosen });
  const isUnderWay = await hasAttempt(db, { sessionId: session.id, environmentId: session.environmentId });
  return beginPage(target, { ...settings, canChooseAgain: choices.length > 1, isUnderWay });
}

function described({ scopes }: ProviderDefinition, missing: readonly string[]): MissingScopes {
  return missing.map((scope) => ({ scope, description: scopes.catalogue[scope]?.description }));
}

async function choicesOf(
  { environmentId, allowedIntegrations }: Session,
  { db, reading }: Pick<ConnectDeps, 'db' | 'reading'>,
): Promise<Integration[]> {
  const all = await listIntegrations(db, { environmentId, ...reading });
  return all.filter(({ key }) => allowedIntegrations === undefined || allowedIntegrations.includes(key));
}

/** The callback is 400 for whatever went wrong on the way: it is no resource that could be absent. */
function asCallbackError(error: unknown): unknown {
  const explanation = explainError(error);
  return explanation === undefined ? error : new ConnectFault({ ...explanation, cause: error });
}

function pageOf(error: Error, { request, deps }: { request: FastifyRequest; deps: ConnectDeps }): Page {
  const { brand } = deps;
  const explanation = explainError(error);
  if (explanation !== undefined) {
    return faultPage(explanation, { brand, status: error instanceof AppError ? error.status : 400 });
  }
  const { statusCode } = error as { statusCode?: number };
  const isOurs = statusCode === undefined || statusCode >= 500;
  if (isOurs && !('validationContext' in error)) {
    deps.log.error({ err: error, request: request.id }, 'unexpected error');
    return faultPage(unexpected(request.id), { brand, status: 500 });
  }
  return faultPage(
    {
      type: 'invalid_query_params',
      title: 'Something in the link does not fit',
      message: 'It may have been changed when it was copied.',
      nextStep: 'Open it again exactly as the application gave it to you.',
    },
    { brand, status: 400 },
  );
}

function unexpected(requestId: string) {
  return {
    type: 'unknown_err',
    title: 'Something went wrong here',
    message: 'Nothing was connected. The fault is not yours.',
    nextStep:
      'Start again from the application. If it happens again, tell the people who run it what stands below.',
    evidence: `request ${requestId}`,
  };
}

function sendPage(reply: FastifyReply, { status, headers, body }: Page): FastifyReply {
  return reply.code(status).headers(headers).send(body);
}
