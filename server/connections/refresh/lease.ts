/**
 * The lease of a refresh: one node at a time may refresh a connection.
 *
 * Owns: the columns `refresh_owner`, `refresh_until`, `refresh_sent_at`, `refresh_failures`, `refresh_not_before`,
 * `renewed_at`, the waits for another node's lease. Does not own: the requests under a lease (`refresh.ts`).
 *
 * A lease is taken in one statement for the maximum duration of the next request, and extended for each further
 * request. After its end another node may send, because the earlier request was answered or given up, also if its
 * node was killed or is frozen. A lease holds no database session. All times are the database's.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { grantTypeOf } from '../../auth-modes/modes.ts';
import { type Db, first, mayPass, type Queryable, type Tx } from '../../db/pool.ts';
import { serviceStops } from '../../http/drain.ts';
import { metrics } from '../../metrics/metrics.ts';
import { mayRefresh } from '../../nodes/nodes.ts';
import type { ProviderDefinition } from '../../providers/definition.ts';
import { delayOf } from '../health/health.ts';
import type { LiveConnection } from '../store/reader.ts';
import type { Connection } from '../store/store.ts';

export type Lease = {
  readonly owner: string;
  /** In `performance.now()`. The holder must have no request under way after it. */
  readonly endsAt: number;
  /**
   * The previous holder neither returned the lease nor stored an answer. It may still run and have the answer in
   * memory.
   */
  readonly isTakenOver: boolean;
  /**
   * Identifies the recorded request by its time: that of the previous holder until `claimLease`. Null when its answer
   * has arrived.
   */
  readonly sentAt: string | null;
  /** The answer to an earlier refresh was lost, so the provider may have invalidated the token. */
  readonly isResponsePending: boolean;
  readonly failures: number;
  readonly keptTokens: Buffer | undefined;
  /** Identifies the grant of the tokens; it changes when the user connects again. */
  readonly grant: string;
};

type LeaseRow = Omit<Lease, 'owner' | 'endsAt' | 'keptTokens'> & { keptTokens: Buffer | null };

/** In microseconds, which a Date cannot hold. */
const grantOf = 'extract(epoch from granted_at)::text';
const sentOf = 'extract(epoch from connection.refresh_sent_at)::text';
const unchanged = (column: string, value: string) =>
  `date_trunc('milliseconds', ${column}) is not distinct from ${value}::timestamptz`;

const versionOf = ({ id, environmentId, credentialsVersion }: Connection) =>
  [id, environmentId, credentialsVersion] as const;

/**
 * Takes the lease and records that a refresh is sent. Does not wait for transactions that hold the connection
 * (`holdConnection`). Undefined if another node has the lease, or if status, credentials or pauses differ from
 * `connection`: after a failure of another node, this node does not try again.
 */
export async function takeLease(
  db: Queryable,
  { connection, forMs }: { connection: Connection; forMs: number },
): Promise<Lease | undefined> {
  const owner = crypto.randomUUID();
  const endsAt = performance.now() + forMs;
  const row = first(
    await db.query<LeaseRow>(
      `with free as (
         select id, refresh_owner, refresh_sent_at
         from connection
         where id = $1
           and environment_id = $2
           and credentials_version = $3
           and status = $6
           and deleted_at is null
           and (refresh_until is null or refresh_until <= clock_timestamp())
           and ${unchanged('refresh_not_before', '$7')}
           and ${unchanged('withheld_until', '$8')}
         for no key update
       )
       update connection
       set refresh_owner = $4,
         refresh_until = clock_timestamp() + make_interval(secs => $5),
         refresh_sent_at = coalesce(free.refresh_sent_at, clock_timestamp())
       from free
       where connection.id = free.id
       returning
         free.refresh_owner is not null and free.refresh_sent_at is not null as "isTakenOver",
         free.refresh_sent_at is not null as "isResponsePending",
         ${sentOf} as "sentAt",
         refresh_failures as failures,
         kept_tokens as "keptTokens",
         ${grantOf} as grant`,
      [
        ...versionOf(connection),
        owner,
        forMs / 1000,
        connection.status,
        connection.refreshNotBefore ?? null,
        connection.suspendedUntil ?? null,
      ],
    ),
  );
  return row && { ...row, owner, endsAt, keptTokens: row.keptTokens ?? undefined };
}

