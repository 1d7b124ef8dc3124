import type { Db } from '../db/pool.ts';
import { keptMs } from './counts.ts';
import { spansS } from './tally.ts';

const removedAtOnce = 5_000;
/** The sweep runs each minute; an older node that it has found may still write until the next run. */
const untilNextRunS = 120;

/**
 * Runs each minute: removes counts that are older than their span is kept, and those of deleted environments. While a node
 * runs that does not count its entries (`hasOlderNodes`), it moves the time from which counts are complete.
 */
export async function sweepCounts(
  db: Db,
  { now, hasOlderNodes, signal }: { now: Date; hasOlderNodes: boolean; signal: AbortSignal },
): Promise<void> {
  if (hasOlderNodes) {
    await db.query(
      `insert into operation_count_start (environment_id, at)
       select id, clock_timestamp() + make_interval(secs => $1)
       from environment
       on conflict (environment_id) do update set at = excluded.at`,
      [untilNextRunS],
    );
  }
  for (const { environmentId, isThere } of await listCounted(db)) {
    for (const spanS of spansS) {
      // One span more: the edge of a time may lie within it.
      const before = new Date(now.getTime() - keptMs[spanS] - spanS * 1000);
      const of = { environmentId, spanS, before: isThere ? before : undefined };
      while (!signal.aborted && (await removeSome(db, of)) === removedAtOnce);
    }
  }
}

/** Environments that have counts, by steps through the index, and whether they still exist. */
function listCounted(db: Db): Promise<{ environmentId: number; isThere: boolean }[]> {
  return db.query(
    `with recursive counted as (
       (select environment_id from operation_count order by environment_id limit 1)
       union all
       select (
         select operation_count.environment_id
         from operation_count
         where operation_count.environment_id > counted.environment_id
         order by operation_count.environment_id
         limit 1
       )
       from counted
       where counted.environment_id is not null
     )
     select
       environment_id as "environmentId",
       exists (select from environment where id = environment_id) as "isThere"
     from counted
     where environment_id is not null`,
  );
}

/** The oldest, up to `removedAtOnce`; those that a batch is adding to are left to the next run. */
async function removeSome(
  db: Db,
  { environmentId, spanS, before }: { environmentId: number; spanS: number; before: Date | undefined },
): Promise<number> {
  const [removed] = await db.query<{ count: number }>(
    `with old as (
       select ctid
       from operation_count
       where environment_id = $1 and span_s = $2 and begins_at < coalesce($3, 'infinity'::timestamptz)
       order by begins_at
       limit $4
       for update skip locked
     ), removed as (
       delete from operation_count
       where ctid = any(array(select ctid from old))
       returning 1
     )
     select count(*) as count from removed`,
    [environmentId, spanS, before ?? null, removedAtOnce],
  );
  return removed?.count ?? 0;
}
