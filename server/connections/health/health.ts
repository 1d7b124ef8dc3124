/**
 * Why a connection works or does not. All functions are pure.
 *
 * Owns: the status and the next step of each cause, the errors of callers, the wire form of health. Does not own: the
 * meaning of a token response (`auth-modes/token-fault.ts`), faults of an integration (`integrations/fault.ts`, and
 * `store/suspension.ts` if only some connections are affected), writes (`status-transitions.ts`).
 */
import { z } from 'zod';
import { grantTypeOf } from '../../auth-modes/modes.ts';
import type { TokenFault } from '../../auth-modes/token-fault.ts';
import { AppError } from '../../errors.ts';
import { type ConnectionState, connectionStates } from '../../events/connection-states.ts';
import { nameSchemas } from '../../http/openapi/schema-names.ts';
import { type IntegrationFault, isOfClient, keepsFromRefresh } from '../../integrations/fault.ts';
import type { ProviderDefinition } from '../../providers/definition.ts';
import { missingScopes } from '../../providers/scopes.ts';
import type { LiveConnection } from '../store/reader.ts';
import {
  type Cause,
  type Connection,
  type ConnectionHead,
  type ConnectionStatus,
  connectionStatuses,
  type Evidence,
  type Fault,
  type Outage,
  type OutageCause,
} from '../store/store.ts';
import { expiryOf, slotsNextStep } from './warnings.ts';

/** The part of a provider's definition that health depends on. */
type HealthRules = Pick<ProviderDefinition, 'scopes' | 'refresh_token_lifetime'>;

const nextSteps: Record<Cause, string> = {
  grant_dead:
    'The user revoked the access, or the provider revoked it (not used for a long time, password changed, too many grants). Ask the user to connect again.',
  credentials_refused:
    "The provider rejects the connection's own client. Ask the user to connect again with a valid client ID and client secret.",
  testing_expired:
    'The application is in testing at the provider, so its grants expire after some days. Publish the application, and ask the user to connect again.',
  access_time_ended:
    'The user allowed access for a limited time, and it has expired. Ask the user to connect again.',
  session_policy:
    "The account's administrator limits the duration of sign-ins, and the sign-in has expired. Ask the user to connect again.",
  no_refresh_token:
    'The access token has expired and there is no refresh token. Ask the user to connect again and to allow access.',
  refresh_reply_lost:
    "The provider's response to a token refresh was lost, and the previous refresh token is no longer valid. Ask the user to connect again.",
  security_event:
    'The provider reported that the account was disabled or signed out, or that its tokens were revoked. Ask the user to secure the account, then to connect again.',
  revoked_by_disconnect:
    'Another connection of the same account was disconnected, and the provider revoked all grants of the account. Ask the user to connect again.',
  blocked_by_admin:
    "The account's administrator does not allow this application. Ask the administrator to allow it. The refresh is retried every day.",
  scopes_refused:
    'The provider no longer grants the client a scope of this connection. Check which scopes the client may request, or ask the user to connect again. The refresh is retried every hour.',
};
const outageNextSteps: Record<OutageCause, string> = {
  provider_not_answering:
    'The provider does not respond to token refreshes. No action is needed: the refresh is retried with increasing delays.',
  settings_refused:
    "The provider accepts the connection's own client, but rejects its token request. Compare the integration's settings with the provider's; if they are correct, ask the user to connect again with a client that may refresh the grant. The refresh is retried with increasing delays.",
};
const reconnectForScopes =
  'The connection lacks scopes that the application requests. Ask the user to connect again and to allow all scopes.';

/** The wire form of a connection's health, the same in all responses. */
export const healthWire = z.object({
  status: z.enum(connectionStatuses),
  /** The status in detail, which the dashboard shows: an active connection may have a fault or missing scopes. */
  state: z.enum(connectionStates),
  /** What the fault belongs to; null without a fault. */
  kind: z.enum(['connection', 'integration', 'transient']).nullable(),
  cause: z.string().nullable(),
  evidence: z.record(z.string(), z.union([z.string(), z.number()])).nullable(),
  since: z.string().nullable(),
  next_step: z.string().nullable(),
  /**
   * The call that creates a link for the user to connect again, which needs the scope `connections:write`. Null if
   * connecting again would not help.
   */
  reconnect: z
    .object({
      method: z.literal('POST'),
      path: z.literal('/connect/sessions/reconnect'),
      body: z.object({
        integration_id: z.string(),
        connection_id: z.string(),
        /** If the rest of the grant works: then only the missing scopes are requested. */
        scopes: z.literal('missing').optional(),
      }),
    })
    .nullable(),
  missing_scopes: z.array(z.string()),
  /** Problems that are expected later. */
  warnings: z.array(
    z.object({
      code: z.string(),
      at: z.string().nullable(),
      evidence: z.record(z.string(), z.union([z.string(), z.number()])),
      next_step: z.string(),
    }),
  ),
});
nameSchemas({ ConnectionHealth: healthWire });
export type HealthWire = z.output<typeof healthWire>;

