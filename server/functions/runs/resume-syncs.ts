import type { Tx } from '../../db/pool.ts';
import { queueRuns } from './runs.ts';

/** Errors of runs, and of syncs whose runs do not start, that end when the account is connected again. */
const endedByReconnect = [
  'connection_needs_reauth',
  'connection_blocked',
  'connection_refresh_failed',
  'missing_scopes',
];

/**
 * Of a connection that has new credentials: syncs that were held or whose last run failed because of the connection count
 * as well again, and those that are active run now. Other failures stay.
 */
export async function resumeSyncsOf(
  tx: Tx,
  { connectionId, at }: { connectionId: number; at: Date },
): Promise<void> {
  const resumed = await tx.query<{ id: number; state: 'active' | 'paused' }>(
    `update sync
     set held = null, failures = 0
     from (
       select sync.id
       from sync
       left join lateral (
         select run.error ->> 'code' as code
         from run
         where run.sync_id = sync.id and run.ended_at is not null
         order by run.id desc
         limit 1
       ) as last on sync.failures > 0
       where sync.connection_id = $1 and (sync.held is not null or last.code = any($2))
       order by sync.id
       for no key update of sync
     ) as stopped
     where sync.id = stopped.id
     returning sync.id, sync.state`,
    [connectionId, endedByReconnect],
  );
  const syncIds = resumed.filter(({ state }) => state === 'active').map(({ id }) => id);
  if (syncIds.length > 0) await queueRuns(tx, { syncIds: syncIds.sort((a, b) => a - b), at });
}
