import type { IncomingMessage } from 'node:http';
import type { Activity } from '../activity/writer.ts';
import { modeNamed, ownClientOf } from '../auth-modes/modes.ts';
import { clientText } from '../auth-modes/oauth2-credentials.ts';
import { isOfConnection } from '../auth-modes/oauth2-request.ts';
import type { Brand } from '../brand.ts';
import { missingScopesOf } from '../connections/health/health.ts';
import type { ConnectionHooks } from '../connections/store/hooks.ts';
import type { ConnectionReader } from '../connections/store/reader.ts';
import { type Connection, findConnection, findConnectionForUpdate } from '../connections/store/store.ts';
import type { Db, Queryable, Tx } from '../db/pool.ts';
import { AppError, type FieldError, fieldError } from '../errors.ts';
import {
  findIntegration,
  type Integration,
  type IntegrationReading,
  type OAuthClient,
} from '../integrations/store.ts';
import { readScopes } from '../integrations/wire.ts';
import type { Logger } from '../log.ts';
import type { Fetch } from '../outbound/outbound.ts';
import { readFields } from '../providers/fields.ts';
import { fixedConfig, fixedScopes } from './session-input.ts';
import { isMadeBy, type Session } from './sessions.ts';

/** The dependencies of all steps of an authorization. */
export type ConnectDeps = {
  db: Db;
  reading: IntegrationReading;
  reader: ConnectionReader;
  /** The application's own code for new connections. */
  hooks?: ConnectionHooks;
  /** The guarded fetch; only test integrations may reach the sandbox. */
  fetchFor: (integration: Integration) => Fetch;
  brand: Brand;
  baseUrl: string;
  /** The address under which browsers reach the callback. */
  callbackBaseUrl: string;
  log: Logger;
  activity: Activity;
  now: () => Date;
  /** Address ranges, as in the settings. */
  trustedProxies: readonly string[];
  /** Why a request is refused before anything else; undefined if it is not. */
  guard?: ((request: IncomingMessage) => AppError | undefined) | undefined;
};

/** The integration of a session, and the connection that it renews. */
export type Target = { session: Session; integration: Integration; current: Connection | undefined };

type Wanted = { reading: IntegrationReading; session: Session; key: string; mode?: string };

/**
 * The target of the session. Throws the errors of `getAllowed`, and `unknown_connection` if the connection to renew
 * was deleted, or if it is no longer the one that a reopened session has made.
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
 * The connection that the session renews, locked until the transaction ends; undefined if it makes one. Throws
 * `unknown_connection`.
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
 * An integration that the session allows. Throws `integration_not_allowed`, `unknown_provider_config`,
 * `invalid_auth_mode` if its mode is not `mode`, and `test_credentials_unavailable`.
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
      `${integration.provider.display_name} has the authorization mode ${integration.provider.auth_mode}, not ${mode}.`,
    );
  }
  if (integration.isTest && reading.testClient === undefined)
    throw new AppError('test_credentials_unavailable');
  return integration;
}

/** How end users authorize at the provider. Throws `invalid_auth_mode` if they fill in a form instead. */
export function authorizationOf({ provider }: Integration) {
  const { name, authorization } = modeNamed(provider.auth_mode);
  if (authorization !== undefined) return authorization;
  throw new AppError(
    'invalid_auth_mode',
    `${provider.display_name} has the authorization mode ${name}, which has no page at the provider.`,
  );
}

/**
 * Whether a refusal during an authorization proves that the provider refuses the integration's client. Not at an address
 * that the end user has chosen, where another server or tenant answers, which may not know the client.
 */
export function provesClientFault({ provider: { token, oauth1 } }: Integration): boolean {
  return ![token?.url, oauth1?.request_url].some((url) => url !== undefined && isOfConnection(url));
}

function renewedBy({ environmentId, settings: { reconnect } }: Session) {
  return (
    reconnect && { environmentId, integrationKey: reconnect.integration, connectionId: reconnect.connection }
  );
}

/**
 * A connection that was deleted and created again under its ID is another one. For a session that was reopened for
 * missing scopes, so is a connection with another grant.
 */
