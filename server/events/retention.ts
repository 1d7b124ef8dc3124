import type { Db } from '../db/pool.ts';
import type { Job } from '../jobs/jobs.ts';
import { beyondAll } from './feed.ts';

const maxRemovedAtOnce = 1_000;

/**
 * Removes events that are older than `keptDays`, and their remaining deliveries: in the order of their positions up to
 * the first younger event, a thousand in a transaction, until done or until `signal` aborts. Returns the number of
 * events. The environment's `events_removed_to` is the last removed position, so that the feed can report missed events
 * to a reader.
 */
export async function removeOldEvents(
  db: Db,
  { now, keptDays, signal }: { now: Date; keptDays: number; signal: AbortSignal },
): Promise<number> {
  const before = new Date(now.getTime() - keptDays * 86_400_000);
  const environments = await db.query<{ id: number }>(
    `select id
     from environment
     where (
       select created_at
       from event
       where
         (environment_id, position) > (environment.id, 0)
         and (environment_id, position) < (environment.id, ${beyondAll})
       order by environment_id, position
       limit 1
     ) < $1`,
    [before],
  );
  let removed = 0;
  for (const { id } of environments) {
    for (let isMore = true; isMore && !signal.aborted; ) {
      const count = await removeSome(db, { environmentId: id, before });
      removed += count;
      isMore = count === maxRemovedAtOnce;
    }
  }
  return removed;
}

/** Removes only the rows of one range: if two nodes run the job at the same time, the second removes the rest. */
async function removeSome(
  db: Db,
  { environmentId, before }: { environmentId: number; before: Date },
): Promise<number> {
  return db.transaction(async (tx) => {
    const removed = await tx.query<{ position: number }>(
      `with oldest as (
         select position, created_at
         from event
         where (environment_id, position) > ($1, 0) and (environment_id, position) < ($1, ${beyondAll})
         order by environment_id, position
         limit $3
       ), young as (
         select min(position) as position
         from oldest
         where created_at >= $2
       )
       delete from event
       using oldest
       where
         event.position = oldest.position
         and event.environment_id = $1
         and oldest.position < coalesce((select position from young), oldest.position + 1)
       returning event.position`,
      [environmentId, before, maxRemovedAtOnce],
    );
    if (removed.length === 0) return 0;
    const last = Math.max(...removed.map(({ position }) => position));
    await tx.query(
      `update environment
       set events_removed_to = greatest(events_removed_to, $2)
       where id = $1`,
      [environmentId, last],
    );
    return removed.length;
  });
}

export function eventRetentionJob(
  db: Db,
  { keptDays, now }: { keptDays: number; now: () => Date },
): Job<Record<string, never>> {
  return {
    name: 'events.retention',
    run: (_, signal) => removeOldEvents(db, { now: now(), keptDays, signal }),
  };
}
