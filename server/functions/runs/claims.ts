/**
 * Claims runs for a node: the rows of `run` that are due, each with an owner and a lease.
 *
 * Owns: the order in which runs are claimed, the shares of connections and integrations, and the leases. Neighbours:
 * `queue.ts` and `schedule.ts` insert runs, `worker.ts` claims and executes them, `settle.ts` ends them.
 */
import { type Db, first, type Queryable } from '../../db/pool.ts';
import type { RunCounts } from '../context/service-call.ts';
import type { Definition } from '../deploys/definition.ts';

export type RunKind = 'sync' | 'webhook' | 'action' | 'on_event';
export type Trigger = 'schedule' | 'manual' | 'deploy' | 'webhook' | 'connection' | 'action' | 'resume';

/** The right to execute a run, while its lease is renewed. */
export type Claim = {
  readonly id: string;
  readonly owner: string;
  /** By the clock of `performance.now()`: the lease lasts at least its full time from here. */
  readonly leasedAtMs: number;
  readonly environmentId: number;
  readonly environment: string;
  readonly function: { readonly id: number; readonly name: string; readonly isEnabled: boolean };
  readonly versionId: number;
  readonly definition: Definition;
  readonly connection: {
    readonly id: number;
    readonly connectionId: string;
    readonly integrationKey: string;
  };
  readonly syncId: number | null;
  readonly variant: string;
  readonly kind: RunKind;
  readonly trigger: Trigger;
  /** The number of this attempt. The first is 1. */
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly queuedAt: Date;
  readonly notBefore: Date;
  /** It continues the previous attempt, whose node was lost. */
  readonly isResumed: boolean;
  /** It was cancelled before this claim. */
  readonly isCancelled: boolean;
  /** Sealed. */
  readonly input: Buffer | null;
  /** The records that it changed until now. */
  readonly counts: RunCounts;
  readonly lastSucceededAt: Date | null;
  /** The trace of the request that queued it. */
  readonly traceparent: string | null;
};

/** How long a node keeps its runs without renewing them. Another node takes them over within a second after that. */
export const leaseMs = 20_000;
/** The connections that one look examines. The next look continues after them. */
const maxLooked = 1_000;
/** The maximum number of runs under way for one connection, on all nodes together. Concurrent claims may exceed it. */
const maxOfConnection = 4;
/**
 * The weight of a connection's next run: its priority, less for each run under way, more for each second of waiting. So a run
 * that waits long enough gets its turn, however many runs of a higher priority there are.
 */
const [lessPerRun, morePerSecond] = [4, 0.5];

/** The maximum number of attempts that a row keeps: a run that takes a day may be taken over many times. */
const maxEarlier = 20;

/**
 * SQL for the state of a run that is found by its ID or its sync. With `state` the planner might read the index of all
 * waiting or all running runs, which its statistics may show as empty. Only a running run has an owner.
 */
const isWaiting = 'run.owner is null and run.ended_at is null';

type Claiming = { now: Date; max: number; leaseMs?: number };
/** The maximum number of runs under way for one integration on a node, and the present numbers, by `integrationOf`. */
export type Share = { max: number; held: ReadonlyMap<string, number> };
const unshared: Share = { max: 1_000, held: new Map() };

/** Identifies an integration of any environment. */
export const integrationOf = ({
  environmentId,
  integrationKey,
}: {
  environmentId: number;
  integrationKey: string;
}): string => `${environmentId}/${integrationKey}`;

export type Due = {
  /** Whether the lease of a run has ended. */
  isLost: boolean;
  /** Whether a sync is to run once more after its present run. */
  isFollowing: boolean;
  /** Whether the time of a sync has come. */
  isScheduled: boolean;
  /** Whether a run waits, now or for a later time. */
  isWaiting: boolean;
};

/**
 * What a look has to do. The statements that do it take ten times as long as this one, even if they find nothing. Each part
 * reads the first entry of an index, in whose order it sorts: otherwise the planner may read a table whole.
 */
export async function findDue(q: Queryable, now: Date): Promise<Due> {
  const [due] = await q.query<Due>(
    `select
       coalesce(
         (
           select lease_until
           from run
           where state = 'running' and connection_id is not null
           order by lease_until
           limit 1
         ) <= clock_timestamp(),
         false
       ) as "isLost",
       (select sync_id from sync_again order by sync_id limit 1) is not null as "isFollowing",
       coalesce(
         (select next_at from sync where state = 'active' order by next_at limit 1) <= $1,
         false
       ) as "isScheduled",
       (select connection_id from run where state = 'waiting' order by connection_id limit 1) is not null as "isWaiting"`,
    [now],
  );
  if (due === undefined) throw new Error('A statement without a condition had no row.');
  return due;
}

