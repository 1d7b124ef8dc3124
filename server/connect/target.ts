import type { IncomingMessage } from 'node:http';
import type { Activity } from '../activity/writer.ts';
import type { Fetch } from '../auth-modes/token-response.ts';
import type { Brand } from '../brand.ts';
import type { ConnectionHooks } from '../connections/hooks.ts';
import type { ConnectionReader } from '../connections/reader.ts';
import { type Connection, findConnection, findConnectionForUpdate } from '../connections/store.ts';
import type { Db, Queryable, Tx } from '../db/pool.ts';
import { AppError, type FieldError } from '../errors.ts';
import { findIntegration, type Integration, type IntegrationReading } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import type { AuthModeName } from '../providers/definition.ts';
import { readFields } from '../providers/fields.ts';
import { TemplateError } from '../providers/template-grammar.ts';
import { sentenceOf } from './query.ts';
import { fixedConfig } from './session-input.ts';
import { isMadeBy, type Session } from './sessions.ts';

/** What the steps of the dance have in common. */
export type ConnectDeps = {
  db: Db;
  reading: IntegrationReading;
  reader: ConnectionReader;
  /** What the application's own code does when a connection is made. */
  hooks?: ConnectionHooks;
  /** The guarded way to the network; test integrations alone may reach the sandbox. */
  fetchFor: (integration: Integration) => Fetch;
  brand: Brand;
  baseUrl: string;
  log: Logger;
  activity: Activity;
  now: () => Date;
  /** Ranges, as in the settings. */
  trustedProxies: readonly string[];
  /** Why a request is refused before anything else; undefined: it is not. */
  guard?: ((request: IncomingMessage) => AppError | undefined) | undefined;
};

/** What a session makes a connection to, and which connection it renews. */
export type Target = { session: Session; integration: Integration; current: Connection | undefined };

type Wanted = { reading: IntegrationReading; session: Session; key: string; mode?: AuthModeName };

/**
 * What the session is used for. Throws what `getAllowed` throws, and `unknown_connection` where the connection to
 * renew was deleted, or is not any more what a session has made that was opened again.
 */
export async function getTarget(db: Queryable, wanted: Wanted): Promise<Target> {
  const { session, reading } = wanted;
  const integration = await getAllowed(db, wanted);
  const at = renewedBy(session);
  if (at === undefined) return { session, integration, current: undefined };
  const found = await findConnection(db, { ...at, vault: reading.vault });
  return { session, integration, current: checkRenewed(session, found) };
}

/**
 * The connection that the session renews, which nobody else changes until the transaction ends; undefined where it
 * makes one. Throws `unknown_connection`.
 */
export async function lockRenewed(
  tx: Tx,
  { session, reading }: Pick<Wanted, 'session' | 'reading'>,
): Promise<Connection | undefined> {
  const at = renewedBy(session);
  if (at === undefined) return undefined;
  return checkRenewed(session, await findConnectionForUpdate(tx, { ...at, vault: reading.vault }));
}

/**
 * The integration that the session is used for. Throws `integration_not_allowed`, `unknown_provider_config`,
 * `invalid_auth_mode` where it authorizes in another way than `mode`, and `test_credentials_unavailable`.
 */
export async function getAllowed(
  db: Queryable,
  { reading, session, key, mode }: Wanted,
): Promise<Integration> {
  const { environmentId, allowedIntegrations } = session;
  if (allowedIntegrations !== undefined && !allowedIntegrations.includes(key)) {
    throw new AppError('integration_not_allowed', `The connect session does not allow "${key}".`);
  }
  const integration = await findIntegration(db, { ...reading, environmentId, key });
  if (integration === undefined) throw new AppError('unknown_provider_config');
  if (mode !== undefined && integration.provider.auth_mode !== mode) {
    throw new AppError(
      'invalid_auth_mode',
      `${integration.provider.display_name} authorizes by ${integration.provider.auth_mode}, not ${mode}.`,
    );
  }
  if (integration.isTest && reading.testClient === undefined)
    throw new AppError('test_credentials_unavailable');
  return integration;
}

function renewedBy({ environmentId, settings: { reconnect } }: Session) {
  return (
    reconnect && { environmentId, integrationKey: reconnect.integration, connectionId: reconnect.connection }
  );
}

/**
 * One that was deleted and made again under its old ID is another connection. To a session that was opened again for
 * what was not granted, so is one that has got another grant.
 */
function checkRenewed(session: Session, found: Connection | undefined): Connection {
  if (found === undefined || found.id !== session.connectionRow) {
    throw new AppError('unknown_connection', 'The connection that was to be renewed has been deleted.');
  }
  if (session.outcome !== undefined && !isMadeBy(session, found)) {
    throw new AppError(
      'unknown_connection',
      'The connection of this session has been connected again since.',
    );
  }
  return found;
}

/**
 * The configuration of the connection: what the application fixed counts, then what the connection has, then what
 * the browser filled in. Throws `invalid_query_params` naming the fields (`params[x]`) that are missing or do not fit.
 */
export function readConfig(
  { session, integration, current }: Target,
  wished: Record<string, string>,
): Record<string, string> {
  const form = integration.provider.connection_config;
  const kept = Object.entries(current?.connectionConfig ?? {}).filter(
    (entry): entry is [string, string] => Object.hasOwn(form, entry[0]) && typeof entry[1] === 'string',
  );
  const defaults = session.settings.integrations_config_defaults?.[integration.key];
  const read = readFields(form, { ...wished, ...Object.fromEntries(kept), ...fixedConfig(defaults) });
  if (read.ok) return read.values;
  const errors: FieldError[] = read.issues.map(({ field, message }) => ({
    code: 'custom',
    message,
    path: [`params[${field}]`],
  }));
  throw new AppError('invalid_query_params', sentenceOf(errors), { errors });
}

/** A placeholder of the provider's addresses that cannot be filled, as the error a caller may see. */
export function asAppError(error: unknown): unknown {
  if (!(error instanceof TemplateError)) return error;
  return new AppError(
    'integration_misconfigured',
    `A setting of the integration does not fit: ${error.message}.`,
    {
      status: 400,
      cause: error,
    },
  );
}
