import { type Activity, noActivity } from '../../activity/writer.ts';
import { type Db, first } from '../../db/pool.ts';
import { queueEvent } from '../../events/outbox.ts';
import type { Job } from '../../jobs/jobs.ts';
import { cursorWriter, type Position } from '../cursor.ts';
import { planByIndexAlone } from '../dataset.ts';
import { queueDatasetEvent } from '../datasets.ts';
import { destroyLeftovers, destroyOrphans } from './destroy.ts';
import {
  addPurges,
  createPace,
  type DueDataset,
  noPurge,
  type PurgeTotals,
  policyOfConnection,
  retainDataset,
} from './retention-steps.ts';

/**
 * Retention: removes payloads and tombstones by age, as a policy says, in small steps.
 *
 * Owns: which datasets are due, stale consumers, and the events. Does not own: the steps (`retention-steps.ts`),
 * policies (`policy.ts`), consumers (`consumers.ts`), the removal of payloads (`prune.ts`), and datasets whose
 * connection is deleted (`destroy.ts`).
 */

/** The background jobs of the record cache. */
export function recordJobs(db: Db, activity = noActivity): Job<Record<string, never>>[] {
  return [
    {
      name: 'records.retention',
      run: (_, signal) => runRetention(db, { now: new Date(), signal, activity }),
    },
    {
      name: 'records.destroy-orphans',
      async run(_, signal) {
        await destroyLeftovers(db, { signal });
        await destroyOrphans(db, { signal });
      },
    },
  ];
}

/**
 * Removes everything that is due at `now`, dataset by dataset, until done or until `signal` aborts; the next call finds
 * the rest. Several nodes may run it at once. Each step is one transaction with its receipt in the audit log. The event
 * `records.retention_done` reports the totals of an environment, also those of a run that was killed before its event.
 * A failure does not stop the other datasets, and is thrown at the end. `clock` returns milliseconds.
 */
export async function runRetention(
  db: Db,
  by: { now: Date; signal?: AbortSignal; clock?: () => number; activity?: Activity },
): Promise<PurgeTotals> {
  const { now, signal, clock = () => performance.now(), activity = noActivity } = by;
  const failures: unknown[] = [];
  const attempt = async <T>(work: Promise<T>, instead: T): Promise<T> =>
    work.catch((error: unknown) => {
      failures.push(error);
      return instead;
    });
  // If this fails, policies wait for those consumers until the next run.
  await attempt(reportStaleConsumers(db, now), 0);
  const pace = createPace();
  let total = noPurge;
  for (const due of await attempt(findDue(db, now), [])) {
    if (signal?.aborted) break;
    total = addPurges(total, await attempt(retainDataset(db, { due, now, signal, pace, clock }), noPurge));
  }
  await attempt(reportTotals(db, activity), undefined);
  if (failures.length > 0)
    throw new AggregateError(failures, 'the retention of some datasets failed; it is retried later');
  return total;
}

/** Finds the datasets whose oldest payload or tombstone is older than their policy allows: two index probes each. */
function findDue(db: Db, now: Date): Promise<DueDataset[]> {
  return db.transaction(async (tx) => {
    await planByIndexAlone(tx);
    return tx.query<DueDataset>(
      `select
       dataset.id,
       dataset.connection,
       dataset.model,
       dataset.variant,
       connection.environment_id as "environmentId",
       integration.key || '/' || connection.connection_id as target
     from connection
     join integration on integration.id = connection.integration_id
     ${policyOfConnection}
     join dataset on dataset.connection = connection.id
     where
       connection.deleted_at is null
       and (
         (
           dataset.pruned < dataset.records + dataset.deleted
           and (
             select last_modified_at
             from record
             where dataset_id = dataset.id and seq >= (
               select seq
               from payload
               where dataset_id = dataset.id and seq > dataset.prune_floor
               order by seq
               limit 1
             )
             order by seq
             limit 1
           ) < $1::timestamptz - make_interval(days => policy.prune_after_days)
         ) or (
           dataset.deleted > 0
           and (
             select last_modified_at
             from record
             where dataset_id = dataset.id and deleted_at is not null
             order by seq
             limit 1
           ) < $1::timestamptz - make_interval(days => policy.remove_tombstones_after_days)
         )
       )
     order by dataset.id`,
      [now],
    );
  });
}

/** A consumer that is silent for longer is stale. */
const staleAfterDays = 30;

/**
 * Raises `consumer.stale` once for each consumer that has been silent for 30 days while changes wait for it. From then
 * on, no policy waits for it until it acknowledges again. A consumer that has taken all changes is not stale, however
 * long ago that was, but the consumer of a quiet dataset should acknowledge its position from time to time.
 */
async function reportStaleConsumers(db: Db, now: Date): Promise<number> {
  return db.transaction(async (tx) => {
    await planByIndexAlone(tx);
    const silentSince = new Date(now.getTime() - staleAfterDays * 86_400_000);
    const silent = await tx.query<{ datasetId: number; name: string }>(
      `select consumer.dataset_id as "datasetId", consumer.name
       from consumer
       join dataset on dataset.id = consumer.dataset_id
       join connection on connection.id = dataset.connection
       where
         connection.deleted_at is null
         and consumer.stale_at is null
         and consumer.acknowledged_at < $1
         and consumer.seq < (select seq from record where dataset_id = dataset.id order by seq desc limit 1)
       order by consumer.id`,
      [silentSince],
    );
    let count = 0;
    for (const { datasetId, name } of silent) {
      const marked = first(
        await tx.query<Position & { acknowledgedAt: Date }>(
          `update consumer
           set stale_at = $3
           where dataset_id = $1 and name = $2 and stale_at is null and acknowledged_at < $4
           returning seq, since, acknowledged_at as "acknowledgedAt"`,
          [datasetId, name, now, silentSince],
        ),
      );
      // Another node has reported it, or it has acknowledged meanwhile.
      if (marked === undefined) continue;
      count += 1;
      const { seq, since, acknowledgedAt } = marked;
      const cursor = seq === 0 ? null : cursorWriter(datasetId, since)(seq);
      const data = { consumer: name, cursor, acknowledged_at: acknowledgedAt.toISOString() };
      await queueDatasetEvent(tx, { datasetId, type: 'consumer.stale', data });
    }
    return count;
  });
}

/** Raises `records.retention_done` in each environment for the totals that were not reported yet, and logs it. */
async function reportTotals(db: Db, activity: Activity): Promise<void> {
  const rows = await db.query<{ environmentId: number }>(
    'select distinct environment_id as "environmentId" from retained',
  );
  for (const { environmentId } of rows) {
    const reported = await db.transaction(async (tx) => {
      const totals = first(
        await tx.query<PurgeTotals & { datasets: number }>(
          `with reported as (
             delete from retained
             where environment_id = $1
             returning payloads, bytes, tombstones
           )
           select
             count(*) as datasets,
             sum(payloads)::bigint as payloads,
             sum(bytes)::bigint as bytes,
             sum(tombstones)::bigint as tombstones
           from reported`,
          [environmentId],
        ),
      );
      // Another node has reported them.
      if (totals === undefined || totals.datasets === 0) return undefined;
      const { datasets, payloads: pruned, bytes, tombstones: tombstones_removed } = totals;
      const details = { datasets, pruned, bytes, tombstones_removed };
      await queueEvent(tx, { environmentId, type: 'records.retention_done', data: details });
      return details;
    });
    if (reported === undefined) continue;
    const operation = { environmentId, type: 'records.retention', actor: 'retention' } as const;
    activity.log({ ...operation, status: 'success', details: reported });
  }
}
