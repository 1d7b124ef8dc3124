/**
 * Routes to connect an account: sessions, and the data of connect pages.
 *
 * All auth modes share one pipeline: a session has a target (`target.ts`), the mode returns credentials (`begin.ts` and
 * `callback.ts`, or `form.ts`), and `save.ts` saves the connection. Routes elsewhere: pages and the callback
 * (`page-routes.ts`), the list of sessions (`session-routes.ts`), forms (`form.ts`), the socket of browser clients
 * (`socket.ts`).
 */
import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import { findConnection } from '../connections/store/store.ts';
import {
  type ConnectSettings,
  connectToWire,
  readConnectSettings,
} from '../environments/connect-settings.ts';
import { fieldError } from '../errors.ts';
import { type Access, actorOf, type Caller, requireScope } from '../http/auth/caller.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import { privateHeaders } from '../http/pages/page.ts';
import type { App } from '../http/server.ts';
import { getIntegration } from '../integrations/store.ts';
import { choicesWire, readChoices } from './choices.ts';
import { formRoutes } from './form.ts';
import { pageRoutes } from './page-routes.ts';
import { progressWire, readProgress, reopenForMissingScopes } from './progress.ts';
import { readSettings, reconnectInput, reconnectSettings, sessionInput } from './session-input.ts';
import { sessionListRoutes } from './session-routes.ts';
import {
  bearerSession,
  callerSession,
  createSession,
  createSessionReader,
  deleteSession,
  getSession,
  type Session,
  type SessionSettings,
} from './sessions.ts';
import { connectSocket } from './socket.ts';
import type { ConnectDeps } from './target.ts';

const sessionWire = z.object({ token: z.string(), connect_link: z.string(), expires_at: z.string() });
nameSchemas({ ConnectSession: sessionWire });
const created = { 201: z.object({ data: sessionWire }) };
const json = z.record(z.string(), z.unknown());

/** The tolerated difference of a browser's clock. */
const clockToleranceMs = 2 * 60 * 60_000;

/** Adds all routes of this folder. */
export async function connectRoutes(app: App, deps: ConnectDeps): Promise<void> {
  sessionRoutes(app, deps);
  sessionListRoutes(app, deps);
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
      config: { access, idempotent: true },
      schema: {
        operationId: 'createConnectSession',
        summary: 'Create a connect session',
        description:
          'The end user connects an account with the token, which is valid for 30 minutes and for one connection.',
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
      const { environmentId } = caller;
      const settings = await readSettings(db, { body, environmentId, reading, baseUrl });
      const allowedIntegrations = body.allowed_integrations;
      return reply.code(201).send(await create(deps, { caller, settings, allowedIntegrations }));
    },
  );

  app.post(
    '/connect/sessions/reconnect',
    {
      config: { access, idempotent: true },
      schema: {
        operationId: 'createReconnectSession',
        summary: 'Create a connect session that renews a connection',
        description:
          'The connection keeps its ID, metadata and tags. The user must choose the same account as before, unless ' +
          '`require_same_account` is false. With `scopes`, only the missing scopes or only the listed scopes are requested.',
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
        const message = 'The integration has no connection with this ID.';
        throw fieldError('invalid_body', ['connection_id'], message);
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
        summary: 'Get the settings of the session',
        description: 'For pages of the application. Settings that the application keeps secret are omitted.',
        response: { 200: z.object({ data: json }) },
      },
    },
    async ({ caller }, reply) => {
      reply.headers(privateHeaders);
      const session = await getSession(db, { ...callerSession(caller), vault: reading.vault });
      const settings = await readConnectSettings(db, caller.environmentId);
      // Official clients resolve it against the origin, not against the base address.
      const websocketsPath = `${new URL(baseUrl).pathname.replace(/\/$/, '')}/`;
      return { data: { ...toWire(session, settings), websocketsPath } };
    },
  );

  app.delete(
    '/connect/session',
    {
      // Also for a used session, whose set-up ends.
      config: { access: { by: 'anyone' } },
      schema: {
        operationId: 'endConnectSession',
        security: [{ session: [] }],
        answers: { 204: { description: 'Done. The response has no body.' } },
        summary: 'End the session',
        description:
          'Send the token of the session as Bearer; it is rejected from now on. The token of a used session is also ' +
          'accepted: it ends the set-up of the session. The token of an expired session is accepted while the user is at ' +
          'the provider. The connection that the session created stays.',
        errors: ['invalid_connect_session_token_format', 'unknown_connect_session_token'],
      },
    },
    async (request, reply) => {
      const { id, environmentId } = await bearerSession(deps, request);
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
        answers: { 204: { description: 'Done. The response has no body.' } },
        summary: 'Accept reports of official connect pages',
        description:
          'Official connect pages report their steps here. The service does not store the reports. The token is in the ' +
          'body.',
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

/** The end user's choice enables functions on the integration and starts syncs. */
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
    const about = { environmentId, brand, vault: reading.vault, now: now() };
    const session = await createSession(tx, { ...given, ...about });
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
  const connect_link = `${baseUrl}/connect/?session_token=${token}`;
  return { data: { token, connect_link, expires_at: expiresAt.toISOString() } };
}

/** A session for the pages of an application, without the settings that the application keeps secret. */
function toWire(
  { settings, allowedIntegrations }: Session,
  { theme, colors, appName, logo, language }: ConnectSettings,
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
      theme: { light: { primary: colors.light.primary }, dark: { primary: colors.dark.primary } },
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

/**
 * The routes for the connect page, and for any other page with the token of a session. The token is sent as Bearer: an
 * address would end up in logs and histories.
 */
function connectSessionRoutes(app: App, deps: ConnectDeps): void {
  const { db, reading } = deps;
  /** For a session in any state: the route itself reads the token. */
  const anyState = { access: { by: 'anyone' } as const satisfies Access };

  app.get(
    '/connect/session/choices',
    {
      config: { access: { by: 'session' } },
      schema: {
        operationId: 'getConnectChoices',
        summary: 'Get the integrations, the end user and the scopes of the session',
        description: 'For a connect page, before the end user begins the authorization.',
        response: { 200: z.object({ data: choicesWire() }) },
      },
    },
    async ({ caller }, reply) => {
      reply.headers(privateHeaders);
      const session = await getSession(db, { ...callerSession(caller), vault: reading.vault });
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
        summary: 'Get the progress of the session',
        description:
          'Send the token of the session as Bearer; the token of a used or expired session is also accepted. The response ' +
          'is the same on every node, regardless of the node that received the callback. With `settings=true`, it includes ' +
          'the appearance of the page.',
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
      const session = await bearerSession(deps, request);
      const progress = await readProgress(deps, session);
      if (request.query.settings === 'false') return { data: progress };
      const look = await readConnectSettings(db, session.environmentId);
      return { data: { ...progress, settings: connectToWire(look) } };
    },
  );

  app.post(
    '/connect/session/rest',
    {
      config: anyState,
      schema: {
        operationId: 'askForMissingScopes',
        security: [{ session: [] }],
        answers: { 204: { description: 'Done. The response has no body.' } },
        summary: 'Request the scopes that were not granted',
        description:
          'Send the token of a used session as Bearer. The session is open again until it expires, in the browser that ' +
          'began it, to renew its connection with the missing scopes.',
        errors: ['invalid_connect_session_token_format', 'unknown_connect_session_token'],
      },
    },
    async (request, reply) => {
      await reopenForMissingScopes(deps, await bearerSession(deps, request));
      return reply.headers(privateHeaders).code(204).send();
    },
  );
}
