/**
 * The schedule: which syncs exist, and when each runs next.
 *
 * Owns: the table `sync`, except for the outcomes of runs (`settle.ts`). A sync keeps its phase: each of its times is a whole
 * number of frequencies after an offset, and a hash of function, connection and variant spreads the offsets over the
 * frequency. So 10,000 connections do not start at once after a deploy or an import, and neither a late run nor a restart
 * moves the other syncs.
 */
import { randomUUIDv7 } from 'node:crypto';
import { first, type Queryable, type Tx } from '../../db/pool.ts';

/** SQL for the next time of a sync after `after`; null if it has no frequency. */
const nextTimeSql = (of: { sync: string; frequency: string; after: string }) => {
  const offset = `(hashtextextended(
    ${of.sync}.function_id || '/' || ${of.sync}.connection_id || '/' || ${of.sync}.variant, 0
  ) & 1048575) / 1048576.0 * ${of.frequency}`;
  const seconds = `extract(epoch from ${of.after})`;
  return `to_timestamp(
    floor((${seconds} - ${offset}) / ${of.frequency}) * ${of.frequency} + ${of.frequency} + ${offset}
  )`;
};

/** SQL for the function of a row named `sync`, and its frequency in seconds. */
const ofFunction = `
  join function on function.id = sync.function_id
  join function_version version on version.id = function.version_id`;
const frequencySql = `coalesce(sync.frequency_s, (version.definition ->> 'frequency_s')::integer)`;

/** SQL that sets the next time of the syncs that match `where` to the first one after `after`; to null if paused. */
const setNextTimeSql = ({ where, after }: { where: string; after: string }) => `
  update sync
  set next_at = case
    when sync.state = 'active' then ${nextTimeSql({ sync: 'sync', frequency: 'found.frequency', after })}
  end
  from (
    select sync.id, ${frequencySql} as frequency
    from sync
    ${ofFunction}
    where ${where}
    order by sync.id
    for no key update of sync
  ) as found
  where sync.id = found.id`;

/**
 * Creates the missing syncs of functions with `auto_start` in an environment, each with its first time, and moves the syncs
 * that must run more often now. Called after a deploy, a rollback, and when a function is switched on.
 */
export async function startNewSyncs(
  tx: Tx,
  { environmentId, at }: { environmentId: number; at: Date },
): Promise<void> {
  await tx.query(
    `insert into sync (function_id, connection_id, next_at)
     select new.function_id, new.connection_id, ${nextTimeSql({ sync: 'new', frequency: 'new.frequency', after: '$2::timestamptz' })}
     from (
       select
         function.id as function_id,
         connection.id as connection_id,
         'base' as variant,
         (version.definition ->> 'frequency_s')::integer as frequency
       from function
       join function_version version on version.id = function.version_id
       join connection on connection.integration_id = function.integration_id and connection.deleted_at is null
       where function.environment_id = $1
         and function.kind = 'sync'
         and function.is_enabled
         and (version.definition ->> 'auto_start')::boolean
     ) as new
     on conflict on constraint sync_unique do nothing`,
    [environmentId, at],
  );
  const hastenSql = setNextTimeSql({
    where: `
      function.environment_id = $1
      and sync.state = 'active'
      and ${frequencySql} is not null
      and (sync.next_at is null or sync.next_at > $2::timestamptz + make_interval(secs => ${frequencySql}))`,
    after: '$2::timestamptz',
  });
  await tx.query(hastenSql, [environmentId, at]);
}

/** Longer than every delay: half a minute before another attempt, and some minutes for other reasons. */
const longestDelay = `interval '1 hour'`;

/**
 * Corrects times that a node set while its clock was ahead: of active syncs whose next time is further off than their
 * frequency, and of runs that wait for an hour or more. Only if they are that far off by the clock of this node and by the
 * clock of the database. A job calls this periodically.
 */
