import { type Activity, noActivity } from '../activity/writer.ts';
import type { Db } from '../db/pool.ts';
import { queueEvent } from '../events/outbox.ts';
import { cursorWriter } from './cursor.ts';
import { planByIndexAlone } from './dataset.ts';
import { nothing, type PurgeTotals, sum, tellRetained } from './retained.ts';
import { createPace, type Due, policyOfConnection, retainDataset } from './retention-steps.ts';

/**
 * Retention: removes payloads and tombstones by age, as a policy says, in small steps.
 *
 * Owns: what is due. Does not own: the steps (`retention-steps.ts`), what is told of them (`retained.ts`), policies
 * (`policy.ts`), who follows (`consumers.ts`, `retention.ts`), how a payload goes (`prune.ts`), datasets whose connection
 * is gone (`destroy.ts`), or when it runs (`jobs.ts`).
 */

/**
 * Lets everything go that is due at `now`, dataset by dataset, until done or until `signal` says to stop; the rest is
 * found again by the next call. Several nodes may run it at once. Each step is one transaction with its receipt in
 * the audit log; an environment where something went is told so by `records.retention_done`, also of what a run that
 * was killed has left untold. What fails stops nothing else, and is thrown at the end. `clock` tells milliseconds.
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
  // Where this fails a policy waits for those consumers a little longer.
  await attempt(noteStaleConsumers(db, now), 0);
  const pace = createPace();
  let went = nothing;
  for (const due of await attempt(findDue(db, now), [])) {
    if (signal?.aborted) break;
    went = sum(went, await attempt(retainDataset(db, { due, now, signal, pace, clock }), nothing));
  }
  await attempt(tellRetained(db, activity), undefined);
  if (failures.length > 0) throw new AggregateError(failures, 'retention goes on later where it failed');
  return went;
}

/** Datasets whose oldest payload or oldest tombstone is older than their policy wants: two index probes each. */
function findDue(db: Db, now: Date): Promise<Due[]> {
  return db.transaction(async (tx) => {
    await planByIndexAlone(tx);
    return tx.query<Due>(
      `select
       dataset.id as "datasetId",
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

/** How long a consumer may say nothing. */
const staleAfterDays = 30;

/**
 * Tells once, by `consumer.stale`, of each consumer that has been silent for 30 days and has changes waiting for it;
 * from then on no policy waits for it, until it acknowledges again. One that has taken all there is is not stale,
 * however long ago that is; a follower of a quiet dataset does well to acknowledge its position now and then.
 */
async function noteStaleConsumers(db: Db, now: Date): Promise<number> {
  return db.transaction(async (tx) => {
    await planByIndexAlone(tx);
    const rows = await tx.query<{
      environmentId: number;
      integrationKey: string;
      connectionId: string;
      datasetId: number;
      model: string;
      variant: string;
      name: string;
      seq: number;
      since: number;
      acknowledgedAt: Date;
    }>(
      `update consumer
       set stale_at = $1::timestamptz
       from dataset, connection, integration
       where
         dataset.id = consumer.dataset_id
         and connection.id = dataset.connection
         and integration.id = connection.integration_id
         and connection.deleted_at is null
         and consumer.stale_at is null
         and consumer.acknowledged_at < $1::timestamptz - make_interval(days => $2)
         and consumer.seq < (select seq from record where dataset_id = dataset.id order by seq desc limit 1)
       returning
         connection.environment_id as "environmentId",
         integration.key as "integrationKey",
         connection.connection_id as "connectionId",
         dataset.id as "datasetId",
         dataset.model,
         dataset.variant,
         consumer.name,
         consumer.seq,
         consumer.since,
         consumer.acknowledged_at as "acknowledgedAt"`,
      [now, staleAfterDays],
    );
    for (const row of rows) {
      await queueEvent(tx, {
        environmentId: row.environmentId,
        type: 'consumer.stale',
        data: {
          connection_id: row.connectionId,
          provider_config_key: row.integrationKey,
          model: row.model,
          variant: row.variant,
          consumer: row.name,
          cursor: row.seq === 0 ? null : cursorWriter(row.datasetId, row.since)(row.seq),
          acknowledged_at: row.acknowledgedAt.toISOString(),
        },
      });
    }
    return rows.length;
  });
}
