/** Locks of a run, by name within its environment, until it releases them, ends, or their time is over. */
import type { Queryable, Tx } from '../../db/pool.ts';

type Lock = { environmentId: number; runId: string; key: string };

/** Whether the run has the lock now; for its holder, the time is extended. A run that has ended or was deleted holds none. */
export async function acquireLock(
  tx: Tx,
  { environmentId, runId, key, ttlMs }: Lock & { ttlMs: number },
): Promise<boolean> {
  const rows = await tx.query(
    `insert into function_lock (environment_id, key, run_id, lease_until)
     values ($1, $2, $3, clock_timestamp() + make_interval(secs => $4))
     on conflict on constraint function_lock_pkey do update
     set run_id = excluded.run_id, lease_until = excluded.lease_until
     where function_lock.run_id = excluded.run_id
       or function_lock.lease_until <= clock_timestamp()
       or not exists (
         select from run where run.id = function_lock.run_id and run.state in ('waiting', 'running')
       )
     returning key`,
    [environmentId, key, runId, ttlMs / 1000],
  );
  return rows.length > 0;
}

/** Whether the run had the lock. */
export async function releaseLock(q: Queryable, { environmentId, runId, key }: Lock): Promise<boolean> {
  const rows = await q.query(
    'delete from function_lock where environment_id = $1 and run_id = $2 and key = $3 returning key',
    [environmentId, runId, key],
  );
  return rows.length > 0;
}

export async function releaseAllLocks(q: Queryable, runId: string): Promise<void> {
  await q.query('delete from function_lock where run_id = $1', [runId]);
}
