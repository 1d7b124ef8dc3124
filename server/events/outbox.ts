import { type Queryable, tables } from '../db/pool.ts';

/** What the application is told. Every type is documented in docs/events.md. */
export const eventTypes = [
  'connection.created',
  'connection.reconnected',
  'connection.deleted',
  'connection.needs_reauth',
  'connection.blocked',
  'connection.recovered',
  'connection.refresh_delayed',
  'connection.revoke_failed',
  'connection.revoke_dropped',
  'connection.rate_limited',
  'connection.scopes_reduced',
  'connection.expiring',
  'connection.token_slots',
  'connection.connect_failed',
  'connection.connect_abandoned',
  'integration.misconfigured',
  'integration.recovered',
  'integration.rate_limited',
  'consumer.stale',
  'records.retention_done',
  'records.mass_delete_held',
  'records.dataset_emptied',
] as const;
export type EventType = (typeof eventTypes)[number];

/**
 * Writes an event in the transaction of its cause: it exists exactly if the cause does. It carries no position
 * until the sequencer has seen it committed.
 */
export async function queueEvent(
  tx: Queryable,
  event: { environmentId: number; type: EventType; data: Record<string, unknown> },
): Promise<void> {
  await tx.run(
    tables.insertInto('event').values({
      id: crypto.randomUUID(),
      environment_id: event.environmentId,
      type: event.type,
      data: JSON.stringify(event.data),
    }),
  );
}
