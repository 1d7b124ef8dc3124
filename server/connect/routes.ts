import { z } from 'zod';
import { actorOf, writeAudit } from '../activity/audit.ts';
import { findConnection } from '../connections/store.ts';
import { type ConnectSettings, readConnectSettings } from '../environments/connect-settings.ts';
import { fieldError } from '../errors.ts';
import { type Caller, requireScope } from '../http/caller.ts';
import { privateHeaders } from '../http/page.ts';
import type { App } from '../http/server.ts';
import { getIntegration } from '../integrations/store.ts';
import { formRoutes, sessionOf } from './form-routes.ts';
import { pageRoutes } from './page-routes.ts';
import { readSettings, reconnectInput, reconnectSettings, sessionInput } from './session-input.ts';
import { connectSessionRoutes, sessionOfRequest } from './session-routes.ts';
import {
  createSession,
  createSessionReader,
  deleteSession,
  getSession,
  type Session,
  type SessionSettings,
} from './sessions.ts';
import { connectSocket } from './socket.ts';
import type { ConnectDeps } from './target.ts';

const created = {
  201: z.object({ data: z.object({ token: z.string(), connect_link: z.string(), expires_at: z.string() }) }),
};
const json = z.record(z.string(), z.unknown());

/** How far a browser's clock may be off before its report is refused. */
const clockToleranceMs = 2 * 60 * 60_000;

/**
 * Connecting an account: sessions, the trip to a provider and back, forms for keys and passwords, the pages.
 *
 * All modes share one pipeline: a session gives a target (`target.ts`), the mode brings credentials (`begin.ts` and
 * `callback.ts`, or `submit.ts`), `save.ts` makes the connection. What is HTML stands in `page-routes.ts`,
 * what our own page asks for in `session-routes.ts`.
 */
export async function connectRoutes(app: App, deps: ConnectDeps): Promise<void> {
  sessionRoutes(app, deps);
  connectSessionRoutes(app, deps);
  formRoutes(app, deps);
  pageRoutes(app, deps);
  connectSocket(app, deps);
}

function sessionRoutes(app: App, deps: ConnectDeps): void {
  const { db, reading, brand, baseUrl, now } = deps;
  const access = { by: 'key', scope: 'connections:write' } as const;

  app.post(
    '/connect/sessions',
    {
      config: { access },
      schema: {
        operationId: 'createConnectSession',
        summary: 'Let an end user connect an account',
        description: 'The token is good for 30 minutes and for one connection.',
        errors: ['address_not_allowed'],
        example: {
          body: {
            end_user: { id: 'ada', email: 'ada@customer.example' },
            allowed_integrations: ['google-sheet'],
          },
        },
        body: sessionInput,
        response: created,
      },
    },
    async ({ body, caller }, reply) => {
      requireSetUpRight(caller, body);
      const settings = await readSettings(db, {
        body,
        environmentId: caller.environmentId,
        reading,
        baseUrl,
      });
      const allowedIntegrations = body.allowed_integrations;
      return reply.code(201).send(await create(deps, { caller, settings, allowedIntegrations }));
    },
  );

  app.post(
    '/connect/sessions/reconnect',
    {
      config: { access },
      schema: {
        operationId: 'createReconnectSession',
        summary: 'Let an end user renew a connection',
        description:
          'The connection keeps its ID, metadata and tags, and stays with the account it has unless ' +
          '`require_same_account` is false. `scopes` asks for what is missing, or for what it lists, alone.',
        errors: ['address_not_allowed', 'unknown_provider_config'],
        body: reconnectInput,
        response: created,
      },
    },
    async ({ body, caller }, reply) => {
      requireSetUpRight(caller, body);
      const { environmentId } = caller;
      const connection = await findConnection(db, {
        environmentId,
        integrationKey: body.integration_id,
        connectionId: body.connection_id,
        vault: reading.vault,
      });
      if (connection === undefined) {
        throw fieldError(
          'invalid_body',
          ['connection_id'],
          'The integration has no connection with this ID.',
        );
      }
      const settings = await readSettings(db, { body, environmentId, reading, baseUrl });
      const integration = await getIntegration(db, { ...reading, environmentId, key: body.integration_id });
      const session = await create(deps, {
        caller,
        settings: reconnectSettings(settings, { connection, integration, scopes: body.scopes }),
        allowedIntegrations: [connection.integrationKey],
        connectionRow: connection.id,
      });
      return reply.code(201).send(session);
    },
  );

  app.get(
    '/connect/session',
    {
      config: { access: { by: 'session' } },
      schema: {
        operationId: 'getConnectSession',
        summary: 'What the session is for',
        description: 'For pages of the application; what is fixed and secret to the application is not told.',
        response: { 200: z.object({ data: json }) },
      },
    },
    async ({ caller }, reply) => {
      reply.headers(privateHeaders);
      const session = await getSession(db, { ...placeOf(caller), vault: reading.vault });
      const settings = await readConnectSettings(db, caller.environmentId);
      // Official clients take it from the origin, not from the base address.
      const websocketsPath = `${new URL(baseUrl).pathname.replace(/\/$/, '')}/`;
      return { data: { ...toWire(session, settings), websocketsPath } };
    },
  );

  app.delete(
    '/connect/session',
    {
      // A used session ends, too, with what it may still set up.
      config: { access: { by: 'anyone' } },
      schema: {
        operationId: 'endConnectSession',
        security: [{ session: [] }],
        answers: { 204: { description: 'Done; there is no body.' } },
        summary: 'End the session',
        description:
          'With its token as Bearer, which is refused from now on; also that of a used session, whose set-up ends, or of ' +
          'one that has expired while somebody is at the provider. The connection that it made stays.',
        errors: ['invalid_connect_session_token_format', 'unknown_connect_session_token'],
      },
    },
    async (request, reply) => {
      const { id, environmentId } = await sessionOfRequest(deps, request);
      await db.transaction(async (tx) => {
        await deleteSession(tx, { id, environmentId });
        const entry = { environmentId, actor: `session:${id}`, target: `session:${id}` };
        await writeAudit(tx, { ...entry, action: 'connect_session.ended' });
      });
      return reply.headers(privateHeaders).code(204).send();
    },
  );

  const authenticate = createSessionReader({ db, brand, now });
  app.post(
    '/connect/telemetry',
    {
      config: { access: { by: 'anyone' } },
      schema: {
        operationId: 'reportConnectStep',
        answers: { 204: { description: 'Done; there is no body.' } },
        summary: 'Taken and not kept',
        description: 'Official connect pages report their steps here. The token stands in the body.',
        errors: ['invalid_connect_session_token_format', 'unknown_connect_session_token'],
        body: z.strictObject({
          token: z.string(),
          event: z.string().min(1).max(255),
          timestamp: z.coerce.date(),
          dimensions: z.strictObject({ integration: z.string().max(255).optional() }).optional(),
        }),
      },
    },
    async ({ body }, reply) => {
      await authenticate(body.token);
      if (Math.abs(now().getTime() - body.timestamp.getTime()) > clockToleranceMs) {
        throw fieldError('invalid_body', ['timestamp'], 'must be within two hours of now');
      }
      return reply.headers(privateHeaders).code(204).send();
    },
  );
}

