import { type Db, first, type Queryable } from '../../db/pool.ts';
import type { RunCounts } from '../context/run-counts.ts';
import type { Definition } from '../deploys/definition.ts';

export type RunKind = 'sync' | 'webhook' | 'action' | 'on_event';
export type Trigger = 'schedule' | 'manual' | 'deploy' | 'webhook' | 'connection' | 'action' | 'resume';

/** The right to run one run, for as long as its lease is renewed. */
export type Claim = {
  readonly id: string;
  readonly owner: string;
  /** By the clock of `performance.now()`: from then on the lease lasts at least its time. */
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
  /** This one: 1 at first. */
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly queuedAt: Date;
  readonly notBefore: Date;
  /** Of the attempt before, where its node was lost. */
  readonly isResumed: boolean;
  /** It was told to end before this claim. */
  readonly isCancelled: boolean;
  /** Sealed. */
  readonly input: Buffer | null;
  /** What it changed until now. */
  readonly counts: RunCounts;
  readonly lastSucceededAt: Date | null;
  /** Of who asked for it, where that was traced. */
  readonly traceparent: string | null;
};

/** How long a node that does not renew keeps its runs; another takes them over within a second after. */
export const leaseMs = 20_000;
/** Connections of one look: then those behind them have their turn. */
const maxLooked = 1_000;
/** Under way at once for one connection, from all nodes together, as near as nodes that claim at once can tell. */
const maxOfConnection = 4;
/**
 * What counts in the choice among connections: priority, and for each run that goes on already so much less, and for each
 * second of waiting so much more. So what waits for long has its turn however much of a higher priority comes.
 */
const [lessPerRun, morePerSecond] = [4, 0.5];

/** Attempts that a row keeps: a run of a day may be taken over any number of times. */
const maxEarlier = 20;

/**
 * SQL: the state of a run that is found by its id or its sync. By `state` the planner might read an index of all runs that
 * wait, or of all that run, which its statistics may take for empty. Only a running run has an owner.
 */
const isWaiting = 'run.owner is null and run.ended_at is null';

type Claiming = { now: Date; max: number; leaseMs?: number };
/** How many runs a node may have under way of one integration, and has, by `integrationOf`. */
export type Share = { max: number; held: ReadonlyMap<string, number> };
const unshared: Share = { max: 1_000, held: new Map() };

/** One of all environments' integrations. */
export const integrationOf = ({
  environmentId,
  integrationKey,
}: {
  environmentId: number;
  integrationKey: string;
}): string => `${environmentId}/${integrationKey}`;

/**
 * Takes over runs whose lease has ended: their node is gone. They go on from their last checkpoint.
 */
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
         -- Where it goes on, the loss of a node costs none of the attempts that an outage has.
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
     ${claimOf('taken')}`,
    [max, owner, lasting / 1000],
  );
  return rows.map((row) => claimFrom(row, { owner, leasedAtMs }));
}

/**
 * Of runs that wait and are due, one a connection: its own with the highest priority, and among connections those with the
 * highest priority first, less where runs of it go on, more where they wait for long; none of connections that have their
 * share under way. Integrations come before that: of two for which runs wait, the one with fewer under way has its turn,
 * so that one whose provider lets through a call a second keeps no other waiting. `after` is where the look begins, `lookOnAfter` where the next one does: so
 * a connection for which ten thousand wait keeps no other from its turn.
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
    ...[now, after, maxLooked, maxOfConnection, max],
    ...[share.max, [...share.held.keys()], [...share.held.values()]],
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
     ${claimOf('taken')}`,
    [ids, owner, lasting / 1000, now],
  );
  return { claims: rows.map((row) => claimFrom(row, { owner, leasedAtMs })), lookOnAfter };
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

type ClaimRow = {
  [K in keyof Claim as K extends 'owner' | 'leasedAtMs' | 'function' | 'connection' ? never : K]: Claim[K];
} & {
  functionId: number;
  functionName: string;
  isEnabled: boolean;
  connectionRow: number;
  connectionId: string;
  integrationKey: string;
};

const claimOf = (taken: string) => `
  select
    ${taken}.id,
    ${taken}.environment_id as "environmentId",
    environment.name as environment,
    function.id as "functionId",
    function.name as "functionName",
    function.is_enabled as "isEnabled",
    version.id as "versionId",
    version.definition,
    connection.id as "connectionRow",
    connection.connection_id as "connectionId",
    integration.key as "integrationKey",
    ${taken}.sync_id as "syncId",
    ${taken}.variant,
    ${taken}.kind,
    ${taken}.trigger,
    ${taken}.attempt,
    ${taken}.most_attempts as "maxAttempts",
    ${taken}.queued_at as "queuedAt",
    ${taken}.not_before as "notBefore",
    ${taken}.is_resumed as "isResumed",
    ${taken}.cancel_requested as "isCancelled",
    ${taken}.input,
    ${taken}.counts,
    sync.last_succeeded_at as "lastSucceededAt",
    ${taken}.traceparent
  from ${taken}
  join environment on environment.id = ${taken}.environment_id
  join function on function.id = ${taken}.function_id
  join function_version version on version.id = ${taken}.version_id
  join connection on connection.id = ${taken}.connection_id
  join integration on integration.id = connection.integration_id
  left join sync on sync.id = ${taken}.sync_id
  order by ${taken}.priority desc, ${taken}.not_before`;

function claimFrom(row: ClaimRow, by: { owner: string; leasedAtMs: number }): Claim {
  const { functionId, functionName, isEnabled, connectionRow, connectionId, integrationKey, ...rest } = row;
  return {
    ...rest,
    ...by,
    function: { id: functionId, name: functionName, isEnabled },
    connection: { id: connectionRow, connectionId, integrationKey },
  };
}

/**
 * A run that another node claimed for this one to run. Undefined where that claim holds no more. From now on its lease is
 * this node's to renew.
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
       ${claimOf('taken')}`,
      [id, owner, lasting / 1000],
    ),
  );
  return row && claimFrom(row, { owner, leasedAtMs });
}

/** Which of these runs are no longer their owner's, and which are to be cancelled. */
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

/** Renews the leases of runs that are still their owner's, and notes what they have changed. */
export async function renewLeases(
  q: Queryable,
  runs: readonly (Pick<Claim, 'id' | 'owner'> & { counts: RunCounts })[],
  lasting: number = leaseMs,
): Promise<string[]> {
  const rows = await q.query<{ id: string }>(
    // One that is being settled or ended just now is passed over: nobody waits for another here.
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

/** Gives a run back, to be claimed by another node at once; the attempt does not count. Nothing where it is another's. */
export async function release(
  q: Queryable,
  { id, owner }: Pick<Claim, 'id' | 'owner'>,
  counts: RunCounts,
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