/** Causes that may end without the user, so that later refreshes may succeed. */
const blocks: ReadonlySet<Cause> = new Set(['blocked_by_admin', 'scopes_refused']);

/** The status that a cause leads to. */
export function statusOf(cause: Cause): Exclude<ConnectionStatus, 'active'> {
  return blocks.has(cause) ? 'blocked' : 'needs_reauth';
}

/** The stored form of a fault. */
export function faultFrom(cause: Cause, { evidence, at }: { evidence: Evidence; at: Date }): Fault {
  return { cause, evidence, since: at.toISOString(), next_step: nextSteps[cause] };
}

/** The outage that begins with a token fault which does not concern the connection itself. */
export function outageFrom(fault: TokenFault, at: Date): Omit<Outage, 'attempts'> {
  const cause = fault.kind === 'client_misconfigured' ? 'settings_refused' : 'provider_not_answering';
  return {
    cause,
    evidence: evidenceOf(fault),
    since: at.toISOString(),
    next_step: outageNextSteps[cause],
  };
}

/** The cause that a token fault proves for the connection; undefined if the fault does not concern the connection. */
export function causeOf(
  fault: TokenFault,
  given: {
    connection: Pick<Connection, 'refreshExpiresAt' | 'grantedAt' | 'credentials' | 'hasOwnClient'>;
    provider: HealthRules | undefined;
    at: Date;
  },
): Cause | undefined {
  const { connection, provider, at } = given;
  const { credentials, hasOwnClient } = connection;
  switch (fault.kind) {
    case 'dead_grant': {
      // With these grant types, the client or the credentials are the only grant.
      const grantType = grantTypeOf(credentials);
      if (grantType === 'own_credentials' || (hasOwnClient && grantType === 'client_credentials'))
        return 'credentials_refused';
      const expiry = expiryOf(connection, provider);
      if (expiry === undefined || expiry.at > at) return 'grant_dead';
      return expiry.cause === 'testing_expiry' ? 'testing_expired' : 'access_time_ended';
    }
    case 'session_policy':
      return 'session_policy';
    case 'blocked_by_admin':
      return 'blocked_by_admin';
    case 'client_misconfigured':
      if (fault.error === 'invalid_scope') return 'scopes_refused';
      // Any other refusal may concern a setting of the integration, and another client would not help.
      if (hasOwnClient && isOfClient(fault)) return 'credentials_refused';
  }
  return undefined;
}

/** The codes of a token fault, without the provider's text. */
export function evidenceOf(fault: TokenFault): Evidence {
  return {
    ...(fault.error !== undefined && { error: fault.error }),
    ...(fault.subtype !== undefined && { subtype: fault.subtype }),
    ...(fault.httpStatus !== undefined && { http_status: fault.httpStatus }),
  };
}

/** Scopes that were requested and not granted, and scopes that an API has reported as missing since. */
export function missingScopesOf(
  connection: Pick<ConnectionHead, 'scopesRequested' | 'scopesGranted' | 'scopesLacking'>,
  provider: Pick<ProviderDefinition, 'scopes'> | undefined,
): string[] {
  const { scopesRequested: wanted, scopesGranted: granted, scopesLacking: lacking = [] } = connection;
  const missing = provider && wanted && granted ? missingScopes(provider, { wanted, granted }) : [];
  return [...new Set([...missing, ...lacking])];
}

/**
 * Warnings of an active connection: its grant will expire, or the provider will soon end the account's oldest grant.
 */
function warningsOf(connection: ConnectionHead, provider: HealthRules | undefined): HealthWire['warnings'] {
  if (connection.status !== 'active') return [];
  const expiry = expiryOf(connection, provider);
  const { tokenSlots: slots } = connection;
  return [
    ...(expiry
      ? [{ code: expiry.cause, at: expiry.at.toISOString(), next_step: expiry.next_step, evidence: {} }]
      : []),
    ...(slots ? [{ code: 'token_slots', at: null, next_step: slotsNextStep(slots), evidence: slots }] : []),
  ];
}

