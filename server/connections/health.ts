import type { TokenFault } from '../auth-modes/token-fault.ts';
import { AppError } from '../errors.ts';
import { type IntegrationFault, isOfClient, keepsFromRefresh } from '../integrations/fault.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { missingScopes } from '../providers/scopes.ts';
import { expiryOf } from './expiry.ts';
import type { Connection, ConnectionHead, ConnectionStatus } from './store.ts';
import { slotsNextStep } from './token-slots.ts';

/**
 * What ails a connection, in types. Pure.
 *
 * Owns: causes, what each does to the status, the sentence that says what to do, the wire form. Does not own: how a
 * token answer is judged (`auth-modes/token-fault.ts`), faults of an integration (`integrations/fault.ts`, and
 * `suspension.ts` where only some connections show it), when a change is written (`status-transitions.ts`).
 */
export type Cause =
  | 'grant_dead'
  | 'credentials_refused'
  | 'testing_expired'
  | 'access_time_ended'
  | 'session_policy'
  | 'no_refresh_token'
  | 'refresh_reply_lost'
  | 'security_event'
  | 'revoked_by_disconnect'
  | 'blocked_by_admin'
  | 'scopes_refused';

/** The part of a provider's definition that health is told by. */
type HealthRules = Pick<ProviderDefinition, 'scopes' | 'refresh_token_lifetime'>;

/** What the provider said: its codes and its status, never a token and never its text. */
export type Evidence = Record<string, string | number>;

export type Fault = {
  cause: Cause;
  evidence: Evidence;
  /** ISO 8601. */
  since: string;
  next_step: string;
};

/**
 * Refreshes that brought no token and ended nothing, one after the other: they got no judgement, or a setting was refused
 * to a connection with a client of its own.
 */
export type Outage = Omit<Fault, 'cause'> & { cause: OutageCause; attempts: number };
type OutageCause = 'provider_not_answering' | 'settings_refused';

const nextSteps: Record<Cause, string> = {
  grant_dead:
    'The user revoked the access, or the provider ended it (unused for long, password changed, too many grants). Ask the user to connect again.',
  credentials_refused:
    "The provider refuses the connection's own client. Ask the user to connect again with a client ID and secret that work.",
  testing_expired:
    'The provider counts the application as under test, and such grants end after some days. Ask the user to connect again, and publish the application.',
  access_time_ended: 'The user gave access for a time only, and it is over. Ask the user to connect again.',
  session_policy:
    "The account's administrator limits how long a sign-in lasts. Ask the user to connect again.",
  no_refresh_token:
    'The access token has expired and there is no refresh token. Ask the user to connect again and to consent.',
  refresh_reply_lost:
    "The provider's answer to a refresh was lost on its way, and with it the only token it would take. Ask the user to connect again.",
  security_event:
    'The provider reported that the account was disabled, signed out or had its tokens revoked. Ask the user to secure the account, then to connect again.',
  revoked_by_disconnect:
    'Another connection of the same account was disconnected, and the provider ended all of them with it. Ask the user to connect again.',
  blocked_by_admin:
    "The account's administrator does not allow this application. Ask the administrator to trust it; it is tried again every day.",
  scopes_refused:
    'The provider no longer gives the client a scope of this grant. Check which scopes the client may ask for, or ask the user to connect again. It is tried again every hour.',
};
const nextStepsMeanwhile: Record<OutageCause, string> = {
  provider_not_answering:
    'The provider does not answer refreshes. Nothing needs to be done: it is tried again with growing pauses.',
  settings_refused:
    "The provider refuses what the connection's own client asks for, not that client as such. Compare the integration's settings with the provider's; where they are right, ask the user to connect again with a client that may renew the grant. It is tried again with growing pauses.",
};
const widen =
  'The connection lacks scopes that the application asks for. Ask the user to connect again and to allow all of them.';

/** Something that will matter later. */
type Warning = { code: string; at: string | null; evidence: Evidence; next_step: string };

