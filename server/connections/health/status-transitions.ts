/**
 * Changes of a connection's status. Each is written in one transaction with its event: once per change, not per
 * attempt.
 *
 * Owns: the columns `status`, `fault` and `outage` of an existing connection. Does not own: the meaning of a fault
 * (`health.ts`), when a refresh is tried (`refresh/`), responses of a provider's API (`observe.ts`), suspended
 * connections (`store/suspension.ts`).
 */
import type { TokenFault } from '../../auth-modes/token-fault.ts';
import type { Db, Queryable, Tx } from '../../db/pool.ts';
import type { AppError } from '../../errors.ts';
import { failuresBeforeEvent } from '../../events/event-types.ts';
import {
  claimProbe,
  clearFault,
  clientFault,
  isOfOneGrant,
  keepsFromRefresh,
  recordFault,
} from '../../integrations/fault.ts';
import type { Logger } from '../../log.ts';
import { type ConnectionReader, type LiveConnection, placeOf } from '../store/reader.ts';
import {
  type Cause,
  type ConnectionHead,
  type ConnectionStatus,
  type Evidence,
  findHead,
  queueConnectionEvent,
} from '../store/store.ts';
import { resume, suspend, suspensionMs } from '../store/suspension.ts';
import {
  causeOf,
  delayOf,
  evidenceOf,
  faultFrom,
  healthToWire,
  outageFrom,
  refusalOf,
  statusOf,
} from './health.ts';

export type StatusTransitions = {
  /**
   * A refresh was refused or failed: determines the cause, writes the change, and returns the error for the caller.
   * Undefined if the credentials or the client were replaced since: then the refusal changes nothing.
   */
  refused(connection: LiveConnection, fault: TokenFault): Promise<AppError | undefined>;
  /** The provider refused the refresh token after the response to an earlier refresh was lost. */
  replyLost(connection: LiveConnection, fault: TokenFault): Promise<AppError | undefined>;
  /** The access token has expired and there is no refresh token. */
  lacksRefreshToken(connection: LiveConnection): Promise<AppError | undefined>;
  /**
   * A refresh failed, and the connection itself was not refused. The third failure in a row queues
   * `connection.refresh_delayed`, once until a refresh succeeds.
   */
  delayed(connection: LiveConnection, fault: TokenFault): Promise<AppError>;
  /**
   * A refresh succeeded. Call it in the transaction that stores the tokens, before any other write of `status`. Makes
   * the connection active, ends a suspension and an outage, clears the integration's fault, and queues
   * `connection.recovered` and `integration.recovered` if an event reported the fault.
   */
  recovered(tx: Tx, connection: LiveConnection): Promise<void>;
  /**
   * The error for a caller if the provider refuses the integration's client, so that no refresh is tried; undefined
   * if a refresh may be tried. At intervals one caller may try it, as the probe.
   */
  blockedByIntegration(connection: LiveConnection): Promise<AppError | undefined>;
};

export type HealthDeps = {
  db: Db;
  log: Logger;
  reader: Pick<ConnectionReader, 'forget' | 'forgetIntegration' | 'reread'>;
  now?: () => Date;
};

