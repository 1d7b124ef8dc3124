/**
 * The forms in which an end user enters credentials, such as an API key: the routes, and the connection that they create.
 *
 * Does not own: the fields of a form (`auth-modes/`), the trial of credentials (`connections/verify.ts`), how a connection
 * is saved (`save.ts`).
 */

import { z } from 'zod';
import type { $ZodIssue } from 'zod/v4/core';
import { logged } from '../activity/writer.ts';
import { authModes, type Credentials, modeNamed, ownClientOf } from '../auth-modes/modes.ts';
import {
  asAppError,
  credentialFaults,
  firstToken,
  firstTokenFailed,
  isUnverified,
  type NewCredentials,
  recordClientResult,
  testFailedError,
  verify,
} from '../connections/verify.ts';
import { AppError, type FieldError, type FieldReason, fieldError } from '../errors.ts';
import { actorOf } from '../http/auth/caller.ts';
import type { RouteError } from '../http/openapi/describe.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import type { Integration } from '../integrations/store.ts';
import { integrationKey } from '../integrations/wire.ts';
import { readFields } from '../providers/fields.ts';
import { createBrowserCookies, findSecret } from './browser-cookies.ts';
import { type AuthorizationResult, type Saved, saveConnection } from './save.ts';
import { callerSession, getSession, type SessionRef } from './sessions.ts';
import {
  type ConnectDeps,
  getTarget,
  readConfig,
  readConnectQuery,
  sentenceOf,
  type Target,
} from './target.ts';

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

const newConnection = z.object({ providerConfigKey: z.string(), connectionId: z.string() });
nameSchemas({ NewConnection: newConnection });

/**
 * A route for the form of each auth mode that has one: the submitted credentials make the connection. The token of the
 * session is in the query.
 */
