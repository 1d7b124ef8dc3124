import type { Db, Queryable } from '../../db/pool.ts';
import type { Job } from '../../jobs/jobs.ts';
import { removeOldRuns } from './runs.ts';
import { bringNearer } from './schedule.ts';
import type { RunError } from './sealed-output.ts';

const dayMs = 86_400_000;
/** So that one run of the job does not hold it for longer than the next one waits. */
const maxRounds = 50;

/**
 * Ends what nobody takes over, which is what judged a connection that there is not; brings back syncs whose time is too far off;
 * removes runs, and what they logged, as old as the activity log is kept; and
 * syncs of connections that are gone, with what they kept for their next run.
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
  return {
    name: 'functions.runs',
    async run() {
      await endLost(db, now());
      await bringNearer(db, now());
      const before = new Date(now().getTime() - keptDays * dayMs);
      for (let round = 0; round < maxRounds; round += 1) {
        if ((await removeOldRuns(db, before)) < 1_000) break;
      }
      await db.query(
        `delete from sync
         using connection
         where connection.id = sync.connection_id and connection.deleted_at is not null`,
      );
      for (const table of ['function_checkpoint', 'function_state']) {
        await db.query(
          `delete from ${table}
           using connection
           where connection.id = ${table}.connection_id and connection.deleted_at is not null`,
        );
      }
      await db.query("delete from function_lock where lease_until < now() - interval '1 day'");
    },
  };
}

async function endLost(q: Queryable, at: Date): Promise<void> {
  const error: RunError = { code: 'function_unavailable', message: 'The node that ran it was lost.' };
  await q.query(
    `update run
     set state = 'failed', owner = null, lease_until = null, ended_at = $1, error = $2
     where connection_id is null and state = 'running' and lease_until <= clock_timestamp()`,
    [at, JSON.stringify(error)],
  );
}