export function createStatusTransitions(given: HealthDeps): StatusTransitions {
  const { db, log, reader, now = () => new Date() } = given;
  async function refused(connection: LiveConnection, fault: TokenFault): Promise<AppError | undefined> {
    const cause = causeOf(fault, { connection, provider: connection.integration.provider, at: now() });
    if (cause !== undefined) return endByRejection(connection, { cause, fault });
    // A refusal of a connection's own client does not concern the integration's client.
    if (fault.kind !== 'client_misconfigured' || connection.hasOwnClient) return delayed(connection, fault);
    return isOfOneGrant(fault) ? notAllowed(connection, fault) : misconfigured(connection, fault);
  }

  /** A provider that judges a grant has accepted the client (RFC 6749 §5.2). */
  async function endByRejection(
    connection: LiveConnection,
    { cause, fault }: { cause: Cause; fault: TokenFault },
  ): Promise<AppError | undefined> {
    const { integration } = connection;
    const isProof =
      fault.kind !== 'client_misconfigured' && integration.fault !== undefined && !connection.hasOwnClient;
    const isProven =
      isProof && (await db.transaction((tx) => clearFault(tx, { integration, at: now(), proof: 'client' })));
    if (isProven) reader.forgetIntegration(connection);
    return end(connection, { cause, evidence: evidenceOf(fault) });
  }

  async function end(
    connection: LiveConnection,
    { cause, evidence }: { cause: Cause; evidence: Evidence },
  ): Promise<AppError | undefined> {
    await db.transaction((tx) => endConnection(tx, { connection, cause, evidence, at: now() }));
    const current = await reader.reread(connection);
    return refusalOf(current);
  }

  async function misconfigured(connection: LiveConnection, tokenFault: TokenFault): Promise<AppError> {
    const { integration } = connection;
    const fault = clientFault(tokenFault, { connectionId: connection.connectionId, at: now() });
    const isNews = await db.transaction((tx) => recordFault(tx, { integration, fault }));
    if (isNews) {
      log.error({ integration: integration.key, ...fault.evidence }, 'the provider rejects the OAuth client');
      reader.forgetIntegration(connection);
    }
    const known = isNews ? fault : (connection.integrationFault ?? fault);
    return delayOf({ ...connection, integrationFault: known });
  }

  /** The integration's client may not use this token. Only this connection is suspended. */
  async function notAllowed(
    connection: LiveConnection,
    tokenFault: TokenFault,
  ): Promise<AppError | undefined> {
    const at = now();
    const fault = clientFault(tokenFault, { connectionId: connection.connectionId, at });
    const result = await db.transaction((tx) => suspend(tx, { connection, fault, at }));
    if (result === 'first suspended') {
      log.error(
        { integration: connection.integrationKey, ...fault.evidence },
        'the provider does not allow the OAuth client to use a token',
      );
    }
    const current = await reader.reread(connection);
    const refusal = refusalOf(current);
    if (refusal !== undefined || result === 'outdated') return refusal;
    return delayOf(current, suspensionMs);
  }

  async function delayed(connection: LiveConnection, tokenFault: TokenFault): Promise<AppError> {
    const outage = outageFrom(tokenFault, now());
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
      if (row?.attempts !== failuresBeforeEvent) return;
      const { state } = healthToWire(
        { ...connection, outage: { ...outage, ...row } },
        connection.integration.provider,
      );
      const type = 'connection.refresh_delayed';
      await queueConnectionEvent(tx, connection, { type, state, ...outage, ...row });
    });
    reader.forget(placeOf(connection));
    log.warn(
      {
        connection: connection.connectionId,
        integration: connection.integrationKey,
        kind: tokenFault.kind,
        ...evidenceOf(tokenFault),
      },
      outage.cause === 'settings_refused'
        ? 'a refresh failed: the provider rejected a setting'
        : 'a refresh failed temporarily; it is retried',
    );
    return delayOf({ ...connection, outage: { ...outage, attempts: 1 } }, tokenFault.retryAfterMs);
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
    if (before?.isSuspended) await resume(tx, { ...connection, at });
    // A refusal of a connection's own client does not concern the integration's client.
    if (!connection.hasOwnClient)
      await clearFault(tx, { integration: connection.integration, at, proof: 'client' });
    const attempts = before?.outage?.attempts ?? 0;
    if (before && (before.status !== 'active' || attempts >= failuresBeforeEvent)) {
      const { cause, since } = before.fault ?? before.outage ?? {};
      const current = (await findHead(tx, connection)) ?? connection;
      await queueConnectionEvent(tx, connection, {
        type: 'connection.recovered',
        state: healthToWire(current, connection.integration.provider).state,
        cause: cause ?? null,
        since: since ?? null,
        recovered_at: at.toISOString(),
      });
    }
  }

  async function blockedByIntegration(connection: LiveConnection): Promise<AppError | undefined> {
    const { integration, integrationFault: fault, hasOwnClient } = connection;
    if (hasOwnClient || fault === undefined || !keepsFromRefresh(fault)) return undefined;
    return (await claimProbe(db, { integration, at: now() })) ? undefined : delayOf(connection);
  }

  return {
    refused,
    delayed,
    recovered,
    blockedByIntegration,
    replyLost: (connection, fault) => endByRejection(connection, { cause: 'refresh_reply_lost', fault }),
    lacksRefreshToken: (connection) => end(connection, { cause: 'no_refresh_token', evidence: {} }),
  };
}

/** Causes that do not come from the response to a refresh. */
const externalCauses: ReadonlySet<Cause> = new Set(['security_event', 'revoked_by_disconnect']);

/**
 * Ends the connection for this cause: writes status, fault and event together. Writes nothing and returns false if
 * the connection is already blocked for this cause, needs its user anyway, was deleted, or got other credentials
 * since `connection` was read. A later successful refresh makes the connection active again. If the cause is
 * external, a refresh that is under way does not: it only keeps its token as a previous refresh token.
 */
export async function endConnection(
  tx: Queryable,
  given: { connection: ConnectionHead; cause: Cause; evidence: Evidence; at: Date },
): Promise<boolean> {
  const { connection, cause, evidence, at } = given;
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
      externalCauses.has(cause),
      cause,
    ],
  );
  if (changed === undefined) return false;
  if (changed.isSuspended) await resume(tx, { ...connection, at });
  const { state, reconnect } = healthToWire(
    { ...connection, status, fault, suspension: undefined },
    undefined,
  );
  const type = status === 'blocked' ? 'connection.blocked' : 'connection.needs_reauth';
  await queueConnectionEvent(tx, connection, { type, state, ...fault, reconnect });
  return true;
}
