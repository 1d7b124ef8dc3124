import { authModes, type Credentials, isRenewable } from '../auth-modes/mode.ts';
import type { Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { queueEvent } from '../events/outbox.ts';
import type { Caller } from '../http/caller.ts';
import type { Integration, IntegrationReading } from '../integrations/store.ts';
import { TemplateError } from '../providers/template-grammar.ts';
import { auditConnection } from './audit.ts';
import { connectionEvent } from './event.ts';
import { firstToken, isJudged, missingClient, noFirstToken, type Trial } from './first-token.ts';
import { type ConnectionHooks, noHooks } from './hooks.ts';
import { assertIntegrationUnchanged } from './integration-unchanged.ts';
import { isKept } from './previous-refresh-tokens.ts';
import { isExpired } from './refresh-due.ts';
import { type GrantFacts, insertConnection, type NewConnection, replaceCredentials } from './save.ts';
import { type Connection, findConnectionForUpdate } from './store.ts';
import { tagsOf } from './tags.ts';
import { type Tried, testFailed, verify } from './verify.ts';

/**
 * Makes a connection out of tokens that the application holds already. An existing ID gets the new credentials, and
 * its metadata and tags become what is given, beside the tags of its end user. Connection, event and audit entry stand or
 * fall together.
 *
 * A refresh token that was replaced by its successor is of the same grant, and used up: the stored tokens are the newer
 * ones, and stay.
 *
 * `integration` is the one that they were tried with. Throws `unknown_provider_config` where it is not that any more.
 */
export async function importConnection(
  tx: Tx,
  {
    caller,
    integration,
    id,
    given,
    reading,
    hooks = noHooks,
  }: {
    caller: Caller;
    integration: Integration;
    id: string | undefined;
    given: Omit<NewConnection, 'integration' | 'connectionId'>;
    reading: IntegrationReading;
    hooks?: Pick<ConnectionHooks, 'afterCreate' | 'afterReconnect'>;
  },
): Promise<Connection> {
  const { vault } = reading;
  const place = { environmentId: caller.environmentId, integrationKey: integration.key };
  const current =
    id === undefined ? undefined : await findConnectionForUpdate(tx, { ...place, connectionId: id, vault });
  const kept = current && (await isReplaced(tx, current, given.credentials)) ? current : undefined;
  const { credentials } = kept ?? given;
  const expiry = isRenewable(credentials) ? credentials.expires_at : undefined;
  const content = {
    ...given,
    ...(kept && { connectionConfig: configFor(kept, { integration, given }) }),
    // An end user that stays the same keeps their tags.
    tags: tagsOf({ endUser: given.endUser ?? current?.endUser, tags: given.tags }),
    credentials,
    grant: {
      ...(kept === undefined && given.grant),
      accessExpiresAt: expiry === undefined ? undefined : new Date(expiry),
    },
  };
  const connection = current
    ? await replaceCredentials(tx, { vault, current, ...content })
    : await insertConnection(tx, { vault, integration, connectionId: id, ...content });
  await (current ? hooks.afterReconnect : hooks.afterCreate)(tx, { connection, at: given.at });
  await assertIntegrationUnchanged(tx, { tried: integration, reading });
  await queueEvent(tx, {
    environmentId: caller.environmentId,
    type: current ? 'connection.reconnected' : 'connection.created',
    data: connectionEvent(connection),
  });
  await auditConnection(tx, {
    caller,
    connection,
    action: current ? 'connection.overridden' : 'connection.imported',
  });
  return connection;
}

/** Stored tokens go where they went before: the fields that the provider's definition fills in stay with them. */
function configFor(
  { connectionConfig: stored }: Connection,
  { integration, given }: { integration: Integration; given: Pick<NewConnection, 'connectionConfig'> },
): Record<string, unknown> {
  const isFilledIn = ([name]: [string, unknown]) =>
    Object.hasOwn(integration.provider.connection_config, name);
  return Object.fromEntries([
    ...Object.entries(given.connectionConfig ?? {}).filter((entry) => !isFilledIn(entry)),
    ...Object.entries(stored).filter(isFilledIn),
  ]);
}

/** Whether the stored tokens are those that the provider gave in place of `given`. */
async function isReplaced(tx: Tx, current: Connection, given: Credentials): Promise<boolean> {
  if (given.type !== 'OAUTH2' || given.refresh_token === undefined) return false;
  return isKept(tx, { connection: current, token: given.refresh_token });
}

/**
 * The credentials as they are to be stored, with what the provider told of them: a client that came without a token has
 * one. Throws `connection_test_failed`
 * where the provider refuses them, `integration_misconfigured` where it refuses the integration's client, and
 * `invalid_body` where the configuration of the connection does not fit the provider's addresses. What the provider
 * does not judge is taken as it is: the application has reason to think that it works. So are tokens that have ended,
 * whose refresh token is not spent on a trial. An access token that is refused beside a refresh token proves that it has
 * ended, and no more: it is stored as one that is due.
 */
export async function tryImported(
  given: Tried,
  trial: Trial,
): Promise<{ credentials: Credentials; grant: GrantFacts }> {
  const { fetch, now } = trial;
  const untried = { credentials: given.credentials, grant: {} };
  try {
    if (given.credentials.type === 'OAUTH2' && isExpired(given.credentials, now)) return untried;
    const first = await firstToken(given, trial);
    if (!first.ok) {
      if (isJudged(first.fault)) throw noFirstToken(given, first.fault);
      return untried;
    }
    const { credentials, grant } = first;
    const verdict = await verify({ ...given, credentials }, { fetch });
    if (verdict.kind !== 'refused') return { credentials, grant };
    if (credentials.type === 'OAUTH2' && credentials.refresh_token !== undefined)
      return { credentials: { ...credentials, expires_at: now.toISOString() }, grant };
    throw testFailed(given.integration, verdict);
  } catch (error) {
    throw error instanceof TemplateError ? unfitting(error) : error;
  }
}

function unfitting(error: TemplateError): AppError {
  const [source, name] = error.field?.split('.') ?? [];
  if (source === 'connectionConfig' && name !== undefined) {
    const errors = [{ code: 'custom', message: error.message, path: ['connection_config', name] }];
    return new AppError('invalid_body', undefined, { errors, cause: error });
  }
  const message = `A setting of the integration does not fit: ${error.message}.`;
  return new AppError('integration_misconfigured', message, { status: 400, cause: error });
}

/** The credentials of a body as the provider's mode takes them; throws `invalid_body`, naming the field. */
export function readImported(integration: Integration, given: Record<string, unknown>): Credentials {
  const mode = authModes[integration.provider.auth_mode];
  if (given.type !== undefined && given.type !== mode.name) {
    throw new AppError(
      'invalid_body',
      `${integration.provider.display_name} takes credentials of type ${mode.name}.`,
      {
        errors: [{ code: 'custom', message: `must be ${mode.name}`, path: ['credentials', 'type'] }],
      },
    );
  }
  const read = mode.importSchema.safeParse(given);
  const faults = read.success ? missingClient(read.data, integration) : read.error.issues;
  if (read.success && faults.length === 0) return read.data;
  throw new AppError('invalid_body', undefined, {
    errors: faults.map(({ code, message, path }) => ({
      code,
      message,
      path: ['credentials', ...path.map(String)],
    })),
  });
}