/** The call that makes a link by which the user connects again; it needs the scope `connections:write`. */
type ReconnectCall = {
  method: 'POST';
  path: '/connect/sessions/reconnect';
  /** `scopes` where the rest of the grant is well: only those that are missing are asked for. */
  body: { integration_id: string; connection_id: string; scopes?: 'missing' };
};

/** The wire form of a connection's health, the same wherever it is shown. */
export type HealthWire = {
  status: ConnectionStatus;
  /** Whose fault it is; null where there is none. */
  kind: 'connection' | 'integration' | 'transient' | null;
  cause: string | null;
  evidence: Evidence | null;
  since: string | null;
  next_step: string | null;
  /** Null where connecting again would not help. */
  reconnect: ReconnectCall | null;
  missing_scopes: string[];
  warnings: Warning[];
};

/** What somebody else than the user may mend, so that trying again makes sense. */
const blocks: ReadonlySet<Cause> = new Set(['blocked_by_admin', 'scopes_refused']);

/** The state that a cause leads to. */
export function statusOf(cause: Cause): Exclude<ConnectionStatus, 'active'> {
  return blocks.has(cause) ? 'blocked' : 'needs_reauth';
}

/** A fault as it is stored. */
export function faultFrom(cause: Cause, { evidence, at }: { evidence: Evidence; at: Date }): Fault {
  return { cause, evidence, since: at.toISOString(), next_step: nextSteps[cause] };
}

/** A spell without tokens as it begins, for a fault that says nothing of the connection. */
export function outageFrom(fault: TokenFault, at: Date): Omit<Outage, 'attempts'> {
  const cause = fault.kind === 'client_misconfigured' ? 'settings_refused' : 'provider_not_answering';
  return {
    cause,
    evidence: evidenceOf(fault),
    since: at.toISOString(),
    next_step: nextStepsMeanwhile[cause],
  };
}

