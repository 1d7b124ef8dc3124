import {
  type Credentials,
  grantTypeOf,
  isRenewable,
  modeNamed,
  refreshTokenOf,
} from '../auth-modes/modes.ts';
import type { Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Caller } from '../http/auth/caller.ts';
import type { Integration, IntegrationReading } from '../integrations/store.ts';
import { TemplateError } from '../providers/template.ts';
import { healthToWire } from './health/health.ts';
import { isSuperseded } from './refresh/previous-refresh-tokens.ts';
import { isExpired } from './refresh/refresh-due.ts';
import { type ConnectionHooks, noHooks } from './store/hooks.ts';
import { type GrantFacts, insertConnection, type NewConnection, replaceCredentials } from './store/save.ts';
import {
  auditConnection,
  type Connection,
  findConnectionForUpdate,
  queueConnectionEvent,
} from './store/store.ts';
import { tagsOf } from './store/tags.ts';
import {
  asAppError,
  assertIntegrationUnchanged,
  credentialFaults,
  type FirstTokenDeps,
  firstToken,
  firstTokenFailed,
  isDefinitive,
  isUnverified,
  type NewCredentials,
  testFailedError,
  verify,
} from './verify.ts';

/**
 * Creates a connection from tokens that the application already has. A connection with this ID gets the new
 * credentials, metadata and tags; the tags of its end user are added. Writes connection, event and audit entry in one
 * transaction.
 *
 * If the given refresh token was already replaced by a successor, the stored tokens are newer and stay.
 *
 * `integration`: the one with which the credentials were tested. Throws `unknown_provider_config` if it was changed
 * since.
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
  const kept =
    current && (await isSuperseded(tx, { connection: current, credentials: given.credentials }))
      ? current
      : undefined;
  const { credentials } = kept ?? given;
  const expiry = isRenewable(credentials) ? credentials.expires_at : undefined;
  const content = {
    ...given,
    ...(kept && { connectionConfig: configFor(kept, { integration, given }) }),
    // Without a new end user, the tags of the current one stay.
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
  await assertIntegrationUnchanged(tx, { integration, reading });
  await queueConnectionEvent(tx, connection, {
    type: current ? 'connection.reconnected' : 'connection.created',
    state: healthToWire(connection, integration.provider).state,
  });
  const action = current ? 'connection.overridden' : 'connection.imported';
  await auditConnection(tx, connection, { caller, action });
  return connection;
}

/**
 * Stored tokens keep the fields that determine the provider's addresses, so that they go to the same addresses as
 * before.
 */
function configFor(
  { connectionConfig: stored }: Connection,
  { integration, given }: { integration: Integration; given: Pick<NewConnection, 'connectionConfig'> },
): Record<string, unknown> {
  const isOfAddress = ([name]: [string, unknown]) =>
    Object.hasOwn(integration.provider.connection_config, name);
  return Object.fromEntries([
    ...Object.entries(given.connectionConfig ?? {}).filter((entry) => !isOfAddress(entry)),
    ...Object.entries(stored).filter(isOfAddress),
  ]);
}

/**
 * Tests imported credentials. Returns them in the form to store, with the facts that the provider returned; a client
 * without a token gets one. Throws `connection_test_failed` if the provider refuses the credentials,
 * `integration_misconfigured` if it refuses the integration's client, and `invalid_body` if the configuration of the
 * connection does not fit the provider's addresses.
 *
 * Credentials that the provider does not judge are accepted, because the application vouches for them. So are expired
 * tokens, because a test would use up their refresh token. If the provider refuses an access token that has a refresh
 * token, the access token is stored as expired.
 */
export async function tryImported(
  given: NewCredentials,
  deps: FirstTokenDeps,
): Promise<{ credentials: Credentials; grant: GrantFacts }> {
  const { fetch, now } = deps;
  const untried = { credentials: given.credentials, grant: { isUnverified: true } };
  const isRefreshed = grantTypeOf(given.credentials) === 'refresh_token';
  if (isRefreshed && isRenewable(given.credentials) && isExpired(given.credentials, now)) return untried;
  try {
    const first = await firstToken(given, deps);
    if (!first.ok) {
      if (isDefinitive(first.fault)) throw firstTokenFailed(given, first.fault);
      return untried;
    }
    const { credentials, grant } = first;
    const verification = await verify({ ...given, credentials }, { fetch });
    if (verification.kind !== 'refused')
      return {
        credentials,
        grant: { ...grant, isUnverified: isUnverified(first, verification) },
      };
    if (isRenewable(credentials) && refreshTokenOf(credentials) !== undefined)
      return {
        credentials: { ...credentials, expires_at: now.toISOString() },
        grant: { ...grant, isUnverified: true },
      };
    throw testFailedError(given.integration, verification);
  } catch (error) {
    throw settingError(error);
  }
}

function settingError(error: unknown): unknown {
  if (!(error instanceof TemplateError)) return error;
  const [source, name] = error.field?.split('.') ?? [];
  if (source !== 'connectionConfig' || name === undefined) return asAppError(error);
  const errors = [{ code: 'custom', message: error.message, path: ['connection_config', name] }];
  return new AppError('invalid_body', undefined, { errors, cause: error });
}

/** Parses the credentials of a body by the provider's mode. Throws `invalid_body` with the field. */
export function readImported(integration: Integration, given: Record<string, unknown>): Credentials {
  const mode = modeNamed(integration.provider.auth_mode);
  if (given.type !== undefined && given.type !== mode.name) {
    throw new AppError(
      'invalid_body',
      `${integration.provider.display_name} requires credentials of type ${mode.name}.`,
      {
        errors: [{ code: 'custom', message: `must be ${mode.name}`, path: ['credentials', 'type'] }],
      },
    );
  }
  const read = mode.importSchema.safeParse(given);
  const faults = read.success ? credentialFaults(read.data, integration) : read.error.issues;
  if (read.success && faults.length === 0) return read.data;
  throw new AppError('invalid_body', undefined, {
    errors: faults.map(({ code, message, path }) => ({
      code,
      message,
      path: ['credentials', ...path.map(String)],
    })),
  });
}
