import type { Db } from '../db/pool.ts';
import type { Job } from '../jobs/jobs.ts';
import { destroyOrphans } from './destroy.ts';
import { runRetention } from './retention.ts';

/** What the record cache does in the background. */
export function recordJobs(db: Db): Job<Record<string, never>>[] {
  return [
    { name: 'records.retention', run: (_, signal) => runRetention(db, { now: new Date(), signal }) },
    { name: 'records.destroy-orphans', run: (_, signal) => destroyOrphans(db, { signal }) },
  ];
}