/** What a token fault says about the connection; undefined where it says nothing about it. */
export function causeOf(
  fault: TokenFault,
  {
    connection,
    provider,
    at,
  }: {
    connection: Pick<Connection, 'refreshExpiresAt' | 'grantedAt' | 'credentials' | 'hasOwnClient'>;
    provider: HealthRules | undefined;
    at: Date;
  },
): Cause | undefined {
  const { credentials, hasOwnClient } = connection;
  switch (fault.kind) {
    case 'dead_grant': {
      // Beside a client there is no grant in the mode of client credentials.
      if (hasOwnClient && credentials.type === 'OAUTH2_CC') return 'credentials_refused';
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
      // What else is refused may be a setting of the integration, which no other client would mend.
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

/** Scopes that were asked for and not granted, and those that an API has missed since. */
export function missingScopesOf(
  connection: Pick<ConnectionHead, 'scopesRequested' | 'scopesGranted' | 'scopesLacking'>,
  provider: Pick<ProviderDefinition, 'scopes'> | undefined,
): string[] {
  const { scopesRequested: wanted, scopesGranted: granted, scopesLacking: lacking = [] } = connection;
  const missing = provider && wanted && granted ? missingScopes(provider, { wanted, granted }) : [];
  return [...new Set([...missing, ...lacking])];
}

/** What will matter later: the day on which the grant ends, and that the provider will soon drop the oldest. */
function warningsOf(connection: ConnectionHead, provider: HealthRules | undefined): Warning[] {
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

/** Health as callers see it: the fault that matters most, the connection's own first. */
export function healthToWire(connection: ConnectionHead, provider: HealthRules | undefined): HealthWire {
  const { status, fault, outage } = connection;
  const missing = missingScopesOf(connection, provider);
  const reconnect: ReconnectCall = {
    method: 'POST',
    path: '/connect/sessions/reconnect',
    body: {
      integration_id: connection.integrationKey,
      connection_id: connection.connectionId,
      ...(status === 'active' && !isRenewalRefused(connection) && { scopes: 'missing' }),
    },
  };
  const integrationFault = keepingFault(connection) ?? sharedFault(connection);
  const found = worst({ fault, integrationFault, outage, missing });
  return {
    status,
    kind: found?.kind ?? null,
    cause: found?.cause ?? null,
    evidence: found?.evidence ?? null,
    since: found?.since ?? null,
    next_step: found?.next_step ?? null,
    reconnect: isReconnectUseful(connection, missing) ? reconnect : null,
    missing_scopes: missing,
    warnings: warningsOf(connection, provider),
  };
}

function isReconnectUseful(connection: ConnectionHead, missing: string[]): boolean {
  const { status, fault } = connection;
  if (status === 'blocked') return fault !== undefined && fault.cause !== 'blocked_by_admin';
  return status === 'needs_reauth' || isRenewalRefused(connection) || missing.length > 0;
}

/** Whether the client may not renew this grant (RFC 6749 §5.2), but may use one that is given to it. */
function isRenewalRefused({ suspension, outage }: ConnectionHead): boolean {
  return suspension !== undefined || outage?.evidence.error === 'unauthorized_client';
}

/** The integration's fault; none of a connection's with a client, and so a project at the provider, of its own. */
function sharedFault({ integrationFault, hasOwnClient }: ConnectionHead): IntegrationFault | undefined {
  return hasOwnClient ? undefined : integrationFault;
}

/** The fault of the integration that keeps this connection from refreshes, if one does. */
function keepingFault(connection: ConnectionHead): IntegrationFault | undefined {
  const shared = sharedFault(connection);
  return shared !== undefined && keepsFromRefresh(shared) ? shared : connection.suspension;
}

/** What a call on behalf of a dead connection is told; undefined where it is not known to be dead. */
export function refusalOf(
  connection: ConnectionHead,
  provider: HealthRules | undefined,
): AppError | undefined {
  if (connection.status === 'active') return undefined;
  const code = connection.status === 'blocked' ? 'connection_blocked' : 'connection_needs_reauth';
  return new AppError(code, connection.fault?.next_step, { payload: healthToWire(connection, provider) });
}

/** What a call is told where there are no credentials for now, but may be after `retryAfterMs`. */
export function delayOf(
  connection: ConnectionHead,
  { provider, retryAfterMs = 30_000 }: { provider: HealthRules; retryAfterMs?: number | undefined },
): AppError {
  const fault = keepingFault(connection);
  const { outage } = connection;
  const refused = fault ?? (outage?.cause === 'settings_refused' ? outage : undefined);
  return new AppError(fault ? 'integration_misconfigured' : 'connection_refresh_failed', refused?.next_step, {
    retryAfterS: Math.max(1, Math.ceil(retryAfterMs / 1000)),
    payload: fault ? healthToWire(connection, provider) : { connection_id: connection.connectionId },
  });
}

/** Whether an error says that the connection itself is dead, not that this is a bad moment. */
export function isRefusal(error: unknown): error is AppError {
  return (
    error instanceof AppError &&
    (error.code === 'connection_needs_reauth' || error.code === 'connection_blocked')
  );
}

/** Whether an error says that the client may not use this connection's token. */
export function isSuspended(error: AppError): boolean {
  const cause = (error.payload as Partial<HealthWire> | undefined)?.cause;
  return error.code === 'integration_misconfigured' && cause === 'client_not_allowed';
}

type Found = Pick<HealthWire, 'kind' | 'cause' | 'evidence' | 'since' | 'next_step'>;

function worst({
  fault,
  integrationFault,
  outage,
  missing,
}: {
  fault: Fault | undefined;
  integrationFault: IntegrationFault | undefined;
  outage: Outage | undefined;
  missing: string[];
}): Found | undefined {
  if (fault) return { kind: 'connection', ...fault };
  if (integrationFault) return { kind: 'integration', ...integrationFault };
  if (outage) {
    const { attempts, evidence, ...rest } = outage;
    const kind = outage.cause === 'settings_refused' ? 'integration' : 'transient';
    return { kind, ...rest, evidence: { ...evidence, attempts } };
  }
  if (missing.length === 0) return undefined;
  return { kind: 'connection', cause: 'scopes_missing', evidence: {}, since: null, next_step: widen };
}
