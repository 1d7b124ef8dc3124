import { writeToOutbox } from '../db/dataset-outbox.ts';
import type { Queryable, Tx } from '../db/pool.ts';
import { type CompatType, compatTypes } from './compat-types.ts';
import type { EventData, EventType } from './event-types.ts';

/**
 * Writes an event in the transaction of its cause and returns its ID: the event exists if and only if its cause does.
 * The sequencer gives it a position after the commit. The catalogue defines its data.
 *
 * If the connection has an address of its own instead of those of the settings, the event stores it: even if the
 * connection changes later, the event is sent only there, also in a replay.
 */
export async function queueEvent<T extends EventType>(
  tx: Queryable,
  event: { environmentId: number; type: T; data: EventData[T] },
): Promise<string> {
  const id = crypto.randomUUID();
  // Connections belong to a higher layer. Only this column is read here.
  await tx.query(
    `insert into event (id, environment_id, type, data, override)
     values ($1, $2, $3, $4::jsonb, (
       select connection.webhook_url_override
       from integration
       join connection on connection.integration_id = integration.id
       where $5
         and integration.environment_id = $2
         and integration.key = $4::jsonb ->> 'provider_config_key'
         and connection.connection_id = $4::jsonb ->> 'connection_id'
         and connection.deleted_at is null
     ))`,
    [id, event.environmentId, event.type, JSON.stringify(event.data), Object.hasOwn(compatTypes, event.type)],
  );
  return id;
}

/**
 * As `queueEvent`, in a transaction about the records of a dataset. Not for events that a connection may have sent to its
 * own address: the outbox has no column for that.
 */
export function queueEventOfDataset<T extends Exclude<EventType, CompatType>>(
  tx: Tx,
  { datasetId, ...event }: { datasetId: number; environmentId: number; type: T; data: EventData[T] },
): void {
  const { environmentId: environment_id, type, data } = event;
  writeToOutbox(tx, { datasetId, sequence: 'event', columns: { environment_id, type, data } });
}