/** What an end user chooses puts functions on the integration and starts syncs. */
function requireSetUpRight(caller: Caller, { setup }: { setup?: 'sheet' | undefined }): void {
  if (setup !== undefined) requireScope(caller, 'functions:write');
}

async function create(
  { db, reading, brand, baseUrl, now }: ConnectDeps,
  {
    caller,
    ...given
  }: {
    caller: Caller;
    settings: SessionSettings;
    allowedIntegrations: readonly string[] | undefined;
    connectionRow?: number;
  },
): Promise<{ data: { token: string; connect_link: string; expires_at: string } }> {
  const { environmentId } = caller;
  const { token, expiresAt } = await db.transaction(async (tx) => {
    const session = await createSession(tx, {
      ...given,
      environmentId,
      brand,
      vault: reading.vault,
      now: now(),
    });
    await writeAudit(tx, {
      environmentId,
      actor: actorOf(caller),
      action: 'connect_session.created',
      target: `session:${session.id}`,
      details: {
        end_user: given.settings.end_user?.id ?? null,
        connection: given.settings.reconnect?.connection ?? null,
      },
    });
    return session;
  });
  return {
    data: {
      token,
      connect_link: `${baseUrl}/connect/?session_token=${token}`,
      expires_at: expiresAt.toISOString(),
    },
  };
}

/** A session as the page of an application sees it. What is fixed and secret to the application stays here. */
function toWire(
  { settings, allowedIntegrations }: Session,
  { theme, primary, appName, logo, language }: ConnectSettings,
): Record<string, unknown> {
  const { end_user: endUser, integrations_config_defaults: defaults } = settings;
  return {
    endUser: endUser
      ? {
          id: endUser.id,
          display_name: endUser.display_name ?? null,
          email: endUser.email ?? null,
          tags: endUser.tags ?? null,
          organization: endUser.organization ?? null,
        }
      : null,
    connectUISettings: {
      showWatermark: false,
      defaultTheme: theme,
      theme: { light: { primary: primary.light }, dark: { primary: primary.dark } },
      appName: appName ?? null,
      logo: logo ?? null,
      language: language ?? null,
    },
    ...(settings.tags && { tags: settings.tags }),
    ...(allowedIntegrations && { allowed_integrations: allowedIntegrations }),
    ...(defaults && {
      integrations_config_defaults: Object.fromEntries(
        Object.entries(defaults).map(([key, { authorization_params = {}, connection_config = {} }]) => [
          key,
          { authorization_params, connection_config },
        ]),
      ),
    }),
    ...(settings.overrides && { overrides: settings.overrides }),
    isReconnecting: settings.reconnect !== undefined,
  };
}

function placeOf(caller: Caller): { id: number; environmentId: number } {
  const { sessionId, environmentId } = sessionOf(caller);
  return { id: sessionId, environmentId };
}