/** A connection, and a lease of it. */
export type Leased = { connection: Connection; lease: Lease };
type Extension = Leased & { forMs: number };

/**
 * Extends the lease to `forMs` from now and reads the kept tokens again. Undefined if the lease has ended, the
 * credentials were replaced, or the connection was deleted.
 */
export function extendLease(db: Queryable, extension: Extension): Promise<Lease | undefined> {
  return extend(db, { ...extension, sentAt: 'refresh_sent_at', isOfDeleted: false });
}

/** As `extendLease`, for a request under way, also if the connection was deleted: then its answer must be revoked. */
export function stretchLease(db: Queryable, extension: Extension): Promise<Lease | undefined> {
  return extend(db, { ...extension, sentAt: 'refresh_sent_at', isOfDeleted: true });
}

/**
 * As `extendLease`, for the first request under a lease that was taken over: an answer of the previous holder no
 * longer counts as the answer to the recorded request.
 */
function claimLease(db: Queryable, extension: Extension): Promise<Lease | undefined> {
  return extend(db, { ...extension, sentAt: 'clock_timestamp()', isOfDeleted: false });
}

async function extend(
  db: Queryable,
  { connection, lease, forMs, sentAt, isOfDeleted }: Extension & { sentAt: string; isOfDeleted: boolean },
): Promise<Lease | undefined> {
  const endsAt = performance.now() + forMs;
  const row = first(
    await db.query<{ keptTokens: Buffer | null; sentAt: string | null }>(
      `update connection
       set refresh_until = clock_timestamp() + make_interval(secs => $5),
         refresh_sent_at = ${sentAt}
       where id = $1
         and environment_id = $2
         and credentials_version = $3
         and refresh_owner = $4
         and refresh_until > clock_timestamp()
         and ($6 or deleted_at is null)
       returning kept_tokens as "keptTokens", ${sentOf} as "sentAt"`,
      [...versionOf(connection), lease.owner, forMs / 1000, isOfDeleted],
    ),
  );
  return row && { ...lease, endsAt, sentAt: row.sentAt, keptTokens: row.keptTokens ?? undefined };
}

/** Returns the lease after a successful refresh. Call it in the transaction that stores the tokens. */
export async function settleLease(
  tx: Tx,
  { connection, lease, keptTokens, at }: Leased & { keptTokens: Buffer | null; at: Date },
): Promise<void> {
  // Another node may have the lease now, with a request under way.
  await tx.query(
    `update connection
     set refresh_owner = case when refresh_owner <> $3 then refresh_owner end,
       refresh_until = case when refresh_owner <> $3 then refresh_until end,
       refresh_sent_at = case when ${sentOf} <> $6 then refresh_sent_at end,
       refresh_failures = 0,
       refresh_not_before = null,
       refreshed_at = $4,
       kept_tokens = $5
     where id = $1 and environment_id = $2`,
    [connection.id, connection.environmentId, lease.owner, at, keptTokens, lease.sentAt],
  );
}

/**
 * Returns the lease after a failed refresh. False if the credentials were replaced since, so that failures and pauses
 * do not apply to them, and if another node has the lease; in the latter case nothing is written. By default,
 * `failures` and `isResponsePending` are those of the lease, and there is no pause.
 */
