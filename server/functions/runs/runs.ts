/**
 * Runs as callers see them: listed, read, cancelled. Also the job that deletes old ones.
 *
 * This folder owns the tables `run` and `run_line`. Neighbours: `queue.ts` and `schedule.ts` queue runs, `worker.ts` executes
 * them, `settle.ts` ends them.
 */
import { deleteInSteps } from '../../db/delete-in-steps.ts';
import { type Db, first, type Queryable, type Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { Job } from '../../jobs/jobs.ts';
import { lockQueuedActions, queueFailedEvent } from '../action-events.ts';
import { releaseAllLocks } from '../context/locks.ts';
import type { RunCounts } from '../context/service-call.ts';
import type { Kind } from '../deploys/definition.ts';
import type { RunKind, Trigger } from './claims.ts';
import { bringNearer } from './schedule.ts';
import { type RunError, type StoredError, wrappedKeySql } from './sealed-output.ts';
import { cancelled } from './settle.ts';

export const runStates = ['waiting', 'running', 'succeeded', 'failed', 'cancelled'] as const;
export type RunState = (typeof runStates)[number];
export const runKinds = ['sync', 'webhook', 'action', 'on_event'] as const satisfies RunKind[];

export type RunView = {
  id: string;
  integrationKey: string;
  connectionId: string | null;
  accountEmail: string | null;
  function: string;
  version: number;
  kind: RunKind;
  variant: string;
  trigger: Trigger;
  state: RunState;
  isCancelRequested: boolean;
  attempt: number;
  maxAttempts: number;
  queuedAt: Date;
  notBefore: Date;
  startedAt: Date | null;
  endedAt: Date | null;
  error: StoredError | null;
  counts: RunCounts;
  /** The attempts before the last one, oldest first. */
  earlier: EarlierAttempt[];
  /** The key that sealed the log and the error of its code; null if it was destroyed. */
  wrappedKey: Buffer | null;
};

export type EarlierAttempt = { attempt: number; ended_at: string; error: StoredError };

/**
 * Ends the runs of these syncs at once, on any node: their nodes write nothing more. For operations that must not overlap with
 * runs.
 */
export async function endRuns(
  tx: Tx,
  { syncIds, at }: { syncIds: readonly number[]; at: Date },
): Promise<void> {
  const error: RunError = { code: 'cancelled', message: 'The sync was reset.' };
  const ended = await tx.query<{ id: string }>(
    `update run
     set state = 'cancelled', owner = null, lease_until = null, ended_at = $2, error = $3, cancel_requested = true,
       input = null
     from (
       select id
       from run
       where sync_id = any($1) and state in ('waiting', 'running')
       order by id
       for update
     ) as open
     where run.id = open.id
     returning run.id`,
    [syncIds, at, JSON.stringify(error)],
  );
  for (const { id } of ended) await releaseAllLocks(tx, id);
}

/**
 * Cancels a run: at once if it waits; otherwise its node reads the cancellation within half a second. A run that has ended
 * stays as it is. Throws `not_found`.
 */
export async function cancelRun(
  tx: Tx,
  { environmentId, id, at }: { environmentId: number; id: string; at: Date },
): Promise<void> {
  const { error } = cancelled;
  const found = first(
    await tx.query<{ state: RunState }>(
      'select state from run where environment_id = $1 and id = $2 for update',
      [environmentId, id],
    ),
  );
  if (found === undefined) throw new AppError('not_found', 'The run does not exist, or no longer exists.');
  if (found.state === 'waiting') {
    for (const action of await lockQueuedActions(tx, { environmentId, runId: id }))
      await queueFailedEvent(tx, action, error);
  }
  await tx.query(
    found.state === 'waiting'
      ? `update run
         set state = 'cancelled', ended_at = $2, error = $3, cancel_requested = true, input = null
         where id = $1`
      : `update run
         set cancel_requested = true
         where id = $1 and owner is not null and ($2::timestamptz, $3::jsonb) is not null`,
    [id, at, JSON.stringify(error)],
  );
}

/**
 * The `RunView` of the rows that `runs` selects from `run`; `key` is its `wrappedKey`. An index scan for an array reads a block
 * once; a nested loop reads the index again for each run. The offset keeps the planner from a partial index without IDs.
 */
const runViewSql = (runs: string, key = wrappedKeySql) => `
  with run as materialized (${runs}),
  of_function as materialized (
    select function.id, function.name, integration.key as integration
    from function
    join integration on integration.id = function.integration_id
    where function.id = any(array(select function_id from run))
  ),
  of_version as materialized (
    select id, number from function_version where id = any(array(select version_id from run))
  ),
  live as materialized (
    select id, connection_id, account_email
    from (select * from connection where id = any(array(select connection_id from run)) offset 0) as own
    where deleted_at is null
  )
  select
    run.id,
    integration as "integrationKey",
    live.connection_id as "connectionId",
    account_email as "accountEmail",
    function.name as function,
    version.number as version,
    run.kind,
    run.variant,
    run.trigger,
    run.state,
    run.cancel_requested as "isCancelRequested",
    run.attempt,
    run.most_attempts as "maxAttempts",
    run.queued_at as "queuedAt",
    run.not_before as "notBefore",
    run.started_at as "startedAt",
    run.ended_at as "endedAt",
    run.error,
    run.counts,
    run.earlier,
    ${key} as "wrappedKey"
  from run
  join of_function function on function.id = run.function_id
  join of_version version on version.id = run.version_id
  left join live on live.id = run.connection_id`;

/** Throws `not_found`. */
export async function getRun(
  q: Queryable,
  { environmentId, id }: { environmentId: number; id: string },
): Promise<RunView> {
  const found = first(
    await q.query<RunView>(runViewSql('select * from run where environment_id = $1 and id = $2'), [
      environmentId,
      id,
    ]),
  );
  if (found === undefined) throw new AppError('not_found', 'The run does not exist, or no longer exists.');
  return found;
}

export type RunFilter = {
  environmentId: number;
  integrationKey?: string | undefined;
  connectionId?: string | undefined;
  function?: string | undefined;
  /** The kind of the function: functions of different kinds may share a name. */
  functionKind?: Kind | undefined;
  kind?: RunKind | undefined;
  state?: RunState | undefined;
};

/** For more functions than this, a scan of all runs is faster than an index scan for each function. */
const maxApart = 50;

/**
 * The runs before `before` that match the filter, newest first. There may be tens of millions of runs: each list reads an
 * index in its order, and about as many rows as it returns, even if few runs match.
 */
export async function listRuns(
  q: Queryable,
  { before, limit, ...filter }: RunFilter & { before?: string | undefined; limit: number },
): Promise<RunView[]> {
  const functions = await functionIds(q, filter);
  const connections = await connectionIds(q, filter);
  if (functions?.length === 0 || connections?.length === 0) return [];
  const isApart = connections === undefined && functions !== undefined && functions.length <= maxApart;
  return q.query<RunView>(
    `${runViewSql(isApart ? ofEachFunction : ofAll, keyOfErrors)}
     order by run.id desc`,
    [
      filter.environmentId,
      before ?? null,
      filter.kind ?? null,
      filter.state ?? null,
      functions ?? null,
      connections ?? null,
      limit,
    ],
  );
}

/** Most listed runs have no sealed error. */
const keyOfErrors = `case when run.error is not null or run.earlier <> '[]' then ${wrappedKeySql} end`;

const fits = `
  run.environment_id = $1
  and ($2::uuid is null or run.id < $2)
  and ($3::text is null or run.kind = $3)
  and ($4::text is null or run.state = $4)
  and ($5::bigint[] is null or run.function_id = any($5))
  and ($6::bigint[] is null or run.connection_id = any($6))`;

const ofAll = `
  select run.*
  from run
  where ${fits}
  order by run.id desc
  limit $7`;

const ofEachFunction = `
  select newest.*
  from unnest($5::bigint[]) as wanted (function_id)
  cross join lateral (
    select run.*
    from run
    where run.function_id = wanted.function_id and ${fits}
    order by run.id desc
    limit $7
  ) as newest
  order by newest.id desc
  limit $7`;

/** The functions that a filter selects. Undefined: all. */
export async function functionIds(q: Queryable, filter: RunFilter): Promise<number[] | undefined> {
  const { environmentId, integrationKey, function: name, functionKind, kind } = filter;
  if ([integrationKey, name, functionKind, kind].every((given) => given === undefined)) return undefined;
  const rows = await q.query<{ id: number }>(
    `select function.id
     from function
     join integration on integration.id = function.integration_id
     where function.environment_id = $1
       and ($2::text is null or integration.key = $2)
       and ($3::text is null or function.name = $3)
       and ($4::text is null or function.kind = $4)
       and ($5::text is null or function.kind = $5)`,
    [
      environmentId,
      integrationKey ?? null,
      name ?? null,
      functionKind ?? null,
      // Webhooks run syncs.
      kind === 'webhook' ? 'sync' : (kind ?? null),
    ],
  );
  return rows.map(({ id }) => id);
}

/** The connections that a filter selects, without deleted ones. Several integrations may have the ID. Undefined: all. */
export async function connectionIds(
  q: Queryable,
  { environmentId, connectionId }: RunFilter,
): Promise<number[] | undefined> {
  if (connectionId === undefined) return undefined;
  const rows = await q.query<{ id: number }>(
    `select connection.id
     from integration
     join connection on connection.integration_id = integration.id
     where integration.environment_id = $1
       and connection.connection_id = $2
       and connection.deleted_at is null`,
    [environmentId, connectionId],
  );
  return rows.map(({ id }) => id);
}

const dayMs = 86_400_000;
/** The time from `deleted_at` to the commit of a deletion, and the difference of two nodes' clocks, are shorter. */
const maxCommitMs = 3_600_000;
/** Bounds one run of the job, so that it does not delay the next one. */
const maxRounds = 50;

/**
 * Ends lost runs that no node takes over, which are validations of connections that are not stored. Corrects syncs whose next
 * time is too far off. Deletes runs and their logs after `keptDays`, and syncs of deleted connections with their state.
 */
export function runSweepJob({
  db,
  now,
  keptDays,
}: {
  db: Db;
  now: () => Date;
  keptDays: number;
}): Job<Record<string, never>> {
  /** The syncs of connections that were deleted before are gone. Unknown at the start: a node may have stood still. */
  let sweptBefore = new Date(0);
  return {
    name: 'functions.runs',
    async run() {
      const startedAt = now();
      await endLost(db, now());
      await bringNearer(db, now());
      const before = new Date(now().getTime() - keptDays * dayMs);
      for (let round = 0; round < maxRounds; round += 1) {
        if ((await removeOldRuns(db, before)) < 1_000) break;
      }
      const isOfDeleted = (table: string) =>
        `exists (
           select from connection where connection.id = ${table}.connection_id and connection.deleted_at >= $1
         )`;
      for (const [table, where] of [
        // A sync takes its runs along, which may be many.
        ['run', `sync_id in (select id from sync where ${isOfDeleted('sync')})`],
        ['sync', isOfDeleted('sync')],
        ['function_checkpoint', isOfDeleted('function_checkpoint')],
        ['function_state', isOfDeleted('function_state')],
      ] as const)
        await deleteInSteps(db, { table, where, values: [sweptBefore] });
      sweptBefore = new Date(startedAt.getTime() - maxCommitMs);
      await db.query("delete from function_lock where lease_until < now() - interval '1 day'");
    },
  };
}

async function endLost(q: Queryable, at: Date): Promise<void> {
  const error: RunError = { code: 'function_unavailable', message: 'The node of the run was lost.' };
  await q.query(
    `update run
     set state = 'failed', owner = null, lease_until = null, ended_at = $1, error = $2
     where connection_id is null and state = 'running' and lease_until <= clock_timestamp()`,
    [at, JSON.stringify(error)],
  );
}

/** Deletes at most 1000 runs that ended before `before`, and returns their number. */
async function removeOldRuns(q: Queryable, before: Date): Promise<number> {
  const rows = await q.query<{ id: string }>(
    `delete from run
     using (
       select id from run where ended_at < $1 order by ended_at limit 1000 for update skip locked
     ) as old
     where run.id = old.id
     returning run.id`,
    [before],
  );
  return rows.length;
}
