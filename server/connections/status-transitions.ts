import type { TokenFault } from '../auth-modes/token-fault.ts';
import type { Db, Queryable, Tx } from '../db/pool.ts';
import type { AppError } from '../errors.ts';
import { queueEvent } from '../events/outbox.ts';
import { clientFault, isOfOneGrant, noteMisconfigured, noteProven } from '../integrations/fault.ts';
import { mayTry } from '../integrations/probes.ts';
import type { Logger } from '../log.ts';
import { connectionEvent } from './event.ts';
import {
  type Cause,
  causeOf,
  delayOf,
  type Evidence,
  evidenceOf,
  faultFrom,
  healthToWire,
  outageFrom,
  refusalOf,
  statusOf,
} from './health.ts';
import { type ConnectionReader, type LiveConnection, placeOf } from './reader.ts';
import type { ConnectionHead, ConnectionStatus } from './store.ts';
import { resume, suspend, suspensionMs } from './suspension.ts';

/**
 * Changes of state, each written in one transaction with its event: once per change, never per attempt.
 *
 * Owns: the columns `status`, `fault` and `outage` of a connection once it exists. Does not own: what a fault means
 * (`health.ts`), when a refresh is tried (`credentials.ts`), what an API's answer says (`observe.ts`), connections that
 * are held back for a fault of their integration (`suspension.ts`).
 */
export type StatusTransitions = {
  /**
   * A refused or failed refresh: judges it, writes what follows, and answers the error for the caller. Undefined where
   * other credentials, or another client, came in between: the refusal changes nothing, and is none for the caller.
   */
  refused(connection: LiveConnection, fault: TokenFault): Promise<AppError | undefined>;
  /** The refresh token was refused after the reply to an earlier refresh was lost. */
  replyLost(connection: LiveConnection, fault: TokenFault): Promise<AppError | undefined>;
  /** The access token has expired and nothing can renew it. */
  lacksRefreshToken(connection: LiveConnection): Promise<AppError | undefined>;
  /** A refresh ended nothing. The third in a row raises `connection.refresh_delayed`, once until one succeeds. */
  delayed(connection: LiveConnection, fault: TokenFault): Promise<AppError>;
  /**
   * A refresh succeeded. Call it in the transaction that stores the tokens, before anything else writes `status`: it
   * makes the connection active and holds it back no more, ends an outage, clears the integration's fault, and raises
   * `connection.recovered` and `integration.recovered` where somebody was told of the fault.
   */
  recovered(tx: Tx, connection: LiveConnection): Promise<void>;
  /**
   * What to tell a caller instead of trying a refresh, because the provider refuses the integration's client;
   * undefined where it may be tried. The one caller in many who may try is the probe.
   */
  heldBack(connection: LiveConnection): Promise<AppError | undefined>;
};

/** Attempts that ended nothing before the application hears of it. */
const attemptsBeforeWord = 3;

