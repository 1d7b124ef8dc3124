import type { Db } from '../db/pool.ts';
import { queueEvent } from '../events/outbox.ts';
import { cursorWriter } from './cursor.ts';
import { planByIndexAlone } from './dataset.ts';

/** How long a consumer may say nothing. */
const staleAfterDays = 30;

/**
 * Tells once, by `consumer.stale`, of each consumer that has been silent for 30 days and has changes waiting for it;
 * from then on no policy waits for it, until it acknowledges again. One that has taken all there is is not stale,
 * however long ago that is; a follower of a quiet dataset does well to acknowledge its position now and then.
 */
export async function noteStaleConsumers(db: Db, now: Date): Promise<number> {
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