export function formRoutes(app: App, deps: ConnectDeps): void {
  const cookies = createBrowserCookies(deps);
  for (const { name: mode, client, form } of authModes.values()) {
    if (form === undefined) continue;
    const { path, operationId, summary, example, hasDefinedFields } = form;
    const names = Object.keys(form.fields);
    const body = hasDefinedFields
      ? z.record(z.string().max(64), z.string().max(8192))
      : z.strictObject(
          Object.fromEntries(
            Object.entries(form.fields).map(([name, { required }]) => [
              name,
              client === 'optional' || required === false ? z.string().optional() : z.string(),
            ]),
          ),
        );
    app.post(
      `${path}/:key`,
      {
        config: { access: { by: 'session in query' } },
        schema: {
          operationId,
          summary,
          description:
            'For a connect page: creates the connection. Credentials are tested first if the provider has a call for it.',
          errors: formErrors,
          params: z.object({ key: integrationKey }),
          body: names.length === 0 && !hasDefinedFields ? body.nullish() : body,
          ...(example !== undefined && { example: { body: example } }),
          response: { 200: newConnection },
        },
      },
      async (request) => {
        const session = callerSession(request.caller);
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
}

/**
 * Makes a connection from a submitted form: the credentials are tried as the definition says, a client by requesting
 * its token, then saved.
 *
 * A form does not bind the session to a browser. If one has begun at a provider, the form is accepted from that browser
 * alone: with a copy of the link, another person cannot replace the account that is about to be connected.
 *
 * `url` is the request's own, with `params[x]` in its query; `secrets` are those of the browser's cookies. Throws
 * `session_in_other_browser`, `invalid_body` and `invalid_query_params` naming the fields, `connection_test_failed` if
 * the provider refuses the credentials or does not respond, `integration_misconfigured` if it refuses the integration's
 * client, and the errors of `saveConnection`.
 */
async function submit(
  deps: ConnectDeps,
  request: {
    session: SessionRef;
    key: string;
    mode: string;
    url: string;
    secrets: readonly string[];
    body: Record<string, unknown>;
  },
): Promise<Saved> {
  const { db, reading } = deps;
  const session = await getSession(db, { ...request.session, vault: reading.vault });
  if (session.browserHash !== undefined && findSecret(request.secrets, session.browserHash) === undefined)
    throw new AppError('session_in_other_browser');
  const target = await getTarget(db, { reading, session, key: request.key, mode: request.mode });
  const { integration } = target;
  const query = readConnectQuery(request.url);
  if (query.ownClient !== undefined)
    throw fieldError('invalid_query_params', ['credentials'], 'must be in the body of the form');
  const credentials = readForm(integration, request);
  const connectionConfig = opensAccounts(credentials)
    ? readApplicationsConfig(target, query.config)
    : readConfig(target, query.config);
  const tried = { integration, credentials, connectionConfig };
  const result = await authorizationFrom(deps, tried).catch((error) => Promise.reject(asAppError(error)));
  const authorization = { ...result, connectionConfig };
  return saveConnection(deps, { session, tried: integration, authorization });
}

/** Whether the integration's client opens the account that the configuration names. */
function opensAccounts(credentials: Credentials): boolean {
  return modeNamed(credentials.type).clientOpensAccounts === true && ownClientOf(credentials) === undefined;
}

/** The configuration without what an end user has chosen, now or for a connection with a client of its own. */
function readApplicationsConfig(target: Target, wished: Record<string, string>): Record<string, string> {
  const { current } = target;
  const [name] = Object.keys(wished);
  if (name !== undefined) {
    const message = 'must be set by the application, in integrations_config_defaults of the session';
    throw fieldError('invalid_query_params', [`params[${name}]`], message);
  }
  const isChosen = current !== undefined && ownClientOf(current.credentials) !== undefined;
  return readConfig(isChosen ? { ...target, current: undefined } : target, {});
}

function readForm(
  integration: Integration,
  { mode: name, body }: { mode: string; body: Record<string, unknown> },
): Credentials {
  const { provider } = integration;
  const mode = modeNamed(name);
  const read = mode.importSchema.safeParse({ ...body, type: name });
  const faults: FieldError[] = read.success
    ? credentialFaults(read.data, integration)
    : read.error.issues.map((issue) => {
        const { code, message, path } = issue;
        return { code, message, path: path.map(String), reason: reasonOf(issue, body[String(path[0])]) };
      });
  // Official clients add the type to the fields that a definition declares.
  const { type: _type, ...entered } = body;
  const form = readFields(provider.credentials, entered);
  const usesIntegrationClient =
    mode.client === 'optional' && read.success && ownClientOf(read.data) === undefined;
  const isRefined =
    mode.form?.hasDefinedFields || (Object.keys(provider.credentials).length > 0 && !usesIntegrationClient);
  for (const { field, ...fault } of isRefined && !form.ok ? form.issues : []) {
    if (!faults.some(({ path }) => path[0] === field))
      faults.push({ code: 'custom', ...fault, path: [field] });
  }
  if (read.success && faults.length === 0) return read.data;
  throw new AppError('invalid_body', sentenceOf(faults), { errors: faults });
}

/** The reason of a schema that refuses a value: it is too long, or has a character that no credential of this kind has. */
function reasonOf(issue: $ZodIssue, value: unknown): FieldReason | undefined {
  if (issue.code === 'too_big') return { code: 'too_long', limit: String(issue.maximum) };
  if (issue.code !== 'invalid_format' || typeof value !== 'string') return undefined;
  if (/\p{Cc}/u.test(value)) return { code: 'control_characters' };
  return /[^ -~]/.test(value) ? { code: 'not_ascii' } : undefined;
}

/**
 * The authorization for credentials that the provider has accepted. A test without a result refuses them, too, since the
 * user who entered them is present and can try again.
 */
async function authorizationFrom(
  deps: ConnectDeps,
  tried: NewCredentials,
): Promise<Pick<AuthorizationResult, 'credentials' | 'grant'>> {
  const { integration } = tried;
  const fetch = deps.fetchFor(integration);
  const first = await firstToken(tried, {
    fetch,
    now: deps.now(),
    onClientResult: (fault) => recordClientResult(deps, { integration, fault }),
  });
  if (!first.ok) throw firstTokenFailed(tried, first.fault);
  const { credentials, grant } = first;
  const verification = await verify({ ...tried, credentials }, { fetch });
  if (verification.kind !== 'accepted') throw testFailedError(integration, verification);
  return {
    credentials: () => credentials,
    grant: { ...grant, isUnverified: isUnverified(first, verification) },
  };
}
