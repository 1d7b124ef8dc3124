import type { TokenFault } from '../auth-modes/token-fault.ts';
import type { Connection, ConnectionStatus } from './store.ts';

/**
 * What ails a connection, in types.
 *
 * Owns: causes, what each does to the status, the sentence that says what to do. Does not own: how a token answer
 * is judged (`auth-modes/token-fault.ts`), when a connection is tried (`credentials.ts`).
 */
export type Cause =
  | 'grant_dead'
  | 'testing_expired'
  | 'session_policy'
  | 'no_refresh_token'
  | 'blocked_by_admin';

export type Fault = {
  cause: Cause;
  /** What the provider said: its code and subtype, its status, never a token. */
  evidence: { error?: string; subtype?: string; http_status?: number };
  /** ISO 8601. */
  since: string;
  next_step: string;
};

const nextSteps: Record<Cause, string> = {
  grant_dead:
    'The user revoked the access, or the provider ended it (unused for long, password changed, too many grants). Ask the user to connect again.',
  testing_expired:
    'The provider counts the application as under test, and such grants end after some days. Ask the user to connect again, and publish the application.',
  session_policy:
    "The account's administrator limits how long a sign-in lasts. Ask the user to connect again.",
  no_refresh_token:
    'The access token has expired and there is no refresh token. Ask the user to connect again and to consent.',
  blocked_by_admin:
    "The account's administrator does not allow this application. Ask the administrator to trust it.",
};

/** The wire form of a connection's health. */
export type HealthWire = {
  status: ConnectionStatus;
  cause: Cause | null;
  evidence: Fault['evidence'] | null;
  since: string | null;
  next_step: string | null;
  missing_scopes: string[];
};

/** What a refused refresh does to the connection; undefined where it says nothing about the connection. */
export function diagnose(
  fault: TokenFault,
  { connection, at }: { connection: Connection; at: Date },
): { status: ConnectionStatus; fault: Fault } | undefined {
  const cause = causeOf(fault, { connection, at });
  if (cause === undefined) return undefined;
  return {
    status: cause === 'blocked_by_admin' ? 'blocked' : 'needs_reauth',
    fault: {
      cause,
      evidence: {
        ...(fault.error !== undefined && { error: fault.error }),
        ...(fault.subtype !== undefined && { subtype: fault.subtype }),
        ...(fault.httpStatus !== undefined && { http_status: fault.httpStatus }),
      },
      since: at.toISOString(),
      next_step: nextSteps[cause],
    },
  };
}

/** The fault of a connection whose token has expired and cannot be refreshed. */
export function lacksRefreshToken(at: Date): { status: ConnectionStatus; fault: Fault } {
  const cause = 'no_refresh_token';
  return {
    status: 'needs_reauth',
    fault: { cause, evidence: {}, since: at.toISOString(), next_step: nextSteps[cause] },
  };
}

/** Health as callers see it. */
export function healthToWire(connection: Connection, missingScopes: string[]): HealthWire {
  const { status, fault } = connection;
  return {
    status,
    cause: fault?.cause ?? null,
    evidence: fault?.evidence ?? null,
    since: fault?.since ?? null,
    next_step: fault?.next_step ?? null,
    missing_scopes: missingScopes,
  };
}

function causeOf(
  fault: TokenFault,
  { connection, at }: { connection: Connection; at: Date },
): Cause | undefined {
  const { refreshExpiresAt } = connection;
  if (fault.kind === 'dead_grant') {
    return refreshExpiresAt !== undefined && refreshExpiresAt <= at ? 'testing_expired' : 'grant_dead';
  }
  if (fault.kind === 'session_policy') return 'session_policy';
  if (fault.kind === 'blocked_by_admin') return 'blocked_by_admin';
  return undefined;
}
