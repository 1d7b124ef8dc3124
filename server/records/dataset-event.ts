import { first, type Tx } from '../db/pool.ts';
import { type EventType, queueEvent } from '../events/outbox.ts';

/** Writes an event about a dataset, which says whose it is; none where its connection is gone. */
export async function queueDatasetEvent(
  tx: Tx,
  event: { datasetId: number; type: EventType; data: Record<string, unknown> },
): Promise<void> {
  const rows = await tx.query<{ environmentId: number; of: Record<string, string> }>(
    `select
       connection.environment_id as "environmentId",
       json_build_object(
         'connection_id', connection.connection_id,
         'provider_config_key', integration.key,
         'model', dataset.model,
         'variant', dataset.variant
       ) as of
     from dataset
     join connection on connection.id = dataset.connection
     join integration on integration.id = connection.integration_id
     where dataset.id = $1 and connection.deleted_at is null`,
    [event.datasetId],
  );
  const owner = first(rows);
  if (owner === undefined) return;
  const { environmentId, of } = owner;
  await queueEvent(tx, { environmentId, type: event.type, data: { ...of, ...event.data } });
}
