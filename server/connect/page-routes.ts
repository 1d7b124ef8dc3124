import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { AppError } from '../errors.ts';
import { type Page, privateHeaders } from '../http/page.ts';
import type { App } from '../http/server.ts';
import { text } from '../http/text.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { announce, begin } from './begin.ts';
import { createBrowserCookies } from './browser-cookies.ts';
import { finish } from './callback.ts';
import { ConnectFault, explainError, unexpected } from './fault.ts';
import { errorMessage, notifyClient } from './notices.ts';
import { askPage, donePage, faultPage, type MissingScopes } from './pages.ts';
import { queryOf } from './query.ts';
import type { ConnectDeps } from './target.ts';

const pageAnswer = { type: 'text/html', schema: { type: 'string' }, example: '<!doctype html>' } as const;
/** What an error is shown as here. */
const faultPages = Object.fromEntries(
  [400, 401, 404, 409, 424, 500].map((status) => [
    status,
    { description: 'A page that says why.', ...pageAnswer },
  ]),
);

/**
 * The routes that a browser is led through: where a trip begins and ends. Their faults are pages, too. Does not own: the
 * connect page (`web/connect/`, served by `http/static.ts`).
 */
export function pageRoutes(app: App, deps: ConnectDeps): void {
  const { brand, baseUrl } = deps;
  const connectPath = connectPathOf(baseUrl);
  const cookies = createBrowserCookies({ brand, baseUrl });
  const errorHandler = (error: Error, request: FastifyRequest, reply: FastifyReply) =>
    sendPage(reply, pageOf(error, { request, deps }));
  // With it the clients that open this address in a window of the application know of no page before the provider's.
  const asksFirst = brand.word !== 'nango';
  /** Also of a token that is used up or cut off, which is refused before the route is reached. */
  const tellAndShow = async (error: Error, request: FastifyRequest, reply: FastifyReply) => {
    const waiter = queryOf(request.originalUrl).get('ws_client_id') ?? undefined;
    const { key = '' } = request.params as { key?: string };
    await notifyClient(deps, { waiter, message: errorMessage(error, key) });
    return errorHandler(error, request, reply);
  };

  app.get(
    '/oauth/connect/:key',
    {
      // A HEAD of a link checker would bind the session, and in the route below take the attempt.
      exposeHeadRoute: false,
      config: { access: { by: 'session in query' } },
      errorHandler: tellAndShow,
      schema: {
        operationId: 'beginConnect',
        summary: 'Begin the trip to the provider',
        description:
          'For a browser, with the token of a session as `connect_session_token`. One that another site, a message or a ' +
          'person led here is first asked, on a page that says for whom the account will be connected, whether to go on; ' +
          'with the brand of the official clients it goes on at once. Faults are pages, too.',
        params: z.object({ key: text({ min: 1, max: 255 }) }),
        answers: {
          200: { description: 'The page that asks whether to go on.', ...pageAnswer },
          302: { description: 'To the page of the provider.' },
          ...faultPages,
        },
      },
    },
    async (request, reply) => {
      if (request.caller.kind !== 'session') throw new AppError('invalid_connect_session_token_format');
      const { key } = request.params;
      const flow = { session: request.caller, key, url: request.originalUrl, secrets: cookies.read(request) };
      if (asksFirst && isLedHere(request)) return sendPage(reply, askPage(await announce(deps, flow), deps));
      const { location, browser } = await begin(deps, flow);
      cookies.set(reply, browser);
      return reply.headers(privateHeaders).redirect(location, 302);
    },
  );

  app.get(
    '/oauth/callback',
    {
      exposeHeadRoute: false,
      config: { access: { by: 'anyone' } },
      errorHandler,
      schema: {
        operationId: 'endConnect',
        summary: 'Where the provider sends the browser back to',
        description:
          'The address that is registered at the provider. The page that it answers closes itself.',
        answers: {
          200: { description: 'The account is connected.', ...pageAnswer },
          302: { description: 'To the provider once more, where no refresh token came.' },
          ...faultPages,
        },
      },
    },
    async (request, reply) => {
      const flow = { params: queryOf(request.originalUrl), secrets: cookies.read(request) };
      const finished = await finish(deps, flow).catch((error) => {
        throw asCallbackError(error);
      });
      if (finished.kind === 'again') return reply.headers(privateHeaders).redirect(finished.location, 302);
      const { provider } = finished.integration;
      return sendPage(
        reply,
        donePage({
          brand,
          connectPath,
          provider: provider.display_name,
          account: finished.connection.account?.email,
          isOtherAccount: finished.isOtherAccount,
          missing: described(provider, finished.missingScopes),
        }),
      );
    },
  );
}

/**
 * Whether the browser did not come from a page of this service. Otherwise the holder of a session could make a stranger's
 * browser connect the stranger's account for him, if the provider does not ask either.
 *
 * `Sec-Fetch-Site` is missing in requests of programs, of browsers from before 2023, and over plain http to another machine.
 */
function isLedHere({ headers }: FastifyRequest): boolean {
  const site = headers['sec-fetch-site'];
  return site !== undefined && site !== 'same-origin';
}

function described({ scopes }: ProviderDefinition, missing: readonly string[]): MissingScopes {
  return missing.map((scope) => ({ scope, description: scopes.catalogue[scope]?.description }));
}

/** The callback is 400 for whatever went wrong on the way: it is no resource that could be absent. */
function asCallbackError(error: unknown): unknown {
  const explanation = explainError(error);
  return explanation === undefined ? error : new ConnectFault({ ...explanation, cause: error });
}

function pageOf(error: Error, { request, deps }: { request: FastifyRequest; deps: ConnectDeps }): Page {
  const { brand } = deps;
  const connectPath = connectPathOf(deps.baseUrl);
  const explanation = explainError(error);
  if (explanation !== undefined) {
    const status = error instanceof AppError ? error.status : 400;
    return faultPage(explanation, { brand, connectPath, status });
  }
  const { statusCode } = error as { statusCode?: number };
  const isOurs = statusCode === undefined || statusCode >= 500;
  if (isOurs && !('validationContext' in error)) {
    request.log.error({ err: error }, 'unexpected error');
    return faultPage(
      { ...unexpected, evidence: `request ${request.id}` },
      { brand, status: 500, connectPath },
    );
  }
  return faultPage(
    {
      type: 'invalid_query_params',
      title: 'Something in the link does not fit',
      message: 'It may have been changed when it was copied.',
      nextStep: 'Open it again exactly as the application gave it to you.',
    },
    { brand, status: 400, connectPath },
  );
}

/** Where the connect page is; in front of it may stand the path of a proxy. */
function connectPathOf(baseUrl: string): string {
  return `${new URL(baseUrl).pathname.replace(/\/$/, '')}/connect/`;
}

function sendPage(reply: FastifyReply, { status, headers, body }: Page): FastifyReply {
  return reply.code(status).headers(headers).send(body);
}