export function createStatusTransitions({
  db,
  log,
  reader,
  now = () => new Date(),
}: {
  db: Db;
  log: Logger;
  reader: Pick<ConnectionReader, 'forget' | 'forgetIntegration' | 'reread'>;
  now?: () => Date;
}): StatusTransitions {
  async function refused(connection: LiveConnection, fault: TokenFault): Promise<AppError | undefined> {
    const cause = causeOf(fault, { connection, provider: connection.integration.provider, at: now() });
    if (cause !== undefined) return endByVerdict(connection, { cause, fault });
    // What is said to such a client is no mark of the integration, whose own may be told something else.
    if (fault.kind !== 'client_misconfigured' || connection.hasOwnClient) return delayed(connection, fault);
    return isOfOneGrant(fault) ? notAllowed(connection, fault) : misconfigured(connection, fault);
  }

  /** RFC 6749 §5.2: who judges a grant has accepted the client. */
  async function endByVerdict(
    connection: LiveConnection,
    { cause, fault }: { cause: Cause; fault: TokenFault },
  ): Promise<AppError | undefined> {
    const { integration } = connection;
    const isProof =
      fault.kind !== 'client_misconfigured' && integration.fault !== undefined && !connection.hasOwnClient;
    const isProven =
      isProof && (await db.transaction((tx) => noteProven(tx, { integration, at: now(), proof: 'client' })));
    if (isProven) reader.forgetIntegration(connection);
    return end(connection, { cause, evidence: evidenceOf(fault) });
  }

  async function end(
    connection: LiveConnection,
    { cause, evidence }: { cause: Cause; evidence: Evidence },
  ): Promise<AppError | undefined> {
    await db.transaction((tx) => endConnection(tx, { connection, cause, evidence, at: now() }));
    const current = await reader.reread(connection);
    return refusalOf(current, current.integration.provider);
  }

  async function misconfigured(connection: LiveConnection, told: TokenFault): Promise<AppError> {
    const { integration } = connection;
    const fault = clientFault(told, { connectionId: connection.connectionId, at: now() });
    const isNews = await db.transaction((tx) => noteMisconfigured(tx, { integration, fault }));
    if (isNews) {
      log.error({ integration: integration.key, ...fault.evidence }, 'the provider refuses the client');
      reader.forgetIntegration(connection);
    }
    const known = isNews ? fault : (connection.integrationFault ?? fault);
    return delay({ ...connection, integrationFault: known });
  }

  /** The client may not use this token: of the integration, but no other connection need wait for it. */
  async function notAllowed(connection: LiveConnection, told: TokenFault): Promise<AppError | undefined> {
    const at = now();
    const fault = clientFault(told, { connectionId: connection.connectionId, at });
    const came = await db.transaction((tx) => suspend(tx, { connection, fault, at }));
    if (came === 'first suspended') {
      log.error(
        { integration: connection.integrationKey, ...fault.evidence },
        'the provider does not let the client use a token',
      );
    }
    const current = await reader.reread(connection);
    const refusal = refusalOf(current, current.integration.provider);
    if (refusal !== undefined || came === 'outdated') return refusal;
    return delay(current, { retryAfterMs: suspensionMs });
  }

  async function delayed(connection: LiveConnection, told: TokenFault): Promise<AppError> {
    const outage = outageFrom(told, now());
    await db.transaction(async (tx) => {
      const [row] = await tx.query<{ attempts: number; since: string }>(
        `update connection
         set outage = $3::jsonb || jsonb_build_object(
           'since', coalesce(outage->>'since', $3::jsonb->>'since'),
           'attempts', coalesce((outage->>'attempts')::integer, 0) + 1
         )
         where id = $1 and environment_id = $2 and credentials_version = $4 and deleted_at is null
         returning (outage->>'attempts')::integer as attempts, outage->>'since' as since`,
        [connection.id, connection.environmentId, JSON.stringify(outage), connection.credentialsVersion],
      );
      if (row?.attempts !== attemptsBeforeWord) return;
      await queueEvent(tx, {
        environmentId: connection.environmentId,
        type: 'connection.refresh_delayed',
        data: { ...connectionEvent(connection), ...outage, ...row },
      });
    });
    reader.forget(placeOf(connection));
    log.warn(
      {
        connection: connection.connectionId,
        integration: connection.integrationKey,
        kind: told.kind,
        ...evidenceOf(told),
      },
      outage.cause === 'settings_refused' ? 'a refresh was refused a setting' : 'a refresh got no judgement',
    );
    return delay({ ...connection, outage: { ...outage, attempts: 1 } }, told);
  }

  async function recovered(tx: Tx, connection: LiveConnection): Promise<void> {
    const at = now();
    const [before] = await tx.query<{
      status: ConnectionStatus;
      fault: ConnectionHead['fault'] | null;
      outage: NonNullable<ConnectionHead['outage']> | null;
      isSuspended: boolean;
    }>(
      `with known as (
         select id, status, fault, outage, withheld is not null as is_withheld
         from connection
         where id = $1
           and environment_id = $2
           and deleted_at is null
           and (status <> 'active' or outage is not null or withheld is not null)
         for no key update
       )
       update connection
       set status = 'active', fault = null, outage = null, withheld = null, withheld_until = null
       from known
       where connection.id = known.id
       returning known.status, known.fault, known.outage, known.is_withheld as "isSuspended"`,
      [connection.id, connection.environmentId],
    );
    const isKnown = before !== undefined && (before.status !== 'active' || wasTold(before.outage));
    if (isKnown) {
      const { cause, since } = before.fault ?? before.outage ?? {};
      await queueEvent(tx, {
        environmentId: connection.environmentId,
        type: 'connection.recovered',
        data: {
          ...connectionEvent(connection),
          cause: cause ?? null,
          since: since ?? null,
          recovered_at: at.toISOString(),
        },
      });
    }
    if (before?.isSuspended) await resume(tx, { ...connection, at });
    // What the provider says of such a client says nothing of the integration's.
    if (connection.hasOwnClient) return;
    await noteProven(tx, { integration: connection.integration, at, proof: 'client' });
  }

  async function heldBack(connection: LiveConnection): Promise<AppError | undefined> {
    if (connection.hasOwnClient) return undefined;
    const { integration, integrationFault: fault } = connection;
    const mayGo = await mayTry(db, { integration, fault, at: now() });
    if (fault === undefined || mayGo) return undefined;
    return delay({ ...connection, integrationFault: fault });
  }

  return {
    refused,
    delayed,
    recovered,
    heldBack,
    replyLost: (connection, fault) => endByVerdict(connection, { cause: 'refresh_reply_lost', fault }),
    lacksRefreshToken: (connection) => end(connection, { cause: 'no_refresh_token', evidence: {} }),
  };
}

