import type { Queryable } from '../db/pool.ts';
import { firstProbeS, type IntegrationFault, type IntegrationRef, keepsFromRefresh } from './fault.ts';

/**
 * How slowly a refused client is tried again: by one refresh of one of its connections, on all nodes together, at
 * intervals that grow from a minute to an hour.
 *
 * Owns: the columns `probes` and `probe_at` once a fault is there. Does not own: the fault (`fault.ts`), the refresh
 * (`connections/probe.ts`).
 */

const longestProbeS = 3600;
/** Doublings after which the interval grows no more; `probes` itself goes on, beyond what a power can hold. */
const maxDoublings = 10;

/** Later than the longest interval: written by a clock that is wrong. */
const isDue = (now: string) =>
  `(probe_at <= ${now} or probe_at > ${now}::timestamptz + make_interval(secs => ${2 * longestProbeS}))`;

/** Whether a refresh may be tried: always where the fault does not keep from it, else for the one that probes now. */
export async function mayTry(
  db: Queryable,
  { integration, fault, at }: { integration: IntegrationRef; fault: IntegrationFault | undefined; at: Date },
): Promise<boolean> {
  if (fault === undefined || !keepsFromRefresh(fault)) return true;
  return claimProbe(db, { integration, at });
}

/** Whether this is the one to probe now; the next may only after a longer interval than before. */
export async function claimProbe(
  db: Queryable,
  { integration, at }: { integration: Pick<IntegrationRef, 'id' | 'environmentId'>; at: Date },
): Promise<boolean> {
  const claimed = await db.query(
    `update integration
     set probes = probes + 1,
       probe_at = $3::timestamptz + make_interval(secs => least($4 * 2 ^ least(probes + 1, $6), $5))
     where id = $1
       and environment_id = $2
       and ${isDue('$3')}
     returning id`,
    [integration.id, integration.environmentId, at, firstProbeS, longestProbeS, maxDoublings],
  );
  return claimed.length > 0;
}

/** `probes` tells how many have gone before. */
export type DueProbe = IntegrationRef & { fault: IntegrationFault; probes: number };

/** Integrations whose client is to be probed, of all environments, the longest overdue first. */
export async function listDueProbes(
  db: Queryable,
  { at, isSandboxOn, limit }: { at: Date; isSandboxOn: boolean; limit: number },
): Promise<DueProbe[]> {
  return db.query<DueProbe>(
    `select id, environment_id as "environmentId", key, is_test as "isTest", fault, probes,
       jsonb_build_object('name', provider) as provider
     from integration
     where ${isDue('$1')}
       and fault is not null
       and ($2 or not is_test)
     order by probe_at
     limit $3`,
    [at, isSandboxOn, limit],
  );
}