/** Takes over runs whose lease has ended: their node is lost. They continue from their last checkpoint. */
export async function claimLost(db: Db, { max, leaseMs: lasting = leaseMs }: Claiming): Promise<Claim[]> {
  const owner = crypto.randomUUID();
  const leasedAtMs = performance.now();
  const rows = await db.query<ClaimRow>(
    `with lost as (
       select id
       from run
       where state = 'running' and lease_until <= clock_timestamp() and connection_id is not null
       order by lease_until
       limit $1
       for update skip locked
     ), taken as (
       update run
       set owner = $2,
         lease_until = clock_timestamp() + make_interval(secs => $3),
         attempt = attempt + 1,
         -- For a run that continues, a lost node does not count as one of its attempts.
         most_attempts = most_attempts + case when kind in ('sync', 'webhook') then 1 else 0 end,
         earlier = case
           when jsonb_array_length(earlier) < ${maxEarlier} then earlier || jsonb_build_object(
             'attempt', attempt,
             'ended_at', clock_timestamp(),
             'error', jsonb_build_object('code', 'run_lost', 'message', 'Its node is gone, another went on.')
           )
           else earlier
         end
       from lost
       where run.id = lost.id
       returning run.*, true as is_resumed
     )
     ${claimSql}`,
    [max, owner, lasting / 1000],
  );
  return rows.map((row) => ({ ...row, owner, leasedAtMs }));
}

/**
 * Claims due runs, at most one for each connection: the one with the highest priority. Among connections, those with the
 * highest weight come first, and connections with their maximum under way are left out. Integrations come before weights:
 * the integration with fewer runs under way has its turn, so that an integration whose provider accepts one call a second
 * does not delay the others. The look begins after `after`, and the next one after `lookOnAfter`, so ten thousand waiting
 * runs of one connection do not delay other connections.
 */
export async function claimWaiting(
  db: Db,
  {
    now,
    max,
    after,
    leaseMs: lasting = leaseMs,
    share = unshared,
  }: Claiming & { after: number; share?: Share },
): Promise<{ claims: Claim[]; lookOnAfter: number }> {
  const found = await db.query<{ lookOnAfter: number; id: string | null }>(readyRunsSql, [
    now,
    after,
    maxLooked,
    maxOfConnection,
    max,
    share.max,
    [...share.held.keys()],
    [...share.held.values()],
  ]);
  const lookOnAfter = found[0]?.lookOnAfter ?? 0;
  const ids = found.flatMap(({ id }) => id ?? []);
  if (ids.length === 0) return { claims: [], lookOnAfter };
  const owner = crypto.randomUUID();
  const leasedAtMs = performance.now();
  const rows = await db.query<ClaimRow>(
    `with due as (
       select id
       from run
       where id = any($1) and ${isWaiting}
       for update skip locked
     ), taken as (
       update run
       set state = 'running',
         owner = $2,
         lease_until = clock_timestamp() + make_interval(secs => $3),
         attempt = attempt + 1,
         started_at = $4,
         version_id = coalesce(function.version_id, run.version_id)
       from due, function
       where run.id = due.id and function.id = run.function_id
       returning run.*, false as is_resumed
     )
     ${claimSql}`,
    [ids, owner, lasting / 1000, now],
  );
  return { claims: rows.map((row) => ({ ...row, owner, leasedAtMs })), lookOnAfter };
}

const readyRunsSql = `
  with recursive busy (connection_id, nth) as (
    (
      select connection_id, 1
      from run
      where state = 'waiting' and connection_id > $2
      order by connection_id
      limit 1
    )
    union all
    select next.connection_id, busy.nth + 1
    from busy
    cross join lateral (
      select run.connection_id
      from run
      where run.state = 'waiting' and run.connection_id > busy.connection_id
      order by run.connection_id
      limit 1
    ) as next
    where busy.nth < $3
  ), spread as (
    select connection.integration_id, count(*) as runs
    from run
    join connection on connection.id = run.connection_id
    where run.state = 'running'
    group by connection.integration_id
  ), head as (
    select
      first.id,
      connection.integration_id,
      first.priority - ${lessPerRun} * going.runs
        + ${morePerSecond} * extract(epoch from $1::timestamptz - first.not_before) as weight
    from busy
    join connection on connection.id = busy.connection_id
    cross join lateral (
      select run.id, run.priority, run.not_before
      from run
      where run.state = 'waiting' and run.connection_id = busy.connection_id and run.not_before <= $1
      order by run.priority desc, run.not_before
      limit 1
    ) as first
    cross join lateral (
      select count(*) as runs
      from run
      where run.state = 'running' and run.connection_id = busy.connection_id
    ) as going
    where going.runs < $4::bigint
  ), turn as (
    select
      head.id,
      head.integration_id,
      head.weight,
      row_number() over (partition by head.integration_id order by head.weight desc) as nth
    from head
  ), ready as (
    select turn.id
    from turn
    join integration on integration.id = turn.integration_id
    left join spread on spread.integration_id = turn.integration_id
    left join unnest($7::text[], $8::int[]) as held (of, runs)
      on held.of = integration.environment_id || '/' || integration.key
    where turn.nth + coalesce(held.runs, 0) <= $6
    order by turn.nth + coalesce(spread.runs, 0), turn.weight desc
    limit $5
  )
  select looked.last as "lookOnAfter", ready.id
  from (select coalesce(max(connection_id) filter (where nth = $3), 0) as last from busy) as looked
  left join ready on true`;

