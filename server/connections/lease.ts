import { first, type Queryable, type Tx } from '../db/pool.ts';
import type { Connection } from './store.ts';

/**
 * The right to refresh a connection: one node at a time, noted on the connection's row.
 *
 * Owns: the columns `refresh_owner`, `refresh_until`, `refresh_sent_at`, `refresh_failures`, `refresh_not_before`,
 * `renewed_at`. Does not own: what is sent under a lease (`refresh.ts`).
 *
 * A lease is taken in one statement, for as long as the request that follows may be under way, and extended for each
 * further request. So a node that finds the lease ended may send: the earlier request has been answered or given up,
 * also if its node was killed or stands still. No database session is held meanwhile. All times are the database's.
 */
export type Lease = {
  readonly owner: string;
  /** By `performance.now()`: the holder must not have a request under way after it. */
  readonly endsAt: number;
  /** Whether the holder before neither gave it back nor stored its answer. It lives perhaps, with that in hand. */
  readonly isTakenOver: boolean;
  /** Which request is noted, by its time: that of the holder before until `claimLease`. Null once its answer has come. */
  readonly sentAt: string | null;
  /** Whether the answer to an earlier refresh was lost, so that the provider may have taken the token for good. */
  readonly isResponsePending: boolean;
  readonly failures: number;
  readonly keptTokens: Buffer | undefined;
  /** Which grant the tokens belong to; it changes when the connection is connected again. */
  readonly grant: string;
};

type Row = {
  isTakenOver: boolean;
  sentAt: string | null;
  isResponsePending: boolean;
  failures: number;
  keptTokens: Buffer | null;
  grant: string;
};

/** To the microsecond, which a Date does not hold. */
const grantOf = 'extract(epoch from granted_at)::text';
const sentOf = 'extract(epoch from connection.refresh_sent_at)::text';
const asSeen = (column: string, value: string) =>
  `date_trunc('milliseconds', ${column}) is not distinct from ${value}::timestamptz`;

/**
 * Takes the lease and notes that a refresh is being sent; does not wait for those who write the connection's records
 * (`holdConnection`). Undefined where another node holds it, or status, credentials or pauses are no longer those of
 * `connection`: who read it before another node's attempt failed makes none.
 */