function checkRenewed(session: Session, found: Connection | undefined): Connection {
  if (found === undefined || found.id !== session.connectionRow) {
    throw new AppError('unknown_connection', 'The connection to renew was deleted.');
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
 * The configuration of the connection: first the values that the application fixed, then those of the connection, then
 * those of the browser. Throws `invalid_query_params` naming the fields (`params[x]`) that are missing or do not fit.
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
  const errors: FieldError[] = read.issues.map(({ field, ...fault }) => ({
    code: 'custom',
    ...fault,
    path: [`params[${field}]`],
  }));
  throw new AppError('invalid_query_params', sentenceOf(errors), { errors });
}

/** The parameters that a browser may set when it begins. The session and the definition determine all others. */
export type ConnectQuery = {
  /** `params[x]`: fields of the connection's configuration. */
  config: Record<string, string>;
  /** `authorization_params[x]` */
  authorizationParams: Record<string, string>;
  /** `user_scope`: can only reduce the scopes. */
  scopes: string[] | undefined;
  /**
   * `credentials[oauth_client_id_override]` and `credentials[oauth_client_secret_override]`: the end user's own
   * client.
   */
  ownClient: OAuthClient | undefined;
  /** `ws_client_id`: the ID of an official client that waits on the socket. */
  waiter: string | undefined;
};

/** `hmac` has no effect with a session. */
const known = new Set(['connect_session_token', 'ws_client_id', 'user_scope', 'hmac']);

const ownClientNames = ['oauth_client_id_override', 'oauth_client_secret_override'].map(
  (name) => `credentials[${name}]`,
);

/**
 * Reads the query of a route with the session token in it. Throws `invalid_query_params` naming each unknown or
 * repeated parameter.
 */
export function readConnectQuery(url: string): ConnectQuery {
  const faults: FieldError[] = [];
  const query: ConnectQuery = {
    config: {},
    authorizationParams: {},
    scopes: undefined,
    ownClient: undefined,
    waiter: undefined,
  };
  const own = new Map<string, string>();
  const seen = new Set<string>();
  for (const [name, value] of queryOf(url)) {
    const report = (message: string) => faults.push({ code: 'custom', message, path: [name] });
    if (seen.has(name)) report('is given twice');
    seen.add(name);
    const [, group, field] = /^(params|authorization_params)\[([A-Za-z][A-Za-z0-9_]*)\]$/.exec(name) ?? [];
    if (group === 'params' && field !== undefined) {
      // Only the application sets the address for events.
      if (field !== 'webhook_url') query.config[field] = value;
    } else if (group === 'authorization_params' && field !== undefined) {
      // Official clients send this text for an absent value.
      if (value !== 'undefined') query.authorizationParams[field] = value;
    } else if (ownClientNames.includes(name)) {
      if (clientText.safeParse(value).success) own.set(name, value);
      else report('must be printable ASCII');
    } else if (name === 'user_scope') query.scopes = readScopes(value);
    else if (name === 'ws_client_id') query.waiter = value;
    else if (name === 'connection_id') report('cannot be chosen: the session determines the connection');
    else if (!known.has(name)) report('is not a parameter of this route');
  }
  const [clientId, clientSecret] = ownClientNames.map((name) => own.get(name));
  if (clientId !== undefined && clientSecret !== undefined) query.ownClient = { clientId, clientSecret };
  else if (own.size > 0 && faults.length === 0) {
    const path = ownClientNames.filter((name) => !own.has(name));
    faults.push({ code: 'custom', message: 'requires the other field: send both or neither', path });
  }
  if (faults.length > 0) throw new AppError('invalid_query_params', sentenceOf(faults), { errors: faults });
  return query;
}

/** The query of a request's own URL, decoded. */
export function queryOf(url: string): URLSearchParams {
  const start = url.indexOf('?');
  return new URLSearchParams(start < 0 ? '' : url.slice(start + 1));
}

/** One sentence for a reader who sees only the message. */
export function sentenceOf(faults: readonly FieldError[]): string {
  return `${faults.map(({ path, message }) => `${path.at(-1) ?? 'query'}: ${message}`).join('; ')}.`;
}

/** The scopes to request from the provider, and those that the connection should have in the end. */
export type ScopePlan = { asked: string[]; requested: string[] };

/**
 * The scopes of an authorization: those of the application, else of the integration, else of the definition. A browser
 * may reduce them (`wished`), never add to them: `invalid_query_params`.
 *
 * A renewal that adds scopes requests only those if the provider adds them to its previous grant and the account will
 * be the same. Else it requests all, since the others would be lost.
 */
export function planScopes(
  target: Target,
  { scopes: wished, ownClient }: Partial<Pick<ConnectQuery, 'scopes' | 'ownClient'>> = {},
): ScopePlan {
  const { session, integration, current } = target;
  const fixed = fixedScopes(session.settings.integrations_config_defaults?.[integration.key]);
  const all = fixed ?? [...(integration.scopes ?? integration.provider.scopes.default)];
  const added = addedScopes(target);
  const requested =
    added === undefined ? all : [...new Set([...(current?.scopesRequested ?? all), ...added])];
  const asked = added !== undefined && keepsGrant(target, ownClient) ? added : requested;
  if (wished === undefined || fixed !== undefined) return { asked, requested };
  const wider = wished.filter((scope) => !asked.includes(scope));
  if (wider.length > 0) {
    throw fieldError(
      'invalid_query_params',
      ['user_scope'],
      `requests more scopes than allowed: ${wider.join(' ')}`,
    );
  }
  const isAddition = asked !== requested;
  return { asked: [...wished], requested: isAddition ? requested : [...wished] };
}

/** The scopes to add; undefined if all are requested, also if none is left to add. */
function addedScopes({ session, integration, current }: Target): string[] | undefined {
  const wanted = session.settings.scopes;
  if (wanted === undefined || current === undefined) return undefined;
  const added = wanted === 'missing' ? missingScopesOf(current, integration.provider) : wanted;
  return added.length > 0 ? added : undefined;
}

/** Whether the session allows another account to replace the connected one. */
export function allowsOtherAccount({ session }: Pick<Target, 'session'>): boolean {
  return session.settings.require_same_account === false;
}

/**
 * Whether the grant stays and can be extended. Not a dead grant, one of another client, one that the client may not
 * use, or one of an unknown account, which may be another's.
 */
function keepsGrant(target: Target, ownClient: ConnectQuery['ownClient']): boolean {
  const { integration, current } = target;
  return (
    integration.provider.scopes.incremental &&
    current?.status === 'active' &&
    ownClientOf(current.credentials)?.clientId === ownClient?.clientId &&
    current.suspension === undefined &&
    current.account !== undefined &&
    !allowsOtherAccount(target)
  );
}
