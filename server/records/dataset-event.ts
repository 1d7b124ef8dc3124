import { first, type Tx } from '../db/pool.ts';
import type { EventData } from '../events/catalogue.ts';
import type { DatasetSubject } from '../events/event-type.ts';
import { queueEvent } from '../events/outbox.ts';

/** What such an event carries beside whose dataset it is. */
type DatasetEvent = {
  [T in 'records.mass_delete_held' | 'records.dataset_emptied']: {
    type: T;
    data: Omit<EventData[T], keyof DatasetSubject>;
  };
}['records.mass_delete_held' | 'records.dataset_emptied'];

/** Writes an event about a dataset, which says whose it is; none where its connection is gone. */
export async function queueDatasetEvent(tx: Tx, event: DatasetEvent & { datasetId: number }): Promise<void> {
  const rows = await tx.query<{ environmentId: number; of: DatasetSubject }>(
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