export async function endLease(
  db: Queryable,
  given: Leased & {
    isResponsePending?: boolean;
    failures?: number | undefined;
    notBefore?: Date | undefined;
  },
): Promise<boolean> {
  const { connection, lease, notBefore } = given;
  const { isResponsePending = lease.isResponsePending, failures = lease.failures } = given;
  const { id, environmentId, credentialsVersion } = connection;
  const [ended] = await db.query<{ isCurrent: boolean }>(
    `update connection
     set refresh_owner = null,
       refresh_until = null,
       refresh_sent_at = case when $4 then refresh_sent_at end,
       refresh_failures = case when credentials_version = $7 then $5 else refresh_failures end,
       refresh_not_before = case when credentials_version = $7 then $6::timestamptz else refresh_not_before end
     where id = $1 and environment_id = $2 and refresh_owner = $3
     returning credentials_version = $7 as "isCurrent"`,
    [id, environmentId, lease.owner, isResponsePending, failures, notBefore ?? null, credentialsVersion],
  );
  return ended?.isCurrent === true;
}

/** Records that the answer to the request of `lease` has arrived, also if another node has the lease now. */
export async function recordAnswer(tx: Tx, { connection, lease }: Leased): Promise<void> {
  await tx.query(
    `update connection
     set refresh_sent_at = null
     where id = $1 and environment_id = $2 and ${sentOf} = $3`,
    [connection.id, connection.environmentId, lease.sentAt],
  );
}

/**
 * Returns a lease under which nothing was sent, if the previous holder has stored its answer. Otherwise the lease
 * expires, and the next node takes it over with the same caution.
 */
async function leaveLease(db: Queryable, { connection, lease }: Leased): Promise<void> {
  await db.query(
    `update connection
     set refresh_owner = null, refresh_until = null
     where id = $1 and environment_id = $2 and refresh_owner = $3 and refresh_sent_at is null`,
    [connection.id, connection.environmentId, lease.owner],
  );
}

/** Records a successful refresh that followed a 401 of the provider's API. */
export async function recordRenewed(
  db: Queryable,
  { connection, at }: { connection: Connection; at: Date },
): Promise<void> {
  await db.query('update connection set renewed_at = $3 where id = $1 and environment_id = $2', [
    connection.id,
    connection.environmentId,
    at,
  ]);
}

const leased = `select from connection
  where id = $1
    and environment_id = $2
    and credentials_version = $3
    and refresh_until > clock_timestamp()`;

/** Whether a node refreshes these credentials now, and the connection was not deleted. */
async function isLeased(db: Queryable, connection: Connection): Promise<boolean> {
  return (await db.query(`${leased} and deleted_at is null`, versionOf(connection))).length > 0;
}

/** Whether a refresh is under way that began before the connection was deleted. */
export async function isLeasedAfterDeletion(db: Queryable, connection: Connection): Promise<boolean> {
  return (await db.query(leased, versionOf(connection))).length > 0;
}

/**
 * Whether the provider replaces refresh tokens, as far as is known. Then a token that is sent twice may end the grant
 * (RFC 9700 §4.14.2), and a lost answer loses the only valid token.
 */
export function replacesTokens({ integration, credentials }: LiveConnection, { keptTokens }: Lease): boolean {
  if (grantTypeOf(credentials) !== 'refresh_token') return false;
  return integration.provider.refresh.rotates || keptTokens !== undefined;
}

type TimeLimited = { integration: { provider: Pick<ProviderDefinition, 'token' | 'login' | 'signature'> } };

/** The time limit of one request in the provider's definition. */
export function limitMsOf({ integration }: TimeLimited): number {
  const { token, login, signature } = integration.provider;
  return (token ?? login ?? signature?.assume_role)?.timeout_ms ?? 0;
}

/** The time limit of a request plus the time to store its answer. */
export function leaseMsOf(connection: TimeLimited, storeMs: number): number {
  return limitMsOf(connection) + storeMs;
}

/** A database that needs longer for one statement does not count as available. */
const promptMs = 1_000;

/**
 * Waits for the refresh of another node. All times are in `performance.now()`. While the service stops, both
 * functions throw `unavailable`: another node refreshes, or this one after its start.
 */
