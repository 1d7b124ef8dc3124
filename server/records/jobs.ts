import { noActivity } from '../activity/writer.ts';
import type { Db } from '../db/pool.ts';
import type { Job } from '../jobs/jobs.ts';
import { destroyOrphans } from './destroy.ts';
import { runRetention } from './retention.ts';

/** What the record cache does in the background. */
export function recordJobs(db: Db, activity = noActivity): Job<Record<string, never>>[] {
  return [
    {
      name: 'records.retention',
      run: (_, signal) => runRetention(db, { now: new Date(), signal, activity }),
    },
    { name: 'records.destroy-orphans', run: (_, signal) => destroyOrphans(db, { signal }) },
  ];
}