/** Causes that somebody else reports than the answer to a refresh. */
const reported: ReadonlySet<Cause> = new Set(['security_event', 'revoked_by_disconnect']);

/**
 * The connection is over, for this cause: writes status, fault and event together. False, and nothing is written,
 * where it is blocked for this cause already, needs its user anyway, was deleted, or got other credentials since
 * `connection` was read. A refresh that succeeds after its verdict brings it back to life, but one that is under way when the end
 * is reported does not: its token is only kept.
 */
export async function endConnection(
  tx: Queryable,
  {
    connection,
    cause,
    evidence,
    at,
  }: { connection: ConnectionHead; cause: Cause; evidence: Evidence; at: Date },
): Promise<boolean> {
  const status = statusOf(cause);
  const fault = faultFrom(cause, { evidence, at });
  const [changed] = await tx.query<{ isSuspended: boolean }>(
    `with known as (
       select id, withheld is not null as is_withheld
       from connection
       where id = $1
         and environment_id = $2
         and credentials_version = $3
         and status <> 'needs_reauth'
         and (status <> $4 or fault->>'cause' is distinct from $8)
         and deleted_at is null
       for no key update
     )
     update connection
     set status = $4, fault = $5, outage = null, withheld = null, withheld_until = null, updated_at = $6,
       credentials_version = credentials_version + case when $7 then 1 else 0 end
     from known
     where connection.id = known.id
     returning known.is_withheld as "isSuspended"`,
    [
      connection.id,
      connection.environmentId,
      connection.credentialsVersion,
      status,
      JSON.stringify(fault),
      at,
      reported.has(cause),
      cause,
    ],
  );
  if (changed === undefined) return false;
  if (changed.isSuspended) await resume(tx, { ...connection, at });
  const { reconnect } = healthToWire({ ...connection, status, fault, suspension: undefined }, undefined);
  await queueEvent(tx, {
    environmentId: connection.environmentId,
    type: status === 'blocked' ? 'connection.blocked' : 'connection.needs_reauth',
    data: { ...connectionEvent(connection), ...fault, reconnect },
  });
  return true;
}

/** There are no credentials for now. */
function delay(connection: LiveConnection, { retryAfterMs }: { retryAfterMs?: number } = {}): AppError {
  return delayOf(connection, { provider: connection.integration.provider, retryAfterMs });
}

function wasTold(outage: ConnectionHead['outage'] | null): boolean {
  return outage !== undefined && outage !== null && outage.attempts >= attemptsBeforeWord;
}
