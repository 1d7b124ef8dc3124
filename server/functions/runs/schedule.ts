/**
 * Which syncs there are, and when each runs next.
 *
 * Owns: the table `sync` but for what its runs come to (`settle.ts`). A sync keeps its phase: its times are those that lie a
 * whole number of its frequencies after an offset which a hash of function, connection and variant spreads over the
 * frequency. So 10,000 connections do not start at once, whatever deployed or imported them, and neither a late run nor a
 * restart moves the others.
 */
import { randomUUIDv7 } from 'node:crypto';
import { first, type Queryable, type Tx } from '../../db/pool.ts';

/** The next time of a sync after `after`, as SQL; null where it has no frequency. */
const nextTimeSql = (of: { sync: string; frequency: string; after: string }) => {
  const offset = `(hashtextextended(
    ${of.sync}.function_id || '/' || ${of.sync}.connection_id || '/' || ${of.sync}.variant, 0
  ) & 1048575) / 1048576.0 * ${of.frequency}`;
  const seconds = `extract(epoch from ${of.after})`;
  return `to_timestamp(
    floor((${seconds} - ${offset}) / ${of.frequency}) * ${of.frequency} + ${of.frequency} + ${offset}
  )`;
};

/** Columns of the function that a sync is of, and its frequency in seconds, beside a row named `sync`. */
const ofFunction = `
  join function on function.id = sync.function_id
  join function_version version on version.id = function.version_id`;
const frequencySql = `coalesce(sync.frequency_s, (version.definition ->> 'frequency_s')::integer)`;

/**
 * Makes the syncs of an environment that start by themselves and are not there yet, each with its first time, and moves those
 * that are now to run more often: after a deploy, a roll back, and when a function is switched on.
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
  await hastenSyncs(tx, { environmentId, at });
}

/** Gives active syncs a time that is no further off than their frequency. */
async function hastenSyncs(
  tx: Tx,
  { environmentId, at }: { environmentId: number; at: Date },
): Promise<void> {
  await tx.query(
    `update sync
     set next_at = ${nextTimeSql({ sync: 'sync', frequency: 'idle.frequency', after: '$2::timestamptz' })}
     from (
       select sync.id, ${frequencySql} as frequency
       from sync
       ${ofFunction}
       where function.environment_id = $1
         and sync.state = 'active'
         and (
           sync.next_at is null
           or sync.next_at > $2::timestamptz + make_interval(secs => ${frequencySql})
         )
       order by sync.id
       for no key update of sync
     ) as idle
     where sync.id = idle.id and idle.frequency is not null`,
    [environmentId, at],
  );
}

/** Runs are put off by half a minute where they are tried again, and by no more than some minutes for any other reason. */
const longestPutOff = `interval '1 hour'`;

/**
 * What a node has put off while its clock was ahead: gives active syncs of all environments a time that is no further off than
 * their frequency, and runs that wait for an hour and more their turn. Only where the clocks of this node and of the database
 * both say that they are so far off. To be called now and then.
 */
export async function bringNearer(q: Queryable, now: Date): Promise<void> {
  await q.query(
    `update sync
     set next_at = ${nextTimeSql({ sync: 'sync', frequency: 'far.frequency', after: 'greatest($1::timestamptz, now())' })}
     from (
       select sync.id, ${frequencySql} as frequency
       from sync
       ${ofFunction}
       where sync.state = 'active'
         and sync.next_at > greatest($1::timestamptz, now()) + make_interval(secs => ${frequencySql})
       order by sync.id
       for no key update of sync
     ) as far
     where sync.id = far.id`,
    [now],
  );
  await q.query(
    `update run
     set not_before = least($1::timestamptz, now())
     where state = 'waiting' and not_before > greatest($1::timestamptz, now()) + ${longestPutOff}`,
    [now],
  );
}

/** As `startNewSyncs`, of a connection that was made just now: its syncs run at once, and then in their phase. */
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
     -- A function that is removed meanwhile has none.
     for key share of function
     on conflict on constraint sync_unique do nothing`,
    [connectionId, at],
  );
}

/**
 * Queues a run for each of at most 500 syncs that are due and have none, and sets their next time, also where their
 * function is off for now; answers how many were due. Several nodes share the work.
 */
export async function queueDue(q: Queryable, now: Date): Promise<number> {
  const row = first(
    await q.query<{ due: number }>(queueDueSql, [now, Array.from({ length: maxDue }, () => randomUUIDv7())]),
  );
  return row?.due ?? 0;
}

const maxDue = 500;
/** Of a run of a sync: what failed by an outage is tried twice again, within half a minute or so. */
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

/** Sets a sync's next time in its phase. To be called when its state or its frequency has changed. */
export async function setNextTime(
  tx: Queryable,
  { syncIds, at }: { syncIds: readonly number[]; at: Date },
): Promise<void> {
  await tx.query(
    `update sync
     set next_at = case
       when sync.state = 'active'
       then ${nextTimeSql({ sync: 'sync', frequency: 'known.frequency', after: '$2::timestamptz' })}
     end
     from (
       select sync.id, ${frequencySql} as frequency
       from sync
       ${ofFunction}
       where sync.id = any($1)
     ) as known
     where sync.id = known.id`,
    [syncIds, at],
  );
}