/** Health as callers get it: the most important fault; the connection's own fault comes first. */
export function healthToWire(connection: ConnectionHead, provider: HealthRules | undefined): HealthWire {
  const missing = missingScopesOf(connection, provider);
  const isRestGood = connection.status === 'active' && !isRenewalRefused(connection);
  const reconnect: HealthWire['reconnect'] = {
    method: 'POST',
    path: '/connect/sessions/reconnect',
    body: {
      integration_id: connection.integrationKey,
      connection_id: connection.connectionId,
      ...(isRestGood && { scopes: 'missing' }),
    },
  };
  const fault = mainFault(connection, missing);
  return {
    status: connection.status,
    state: stateOf(connection, fault),
    ...fault,
    reconnect: isReconnectUseful(connection, missing) ? reconnect : null,
    missing_scopes: missing,
    warnings: warningsOf(connection, provider),
  };
}

/** `stateCondition` in `store/list.ts` is the same as SQL: change both. */
function stateOf(
  { status, isUnverified }: ConnectionHead,
  { kind, cause }: Pick<HealthWire, 'kind' | 'cause'>,
): ConnectionState {
  if (status === 'blocked') return 'blocked';
  if (status === 'needs_reauth') return 'reconnect_needed';
  if (kind === 'integration') return 'integration_error';
  if (kind === 'transient') return 'provider_unavailable';
  if (cause !== null) return 'scopes_missing';
  return isUnverified ? 'unverified' : 'healthy';
}

function isReconnectUseful(connection: ConnectionHead, missing: string[]): boolean {
  const { status, fault } = connection;
  if (status === 'blocked') return fault !== undefined && fault.cause !== 'blocked_by_admin';
  return status === 'needs_reauth' || isRenewalRefused(connection) || missing.length > 0;
}

/** The client may not refresh this grant (RFC 6749 §5.2), but may use a new one. */
function isRenewalRefused({ suspension, outage }: ConnectionHead): boolean {
  return suspension !== undefined || outage?.evidence.error === 'unauthorized_client';
}

/**
 * The integration's fault; undefined for a connection with its own client, which belongs to another project at the
 * provider.
 */
function sharedFault({ integrationFault, hasOwnClient }: ConnectionHead): IntegrationFault | undefined {
  return hasOwnClient ? undefined : integrationFault;
}

/** The integration's fault that stops the refreshes of this connection. */
function blockingFault(connection: ConnectionHead): IntegrationFault | undefined {
  const shared = sharedFault(connection);
  return shared !== undefined && keepsFromRefresh(shared) ? shared : connection.suspension;
}

/** The error for a caller of a dead connection; undefined if the connection is active. */
export function refusalOf(connection: LiveConnection): AppError | undefined {
  if (connection.status === 'active') return undefined;
  const code = connection.status === 'blocked' ? 'connection_blocked' : 'connection_needs_reauth';
  const payload = healthToWire(connection, connection.integration.provider);
  return new AppError(code, connection.fault?.next_step, { payload });
}

/** The error for a caller if there are no valid credentials now, and may be after `retryAfterMs`. */
export function delayOf(connection: LiveConnection, retryAfterMs = 30_000): AppError {
  const fault = blockingFault(connection);
  const { outage, integration } = connection;
  const refused = fault ?? (outage?.cause === 'settings_refused' ? outage : undefined);
  return new AppError(fault ? 'integration_misconfigured' : 'connection_refresh_failed', refused?.next_step, {
    retryAfterS: Math.max(1, Math.ceil(retryAfterMs / 1000)),
    payload: fault
      ? healthToWire(connection, integration.provider)
      : { connection_id: connection.connectionId },
  });
}

/** The error says that the connection is dead, not that a retry may help. */
export function isRefusal(error: unknown): error is AppError {
  return (
    error instanceof AppError &&
    (error.code === 'connection_needs_reauth' || error.code === 'connection_blocked')
  );
}

/** The error says that the client may not use this connection's token. */
export function isSuspended(error: AppError): boolean {
  const cause = (error.payload as Partial<HealthWire> | undefined)?.cause;
  return error.code === 'integration_misconfigured' && cause === 'client_not_allowed';
}

function mainFault(
  connection: ConnectionHead,
  missing: string[],
): Pick<HealthWire, 'kind' | 'cause' | 'evidence' | 'since' | 'next_step'> {
  const { fault, outage } = connection;
  const integrationFault = blockingFault(connection) ?? sharedFault(connection);
  if (fault) return { kind: 'connection', ...fault };
  if (integrationFault) return { kind: 'integration', ...integrationFault };
  if (outage) {
    const { attempts, evidence, ...rest } = outage;
    const kind = outage.cause === 'settings_refused' ? 'integration' : 'transient';
    return { kind, ...rest, evidence: { ...evidence, attempts } };
  }
  if (missing.length === 0) return { kind: null, cause: null, evidence: null, since: null, next_step: null };
  const about = { cause: 'scopes_missing', evidence: {}, since: null, next_step: reconnectForScopes };
  return { kind: 'connection', ...about };
}