export async function bringNearer(q: Queryable, now: Date): Promise<void> {
  const after = 'greatest($1::timestamptz, now())';
  const isTooFar = `sync.state = 'active' and sync.next_at > ${after} + make_interval(secs => ${frequencySql})`;
  // Indexes find the few: by function, whose frequency bounds the times, and those with a frequency of their own.
  const found = `
    select apart.id
    from function
    join function_version version on version.id = function.version_id
    cross join lateral (
      select id
      from sync
      where function_id = function.id
        and frequency_s is null
        and next_at > ${after} + make_interval(secs => (version.definition ->> 'frequency_s')::integer)
      offset 0
    ) as apart
    union all
    select id from sync where frequency_s is not null and next_at > ${after}`;
  const where = `sync.id = any(array(${found})) and ${isTooFar}`;
  await q.query(setNextTimeSql({ where, after }), [now]);
  await q.query(
    `update run
     set not_before = least($1::timestamptz, now())
     where state = 'waiting' and not_before > greatest($1::timestamptz, now()) + ${longestDelay}`,
    [now],
  );
}

/** As `startNewSyncs`, for a new connection: its syncs run at once, and then in their phase. */
export async function startSyncsOf(
  tx: Queryable,
  { connectionId, at }: { connectionId: number; at: Date },
): Promise<void> {
  await tx.query(
    `insert into sync (function_id, connection_id, next_at)
     select function.id, connection.id, $2
     from connection
     join function on function.integration_id = connection.integration_id
     join function_version version on version.id = function.version_id
     where connection.id = $1
       and connection.deleted_at is null
       and function.kind = 'sync'
       and function.is_enabled
       and (version.definition ->> 'auto_start')::boolean
     -- A function that is removed meanwhile gets no sync.
     for key share of function
     on conflict on constraint sync_unique do nothing`,
    [connectionId, at],
  );
}

/**
 * Queues a run for each of at most 500 due syncs without a run, and sets their next time, even if their function is switched
 * off. Returns the number of due syncs. Nodes share the work.
 */
export async function queueDue(q: Queryable, now: Date): Promise<number> {
  const row = first(
    await q.query<{ due: number }>(queueDueSql, [now, Array.from({ length: maxDue }, () => randomUUIDv7())]),
  );
  return row?.due ?? 0;
}

const maxDue = 500;
/** The attempts of a sync's run: two more after temporary failures, within some 30 s. */
export const syncAttempts = 3;

const queueDueSql = `
  with due as (
    select sync.*
    from sync
    where state = 'active' and next_at <= $1
    order by next_at
    limit ${maxDue}
    for update skip locked
  ), known as (
    select
      sync.id,
      sync.function_id,
      sync.connection_id,
      sync.variant,
      sync.next_at,
      function.environment_id,
      function.version_id,
      function.is_enabled,
      ${frequencySql} as frequency,
      row_number() over () as nth
    from due as sync
    ${ofFunction}
    join connection on connection.id = sync.connection_id and connection.deleted_at is null
  ), queued as (
    insert into run
      (id, environment_id, function_id, version_id, connection_id, sync_id, variant, kind, trigger, most_attempts, not_before,
        queued_at)
    select
      ($2::uuid[])[nth], environment_id, function_id, version_id, connection_id, id, variant, 'sync', 'schedule', ${syncAttempts},
      next_at, $1
    from known
    where is_enabled
    on conflict (sync_id) where state in ('waiting', 'running') and kind = 'sync' do nothing
  ), moved as (
    update sync
    set next_at = (
      select ${nextTimeSql({ sync: 'known', frequency: 'known.frequency', after: '$1::timestamptz' })}
      from known
      where known.id = sync.id
    )
    from due
    where sync.id = due.id
  )
  select count(*)::integer as due from due`;

/** Sets the next time of syncs in their phase. Call it when their state or frequency has changed. */
export async function setNextTime(
  tx: Queryable,
  { syncIds, at }: { syncIds: readonly number[]; at: Date },
): Promise<void> {
  await tx.query(setNextTimeSql({ where: 'sync.id = any($1)', after: '$2::timestamptz' }), [syncIds, at]);
}