export function createRefreshWait(given: {
  db: Db;
  /** How long a node sends nothing after it took over a lease, at least. */
  storeMs: number;
  /** Ends all waits. */
  stopping: AbortSignal;
}) {
  const { db, storeMs, stopping } = given;
  function throwIfOver(connection: LiveConnection, giveUpAt: number): void {
    if (stopping.aborted) throw serviceStops();
    if (performance.now() > giveUpAt) throw delayOf(connection);
  }

  async function leave(
    connection: LiveConnection,
    { lease, since }: { lease: Lease; since: number },
  ): Promise<undefined> {
    await leaveLease(db, { connection, lease });
    recordWait(connection, since);
    return undefined;
  }

  return {
    /**
     * Resolves when the lease has ended or the credentials were replaced. Throws `connection_refresh_failed` at
     * `giveUpAt`, and `unavailable` if the database is unavailable.
     */
    async untilFree(connection: LiveConnection, giveUpAt: number): Promise<void> {
      const since = performance.now();
      for (const nextPoll = polls(); await isLeased(db, connection); await nextPoll()) {
        throwIfOver(connection, giveUpAt);
      }
      recordWait(connection, since);
    },

    /**
     * Returns the lease. If it was taken over and the provider replaces tokens, first waits until the previous holder
     * had time to store its answer, and no running node still stores one: after an outage of the database longer than the
     * lease, both nodes reach the database again, and that answer must be stored before a second request with the same
     * token. Undefined if the answer was stored, the credentials were replaced, the connection was deleted, or another node
     * has the lease because this one was frozen. Throws `connection_refresh_failed` if that takes until `giveUpAt`.
     */
    async afterHolder(
      lease: Lease,
      { connection, giveUpAt }: { connection: LiveConnection; giveUpAt: number },
    ): Promise<Lease | undefined> {
      if (!lease.isTakenOver || !replacesTokens(connection, lease)) return lease;
      const since = performance.now();
      let availableSince = since;
      const nextPoll = polls();
      const mayBeStored = () =>
        mayRefresh(db, { connection: connection.id, sinceMs: performance.now() - since }).catch(
          unknownIfPassing,
        );
      while (performance.now() - availableSince < storeMs || (await mayBeStored())) {
        throwIfOver(connection, giveUpAt);
        const startedAt = performance.now();
        // Extends the lease only for the wait: if this node stops, the next one need not wait for a whole lease.
        const held = await extendLease(db, { connection, lease, forMs: 2 * storeMs }).catch(unknownIfPassing);
        if (held === undefined) return leave(connection, { lease, since });
        if (held === 'unknown' || performance.now() - startedAt > promptMs)
          availableSince = performance.now();
        await nextPoll();
      }
      const claimed = await claimLease(db, { connection, lease, forMs: leaseMsOf(connection, storeMs) });
      if (claimed === undefined) return leave(connection, { lease, since });
      recordWait(connection, since);
      return claimed;
    },
  };
}

function recordWait({ providerName }: LiveConnection, since: number): void {
  metrics.refreshLeaseWait.observe([providerName], (performance.now() - since) / 1000);
}

/** The result of `work`, which is repeated until the lease ends if the database is unavailable. */
export async function repeatInLease<T>({ endsAt }: Lease, work: () => Promise<T>): Promise<T> {
  for (const nextPoll = polls(); ; await nextPoll()) {
    try {
      return await work();
    } catch (error) {
      if (!mayPass(error) || performance.now() > endsAt) throw error;
    }
  }
}

/** Random pauses between queries, longer each time, up to half a second. */
function polls(): () => Promise<void> {
  let pollMs = 20;
  return async () => {
    await pause(pollMs * (0.75 + Math.random() / 2));
    pollMs = Math.min(pollMs * 1.5, 500);
  };
}

function unknownIfPassing(error: unknown): 'unknown' {
  if (!mayPass(error)) throw error;
  return 'unknown';
}
