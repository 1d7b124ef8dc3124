import type { Fetch } from '../auth-modes/token-response.ts';
import type { Brand } from '../brand.ts';
import type { ConnectionReader } from '../connections/reader.ts';
import { type Connection, findConnection } from '../connections/store.ts';
import type { Db, Queryable } from '../db/pool.ts';
import { AppError, type FieldError } from '../errors.ts';
import { findIntegration, type Integration, type IntegrationReading } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import type { AuthModeName } from '../providers/definition.ts';
import { readFields } from '../providers/fields.ts';
import { TemplateError } from '../providers/template-grammar.ts';
import { sentenceOf } from './query.ts';
import { fixedConfig } from './session-input.ts';
import type { Session } from './sessions.ts';

/** What the steps of the dance have in common. */
export type ConnectDeps = {
  db: Db;
  reading: IntegrationReading;
  reader: ConnectionReader;
  /** The guarded way to the network; test integrations alone may reach the sandbox. */
  fetchFor: (integration: Integration) => Fetch;
  brand: Brand;
  baseUrl: string;
  log: Logger;
  now: () => Date;
};

/** What a session makes a connection to, and which connection it renews. */
export type Target = { session: Session; integration: Integration; current: Connection | undefined };

/**
 * The integration that the session is used for. Throws `integration_not_allowed`, `unknown_provider_config`,
 * `invalid_auth_mode` where it authorizes in another way than `mode`, `test_credentials_unavailable`, and
 * `unknown_connection` where the connection to renew was deleted.
 */
export async function getTarget(
  db: Queryable,
  {
    reading,
    session,
    key,
    mode,
  }: { reading: IntegrationReading; session: Session; key: string; mode?: AuthModeName },
): Promise<Target> {
  const { environmentId, allowedIntegrations, settings } = session;
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
  if (settings.reconnect === undefined) return { session, integration, current: undefined };
  const current = await findConnection(db, {
    environmentId,
    integrationKey: settings.reconnect.integration,
    connectionId: settings.reconnect.connection,
    vault: reading.vault,
  });
  // One that was deleted and made again under its old ID is another connection.
  if (current === undefined || current.id !== session.connectionRow) {
    throw new AppError('unknown_connection', 'The connection that was to be renewed has been deleted.');
  }
  return { session, integration, current };
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