type ClaimRow = Omit<Claim, 'owner' | 'leasedAtMs'>;

/** Selects the columns of `ClaimRow` for the runs in `taken`. */
const claimSql = `
  select
    taken.id,
    taken.environment_id as "environmentId",
    environment.name as environment,
    jsonb_build_object('id', function.id, 'name', function.name, 'isEnabled', function.is_enabled) as function,
    version.id as "versionId",
    version.definition,
    jsonb_build_object(
      'id', connection.id, 'connectionId', connection.connection_id, 'integrationKey', integration.key
    ) as connection,
    taken.sync_id as "syncId",
    taken.variant,
    taken.kind,
    taken.trigger,
    taken.attempt,
    taken.most_attempts as "maxAttempts",
    taken.queued_at as "queuedAt",
    taken.not_before as "notBefore",
    taken.is_resumed as "isResumed",
    taken.cancel_requested as "isCancelled",
    taken.input,
    taken.counts,
    sync.last_succeeded_at as "lastSucceededAt",
    taken.traceparent
  from taken
  join environment on environment.id = taken.environment_id
  join function on function.id = taken.function_id
  join function_version version on version.id = taken.version_id
  join connection on connection.id = taken.connection_id
  join integration on integration.id = connection.integration_id
  left join sync on sync.id = taken.sync_id
  order by taken.priority desc, taken.not_before`;

/**
 * Continues the claim of another node, which hands the run over. Undefined if that claim is not valid any more. This node
 * renews the lease from now on.
 */
export async function takeClaim(
  q: Queryable,
  { id, owner }: Pick<Claim, 'id' | 'owner'>,
  lasting: number = leaseMs,
): Promise<Claim | undefined> {
  const leasedAtMs = performance.now();
  const row = first(
    await q.query<ClaimRow>(
      `with taken as (
         update run
         set lease_until = clock_timestamp() + make_interval(secs => $3)
         where id = $1 and owner = $2 and lease_until > clock_timestamp()
         returning run.*, false as is_resumed
       )
       ${claimSql}`,
      [id, owner, lasting / 1000],
    ),
  );
  return row && { ...row, owner, leasedAtMs };
}

/** The runs among these that have another owner by now, and those that are cancelled. */
export async function findStopped(
  q: Queryable,
  runs: readonly Pick<Claim, 'id' | 'owner'>[],
): Promise<{ lost: string[]; cancelled: string[] }> {
  const rows = await q.query<{ id: string; owner: string | null; isCancelled: boolean }>(
    'select id, owner, cancel_requested as "isCancelled" from run where id = any($1)',
    [runs.map(({ id }) => id)],
  );
  const known = new Map(rows.map((row) => [row.id, row]));
  return {
    lost: runs.filter(({ id, owner }) => known.get(id)?.owner !== owner).map(({ id }) => id),
    cancelled: rows.filter(({ isCancelled }) => isCancelled).map(({ id }) => id),
  };
}

/** Renews the leases of runs that still have their owner, stores their counts, and returns their IDs. */
export async function renewLeases(
  q: Queryable,
  runs: readonly Pick<Claim, 'id' | 'owner' | 'counts'>[],
  lasting: number = leaseMs,
): Promise<string[]> {
  const rows = await q.query<{ id: string }>(
    // Skips runs that another transaction is ending, without a wait for its locks.
    `with held as (
       select run.id, given.counts
       from unnest($1::uuid[], $2::uuid[], $4::jsonb[]) as given (id, owner, counts)
       join run on run.id = given.id and run.owner = given.owner
       for no key update of run skip locked
     )
     update run
     set lease_until = clock_timestamp() + make_interval(secs => $3), counts = held.counts
     from held
     where run.id = held.id
     returning run.id`,
    [
      runs.map(({ id }) => id),
      runs.map(({ owner }) => owner),
      lasting / 1000,
      runs.map(({ counts }) => JSON.stringify(counts)),
    ],
  );
  return rows.map(({ id }) => id);
}

/** Gives a run back, for another node to claim at once. The attempt does not count. False if the run has another owner. */
export async function release(
  q: Queryable,
  { id, owner, counts }: Pick<Claim, 'id' | 'owner' | 'counts'>,
): Promise<boolean> {
  const row = first(
    await q.query<{ id: string }>(
      `update run
       set state = 'waiting', owner = null, lease_until = null, attempt = attempt - 1, counts = $3
       where id = $1 and owner = $2
       returning id`,
      [id, owner, JSON.stringify(counts)],
    ),
  );
  return row !== undefined;
}
