import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { AppError } from '../errors.ts';
import { type Page, privateHeaders } from '../http/pages/page.ts';
import type { App } from '../http/server.ts';
import { text } from '../http/text.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { announce, begin } from './begin.ts';
import { createBrowserCookies } from './browser-cookies.ts';
import { finish } from './callback.ts';
import { ConnectFault, explainError, unexpected } from './failures.ts';
import { confirmPage, donePage, faultPage, type MissingScopes } from './pages.ts';
import { callerSession } from './sessions.ts';
import { errorMessage, notifyClient } from './socket.ts';
import { type ConnectDeps, queryOf } from './target.ts';

const pageAnswer = { type: 'text/html', schema: { type: 'string' }, example: '<!doctype html>' } as const;
/** The pages for errors. */
const faultPages = Object.fromEntries(
  [400, 401, 404, 409, 424, 500].map((status) => [
    status,
    { description: 'A page with the reason.', ...pageAnswer },
  ]),
);

/**
 * The routes through which a browser passes at the beginning and the end of an authorization. Their errors are pages,
 * too. Does not own: the connect page (`web/connect/`, served by `http/pages/static.ts`).
 */
export function pageRoutes(app: App, deps: ConnectDeps): void {
  const { brand, baseUrl } = deps;
  const connectPath = connectPathOf(baseUrl);
  const cookies = createBrowserCookies({ brand, baseUrl });
  const isAtCallbackHost = callbackHostCheck(deps);
  const sendOn = (request: FastifyRequest, reply: FastifyReply) => {
    const [, query = ''] = request.originalUrl.split(/\?(.*)/s);
    return reply.headers(privateHeaders).redirect(`${baseUrl}/oauth/callback?${query}`, 302);
  };
  const errorHandler = (error: Error, request: FastifyRequest, reply: FastifyReply) =>
    sendPage(reply, pageOf(error, { request, deps }));
  // Clients of that brand open this address in a window of the application and expect the provider's page at once.
  const confirmsFirst = brand.word !== 'nango';
  /** Also for a used or malformed token, which is refused before the handler runs. */
  const notifyAndShow = async (error: Error, request: FastifyRequest, reply: FastifyReply) => {
    const waiter = queryOf(request.originalUrl).get('ws_client_id') ?? undefined;
    const { key = '' } = request.params as { key?: string };
    await notifyClient(deps, { waiter, message: errorMessage(error, key) });
    return errorHandler(error, request, reply);
  };

  app.get(
    '/oauth/connect/:key',
    {
      // A HEAD request of a link checker would bind the session, and take the attempt in the route below.
      exposeHeadRoute: false,
      config: { access: { by: 'session in query' } },
      errorHandler: notifyAndShow,
      schema: {
        operationId: 'beginConnect',
        summary: 'Start an authorization at the provider',
        description:
          'For a browser, with the token of a session as `connect_session_token`. If the browser does not come from a page ' +
          'of this service, a page shows for whom the account will be connected, and the user must confirm; with the brand ' +
          'of the official clients, the browser is redirected immediately. Errors are also pages.',
        params: z.object({ key: text({ min: 1, max: 255 }) }),
        answers: {
          200: { description: 'The page on which the user confirms.', ...pageAnswer },
          302: { description: 'A redirect to the provider.' },
          ...faultPages,
        },
      },
    },
    async (request, reply) => {
      const { key } = request.params;
      const flow = {
        session: callerSession(request.caller),
        key,
        url: request.originalUrl,
        secrets: cookies.read(request),
      };
      if (confirmsFirst && isLedHere(request))
        return sendPage(reply, confirmPage(await announce(deps, flow), deps));
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
        summary: 'The callback of the provider',
        description:
          'The redirect URI that is registered at the provider. Returns a page that closes itself.',
        answers: {
          200: { description: 'The account is connected.', ...pageAnswer },
          302: {
            description:
              'A second redirect to the provider, if it issued no refresh token; or, on the host of TRELLIS_CALLBACK_BASE_URL, ' +
              'a redirect to the host of BASE_URL.',
          },
          ...faultPages,
        },
      },
    },
    async (request, reply) => {
      if (isAtCallbackHost(request)) return sendOn(request, reply);
      const flow = { params: queryOf(request.originalUrl), secrets: cookies.read(request) };
      const finished = await finish(deps, flow).catch((error) => Promise.reject(asCallbackError(error)));
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
 * Returns whether a request came to the host of TRELLIS_CALLBACK_BASE_URL, if that is another than BASE_URL's: the browser's
 * cookies belong to the host of BASE_URL, so it is sent on to it.
 */
function callbackHostCheck({
  baseUrl,
  callbackBaseUrl,
}: Pick<ConnectDeps, 'baseUrl' | 'callbackBaseUrl'>): (request: FastifyRequest) => boolean {
  const [base, callback] = [new URL(baseUrl), new URL(callbackBaseUrl)];
  return ({ host }) => callback.host !== base.host && host.toLowerCase() === callback.host;
}

/**
 * Whether the browser came from a page other than ours. Otherwise the holder of a session could make a victim's
 * browser connect the victim's account for the holder, if the provider does not ask either.
 *
 * `Sec-Fetch-Site` is missing in requests of programs, of browsers before 2023, and over plain http to another
 * machine.
 */
function isLedHere({ headers }: FastifyRequest): boolean {
  const site = headers['sec-fetch-site'];
  return site !== undefined && site !== 'same-origin';
}

function described({ scopes }: ProviderDefinition, missing: readonly string[]): MissingScopes {
  return missing.map((scope) => ({ scope, description: scopes.catalogue[scope]?.description }));
}

/** Every error of the callback has status 400: the callback is not a resource that can be absent. */
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
      title: 'This link is not valid',
      message: 'It may have been changed when it was copied.',
      nextStep: 'Open it exactly as you received it from the application.',
    },
    { brand, status: 400, connectPath },
  );
}

/** The path of the connect page, with the path prefix of a proxy. */
function connectPathOf(baseUrl: string): string {
  return `${new URL(baseUrl).pathname.replace(/\/$/, '')}/connect/`;
}

function sendPage(reply: FastifyReply, { status, headers, body }: Page): FastifyReply {
  return reply.code(status).headers(headers).send(body);
}
