import type { Queryable } from '../db/pool.ts';
import type { EventData, EventType } from './catalogue.ts';
import { compatTypes } from './compat-types.ts';

/**
 * Writes an event in the transaction of its cause, and answers its ID: it exists exactly if the cause does. It carries no position
 * until the sequencer has seen it committed. What it may carry says the catalogue.
 *
 * The address that its connection has instead of those of the settings is kept with it: whatever becomes of the
 * connection, its events go nowhere else, in a replay too.
 */
export async function queueEvent<T extends EventType>(
  tx: Queryable,
  event: { environmentId: number; type: T; data: EventData[T] },
): Promise<string> {
  const id = crypto.randomUUID();
  // Connections live floors above; of them nothing else is read here.
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
