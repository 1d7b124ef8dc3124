/**
 * Runs as callers see them: queued, looked up, cancelled. The table `run` and the lines of its log.
 *
 * Does not own: who runs them (`claims.ts`, `worker.ts`) and how they end (`settle.ts`).
 */
import { randomUUIDv7 } from 'node:crypto';
import { type Db, first, type Queryable, type Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { currentTraceparent } from '../../tracing/cause.ts';
import { lockLeft, tellFailed } from '../action-over.ts';
import { releaseAllLocks } from '../context/locks.ts';
import type { RunCounts } from '../context/run-counts.ts';
import type { RunKind, Trigger } from './claims.ts';
import { syncAttempts } from './schedule.ts';
import { type RunError, type StoredError, wrappedKeySql } from './sealed-output.ts';
import { cancelled } from './settle.ts';

export const runStates = ['waiting', 'running', 'succeeded', 'failed', 'cancelled'] as const;
export type RunState = (typeof runStates)[number];
export const runKinds = ['sync', 'webhook', 'action', 'on_event'] as const satisfies RunKind[];

export type RunView = {
  id: string;
  integrationKey: string;
  connectionId: string | null;
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
  /** Attempts before the last one, the oldest first. */
  earlier: EarlierAttempt[];
  /** The key of what its code wrote and threw; null where it was destroyed. */
  wrappedKey: Buffer | null;
};

export type EarlierAttempt = { attempt: number; ended_at: string; error: StoredError };

/** What is asked for now comes before what is due by its time. */
const manualPriority = 5;

/**
 * Lets each of these syncs run now: what has changed until this call is seen by a run. One that has none is queued, one that
 * waits is due now. A run that has begun, also where it waits to go on, may have read before the change: another one follows
 * it, one alone however often this is called meanwhile. To be called with the syncs locked, so that no run of theirs ends in
 * between. Answers how many wait by this.
 */
export function queueRuns(
  tx: Tx,
  { syncIds, at }: { syncIds: readonly number[]; at: Date },
): Promise<number> {
  const traceparent = currentTraceparent();
  return queueAsked(tx, { asked: syncIds.map((syncId) => ({ syncId, traceparent })), at });
}

/**
 * Queues at most 500 of the runs that were to follow one that is over by now, however it ended and whatever node ended it. To
 * be called again and again. Several nodes share the work.
 */
export async function queueFollowing(db: Db, at: Date): Promise<void> {
  const found = await db.query<{ id: number }>(
    `select sync.id
     from sync_again as again
     join sync on sync.id = again.sync_id
     join function on function.id = sync.function_id and function.version_id is not null
     join connection on connection.id = sync.connection_id and connection.deleted_at is null
     where not exists (
       select from run
       where sync_id = sync.id and kind = 'sync' and state in ('waiting', 'running') and started_at is not null
     )
     limit ${maxFollowing}`,
  );
  if (found.length === 0) return;
  await db.transaction(async (tx) => {
    const locked = await tx.query<{ id: number }>(
      'select id from sync where id = any($1) order by id for no key update skip locked',
      [found.map(({ id }) => id)],
    );
    // Read again under the lock: another node may have queued it, and a pause may have taken it back.
    const asked = await tx.query<Asked>(
      'select sync_id as "syncId", traceparent from sync_again where sync_id = any($1)',
      [locked.map(({ id }) => id)],
    );
    await queueAsked(tx, { asked, at });
  });
}

const maxFollowing = 500;
type Asked = { syncId: number; traceparent: string | null };

async function queueAsked(tx: Tx, { asked, at }: { asked: readonly Asked[]; at: Date }): Promise<number> {
  const rows = await tx.query<{ syncId: number; hasBegun: boolean }>(
    `insert into run
       (id, environment_id, function_id, version_id, connection_id, sync_id, variant, kind, trigger, priority, most_attempts,
        not_before, queued_at, traceparent)
     select
       given.id, function.environment_id, function.id, function.version_id, sync.connection_id, sync.id, sync.variant, 'sync',
       'manual', $4, ${syncAttempts}, $5, $5, given.traceparent
     from unnest($1::bigint[], $2::uuid[], $3::text[]) as given (sync_id, id, traceparent)
     join sync on sync.id = given.sync_id
     join function on function.id = sync.function_id
     order by sync.id
     on conflict (sync_id) where state in ('waiting', 'running') and kind = 'sync' do update
     set not_before = least(run.not_before, excluded.not_before),
       priority = excluded.priority,
       trigger = excluded.trigger,
       traceparent = excluded.traceparent
     where run.state = 'waiting'
     returning sync_id as "syncId", started_at is not null as "hasBegun"`,
    [
      asked.map(({ syncId }) => syncId),
      asked.map(() => randomUUIDv7()),
      asked.map(({ traceparent }) => traceparent),
      ...[manualPriority, at],
    ],
  );
  const ahead = new Set(rows.filter(({ hasBegun }) => !hasBegun).map(({ syncId }) => syncId));
  const behind = asked.filter(({ syncId }) => !ahead.has(syncId));
  await tx.query('delete from sync_again where sync_id = any($1)', [[...ahead]]);
  await tx.query(
    `insert into sync_again (sync_id, traceparent)
     select given.sync_id, given.traceparent
     from unnest($1::bigint[], $2::text[]) as given (sync_id, traceparent)
     order by given.sync_id
     on conflict (sync_id) do update
     set traceparent = excluded.traceparent`,
    [behind.map(({ syncId }) => syncId), behind.map(({ traceparent }) => traceparent)],
  );
  return rows.length;
}

/**
 * Ends the runs of these syncs at once, on any node: from then on their nodes write nothing more. For operations that must
 * not overlap with them.
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
 * Asks a run to end: at once where it waits, else when its node hears of it, in half a second. Throws `not_found`; what has
 * ended already stays as it is.
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
  if (found === undefined) throw new AppError('not_found', 'There is no such run, or no longer.');
  if (found.state === 'waiting') {
    for (const left of await lockLeft(tx, { environmentId, runId: id })) await tellFailed(tx, left, error);
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

/** Of runs: what a view has, from tables joined to `run`. */
export const runViewSql = `
  select
    run.id,
    integration.key as "integrationKey",
    connection.connection_id as "connectionId",
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
    ${wrappedKeySql} as "wrappedKey"
  from run
  join function on function.id = run.function_id
  join function_version version on version.id = run.version_id
  join integration on integration.id = function.integration_id
  left join lateral (
    select connection_id
    from connection
    where id = run.connection_id and deleted_at is null
    offset 0
  ) as connection on true`;

/** Throws `not_found`. */
export async function getRun(
  q: Queryable,
  { environmentId, id }: { environmentId: number; id: string },
): Promise<RunView> {
  const found = first(
    await q.query<RunView>(`${runViewSql} where run.environment_id = $1 and run.id = $2`, [
      environmentId,
      id,
    ]),
  );
  if (found === undefined) throw new AppError('not_found', 'There is no such run, or no longer.');
  return found;
}

/** Removes what ended before `before`, at most 1000 at a time; how many. */
export async function removeOldRuns(q: Queryable, before: Date): Promise<number> {
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