export async function takeLease(
  db: Queryable,
  { connection, forMs }: { connection: Connection; forMs: number },
): Promise<Lease | undefined> {
  const owner = crypto.randomUUID();
  const endsAt = performance.now() + forMs;
  const row = first(
    await db.query<Row>(
      `with free as (
         select id, refresh_owner, refresh_sent_at
         from connection
         where id = $1
           and environment_id = $2
           and credentials_version = $3
           and status = $6
           and deleted_at is null
           and (refresh_until is null or refresh_until <= clock_timestamp())
           and ${asSeen('refresh_not_before', '$7')}
           and ${asSeen('withheld_until', '$8')}
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
        ...[connection.id, connection.environmentId, connection.credentialsVersion, owner, forMs / 1000],
        ...[connection.status, connection.refreshNotBefore ?? null, connection.suspendedUntil ?? null],
      ],
    ),
  );
  return row && { ...row, owner, endsAt, keptTokens: row.keptTokens ?? undefined };
}

type Extension = { connection: Connection; lease: Lease; forMs: number };

/**
 * The lease for `forMs` from now, with the tokens that are kept by now. Undefined where it has ended, the credentials
 * were replaced meanwhile, or the connection was deleted.
 */
export function extendLease(db: Queryable, extension: Extension): Promise<Lease | undefined> {
  return extend(db, { ...extension, sentAt: 'refresh_sent_at', isOfDeleted: false });
}

/** As `extendLease`, for a request under way: what it brings has to be revoked where the connection was deleted. */
export function stretchLease(db: Queryable, extension: Extension): Promise<Lease | undefined> {
  return extend(db, { ...extension, sentAt: 'refresh_sent_at', isOfDeleted: true });
}

/**
 * As `extendLease`, of one that was taken over, for a first request of one's own: an answer that the holder before
 * stores from now on does not settle that.
 */
export function claimLease(db: Queryable, extension: Extension): Promise<Lease | undefined> {
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
      [
        ...[
          connection.id,
          connection.environmentId,
          connection.credentialsVersion,
          lease.owner,
          forMs / 1000,
        ],
        isOfDeleted,
      ],
    ),
  );
  return row && { ...lease, endsAt, sentAt: row.sentAt, keptTokens: row.keptTokens ?? undefined };
}

/** Gives the lease back after a refresh that succeeded, in the transaction that stores its tokens. */
export async function settleLease(
  tx: Tx,
  {
    connection,
    lease,
    keptTokens,
    at,
  }: { connection: Connection; lease: Lease; keptTokens: Buffer | null; at: Date },
): Promise<void> {
  // By now the lease may be another's, whose request is perhaps under way.
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
 * Gives the lease back after a refresh that did not succeed. False where the credentials have been replaced since it was
 * taken, so that failures and pauses are none of theirs, and where it is another's by now, and nothing happens.
 */
export async function endLease(
  db: Queryable,
  {
    connection,
    lease,
    isResponsePending,
    failures,
    notBefore,
  }: {
    connection: Connection;
    lease: Lease;
    isResponsePending: boolean;
    failures: number;
    notBefore: Date | undefined;
  },
): Promise<boolean> {
  const [ended] = await db.query<{ isCurrent: boolean }>(
    `update connection
     set refresh_owner = null,
       refresh_until = null,
       refresh_sent_at = case when $4 then refresh_sent_at end,
       refresh_failures = case when credentials_version = $7 then $5 else refresh_failures end,
       refresh_not_before = case when credentials_version = $7 then $6::timestamptz else refresh_not_before end
     where id = $1 and environment_id = $2 and refresh_owner = $3
     returning credentials_version = $7 as "isCurrent"`,
    [
      ...[
        connection.id,
        connection.environmentId,
        lease.owner,
        isResponsePending,
        failures,
        notBefore ?? null,
      ],
      connection.credentialsVersion,
    ],
  );
  return ended?.isCurrent === true;
}

/** Notes that the answer to the request of `lease` has come, also if another node holds the lease by now. */
export async function noteAnswered(
  tx: Tx,
  { connection, lease }: { connection: Connection; lease: Lease },
): Promise<void> {
  await tx.query(
    `update connection
     set refresh_sent_at = null
     where id = $1 and environment_id = $2 and ${sentOf} = $3`,
    [connection.id, connection.environmentId, lease.sentAt],
  );
}

/**
 * Gives back a lease under which nothing was sent, if the previous holder has stored its answer. Otherwise the lease
 * ends on time, so that the next node takes it over in turn.
 */
export async function leaveLease(
  db: Queryable,
  { connection, lease }: { connection: Connection; lease: Lease },
): Promise<void> {
  await db.query(
    `update connection
     set refresh_owner = null, refresh_until = null
     where id = $1 and environment_id = $2 and refresh_owner = $3 and refresh_sent_at is null`,
    [connection.id, connection.environmentId, lease.owner],
  );
}

/** Notes that a refresh succeeded that was made because the API refused an access token. */
export async function noteRenewed(
  db: Queryable,
  { connection, at }: { connection: Connection; at: Date },
): Promise<void> {
  await db.query('update connection set renewed_at = $3 where id = $1 and environment_id = $2', [
    ...[connection.id, connection.environmentId],
    at,
  ]);
}

const leased = `select from connection
  where id = $1
    and environment_id = $2
    and credentials_version = $3
    and refresh_until > clock_timestamp()`;

/** Whether another node refreshes these very credentials at the moment, and the connection is there still. */
export async function isLeased(db: Queryable, connection: Connection): Promise<boolean> {
  return isFound(db, { text: `${leased} and deleted_at is null`, connection });
}

/** Whether a refresh that began before the connection was deleted is under way still. */
export async function isLeasedAfterEnd(db: Queryable, connection: Connection): Promise<boolean> {
  return isFound(db, { text: leased, connection });
}

async function isFound(
  db: Queryable,
  { text, connection: { id, environmentId, credentialsVersion } }: { text: string; connection: Connection },
): Promise<boolean> {
  return (await db.query(text, [id, environmentId, credentialsVersion])).length > 0;
}
