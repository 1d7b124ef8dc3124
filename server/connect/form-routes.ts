import { z } from 'zod';
import { actorOf } from '../activity/audit.ts';
import { logged } from '../activity/logged.ts';
import { AppError } from '../errors.ts';
import type { Caller } from '../http/caller.ts';
import type { RouteError } from '../http/describe.ts';
import type { App } from '../http/server.ts';
import { integrationKey } from '../integrations/wire.ts';
import { createBrowserCookies } from './browser-cookies.ts';
import { type FormMode, submit } from './submit.ts';
import type { ConnectDeps } from './target.ts';

const connected = { 200: z.object({ providerConfigKey: z.string(), connectionId: z.string() }) };
const formErrors = [
  'integration_not_allowed',
  'unknown_provider_config',
  'invalid_auth_mode',
  'test_credentials_unavailable',
  'unknown_connection',
  'session_in_other_browser',
  'invalid_query_params',
  'connection_test_failed',
  'connection_validation_failed',
  'another_account',
  { code: 'integration_misconfigured', status: 400 },
] as const satisfies readonly RouteError[];

/** Forms for keys and passwords: what is filled in makes the connection. */
export function formRoutes(app: App, deps: ConnectDeps): void {
  formRoute(app, {
    deps,
    path: '/api-auth/api-key/:key',
    mode: 'API_KEY',
    operationId: 'connectByApiKey',
    summary: 'Connect with an API key',
    body: z.strictObject({ apiKey: z.string() }),
  });
  formRoute(app, {
    deps,
    path: '/api-auth/basic/:key',
    mode: 'BASIC',
    operationId: 'connectByPassword',
    summary: 'Connect with a user name and a password',
    body: z.strictObject({ username: z.string(), password: z.string() }),
  });
  formRoute(app, {
    deps,
    path: '/oauth2/auth/:key',
    mode: 'OAUTH2_CC',
    operationId: 'connectByClient',
    summary: 'Connect with a client ID and secret',
    example: { client_id: 'client-of-the-account', client_secret: 'secret-of-the-account' },
    // Neither where the client is the integration's.
    body: z.strictObject({ client_id: z.string().optional(), client_secret: z.string().optional() }),
  });
  formRoute(app, {
    deps,
    path: '/auth/unauthenticated/:key',
    mode: 'NONE',
    operationId: 'connectByNothing',
    summary: 'Connect where nothing is asked for',
    example: {},
    body: z.strictObject({}).nullish(),
  });
}

/** A route that connects with what is filled in. Its token stands in the query. */
function formRoute(
  app: App,
  {
    deps,
    path,
    mode,
    body,
    operationId,
    summary,
    example,
  }: {
    deps: ConnectDeps;
    path: string;
    mode: FormMode;
    body: z.ZodType;
    operationId: string;
    summary: string;
    example?: unknown;
  },
): void {
  const cookies = createBrowserCookies(deps);
  app.post(
    path,
    {
      config: { access: { by: 'session in query' } },
      schema: {
        operationId,
        summary,
        description:
          'For a connect page: what the end user filled in makes the connection, once it was tried at the provider where ' +
          'that has a call for it.',
        errors: formErrors,
        params: z.object({ key: integrationKey }),
        body,
        ...(example !== undefined && { example: { body: example } }),
        response: connected,
      },
    },
    async (request) => {
      const session = sessionOf(request.caller);
      const { key } = request.params;
      const { connection } = await logged(
        deps.activity,
        {
          type: 'connect',
          environmentId: session.environmentId,
          requestId: request.id,
          integration: key,
          actor: actorOf(request.caller),
          details: { mode },
          of: (saved) => ({ connection: saved.connection.connectionId }),
        },
        () =>
          submit(deps, {
            session,
            key,
            mode,
            url: request.originalUrl,
            secrets: cookies.read(request),
            body: (request.body ?? {}) as Record<string, unknown>,
          }),
      );
      return { providerConfigKey: connection.integrationKey, connectionId: connection.connectionId };
    },
  );
}

/** Throws where the caller is no session. */
export function sessionOf(caller: Caller): { sessionId: number; environmentId: number } {
  if (caller.kind !== 'session') throw new AppError('invalid_connect_session_token_format');
  return caller;
}
