import type { Queryable } from '../db/pool.ts';
import { queueEvent } from '../events/outbox.ts';
import { type IntegrationFault, integrationEvent } from '../integrations/fault.ts';
import type { LiveConnection } from './reader.ts';

/**
 * Connections whose token the provider does not let the integration's client use (RFC 6749 §5.2,
 * `unauthorized_client`): it was given to another client, or the client may not refresh. Or it refuses a client that asks
 * for one in a way that is this connection's alone (`auth-modes/client-credentials.ts`). That is a fault of the
 * integration, shown by these connections alone, so that only they are held back and all others go on.
 *
 * No connection with a client of its own is among them: what the provider says to that is no fault of the integration's
 * client (`health.ts`).
 *
 * Owns: the columns `withheld` and `withheld_until` of a connection, `partial_fault` of an integration, and its events.
 * Does not own: the fault of a client that is refused as such (`integrations/fault.ts`), what a caller is told
 * (`health.ts`).
 *
 * An integration has a partial fault as long as one of its connections is suspended. An event reports the first
 * suspension. Another event reports that none is left: the last connection was refreshed, connected again, ended for a
 * cause of its own, or deleted.
 */

/** How long a suspended connection waits for its next refresh, unless the integration is changed before. */
export const suspensionMs = 3_600_000;

/**
 * Holds back a connection for `fault`; tells what became of it. Nothing is written (`outdated`) where the integration or
 * the credentials are no longer those that the provider judged, or the connection has a cause of its own.
 */
export async function suspend(
  tx: Queryable,
  { connection, fault, at }: { connection: LiveConnection; fault: IntegrationFault; at: Date },
): Promise<'outdated' | 'suspended' | 'first suspended'> {
  const { integration } = connection;
  // Locks the integration first, as every change of it does: such a change resets its connections under this lock.
  const [known] = await tx.query<{ updatedAt: Date; isTold: boolean }>(
    `select updated_at as "updatedAt", partial_fault is not null as "isTold"
     from integration
     where id = $1
       and environment_id = $2
     for no key update`,
    [integration.id, integration.environmentId],
  );
  if (known?.updatedAt.getTime() !== integration.updatedAt.getTime()) return 'outdated';
  const changed = await tx.query(
    `update connection
     set withheld = $4::jsonb || jsonb_build_object('since', coalesce(withheld->>'since', $4::jsonb->>'since')),
       withheld_until = $5
     where id = $1
       and environment_id = $2
       and credentials_version = $3
       and status = 'active'
       and deleted_at is null
     returning id`,
    [
      connection.id,
      connection.environmentId,
      connection.credentialsVersion,
      JSON.stringify(fault),
      new Date(at.getTime() + suspensionMs),
    ],
  );
  if (changed.length === 0) return 'outdated';
  if (known.isTold) return 'suspended';
  await tx.query('update integration set partial_fault = $3 where id = $1 and environment_id = $2', [
    integration.id,
    integration.environmentId,
    JSON.stringify(fault),
  ]);
  await queueEvent(tx, {
    environmentId: integration.environmentId,
    type: 'integration.misconfigured',
    data: { ...integrationEvent(integration), ...fault },
  });
  return 'first suspended';
}

type Place = { integrationId: number; environmentId: number };
type Told = { fault: IntegrationFault; key: string; provider: string; isTest: boolean };

/**
 * Call it in the transaction in which the suspension of a connection ends, after that is written. If the connection was
 * the last suspended one, the integration's partial fault ends with the event `integration.recovered`. If the fault
 * named this connection, another suspended connection takes its place.
 */
export async function resume(
  tx: Queryable,
  { integrationId, environmentId, at }: Place & { at: Date },
): Promise<void> {
  // Never waits, so that a transaction may release several connections: who is passed over here is left to the job.
  const [told] = await tx.query<Told>(
    `select partial_fault as fault, key, provider, is_test as "isTest"
     from integration
     where id = $1
       and environment_id = $2
       and partial_fault is not null
     for no key update skip locked`,
    [integrationId, environmentId],
  );
  if (told === undefined) return;
  // A statement of its own, since it must see what was committed before the lock was had.
  const [after] = await tx.query<{ fault: IntegrationFault | null }>(
    `update integration
     set partial_fault = (
       select connection.withheld || jsonb_build_object('since', integration.partial_fault->'since')
       from connection
       where connection.integration_id = integration.id
         and connection.withheld_until is not null
       order by connection.withheld_until
       limit 1
     )
     where id = $1
       and environment_id = $2
       and ${namesNobody}
     returning partial_fault as fault`,
    [integrationId, environmentId],
  );
  if (after === undefined || after.fault !== null) return;
  const { fault, key, isTest, provider } = told;
  await queueEvent(tx, {
    environmentId,
    type: 'integration.recovered',
    data: {
      ...integrationEvent({ id: integrationId, environmentId, key, isTest, provider: { name: provider } }),
      cause: fault.cause,
      since: fault.since,
      recovered_at: at.toISOString(),
    },
  });
}

/** Integrations whose partial fault names a connection that is no longer suspended. */
export async function listLeft(db: Queryable, limit: number): Promise<(Place & { id: number })[]> {
  return db.query(
    `select id, id as "integrationId", environment_id as "environmentId"
     from integration
     where partial_fault is not null
       and ${namesNobody}
     order by id
     limit $1`,
    [limit],
  );
}

const namesNobody = `not exists (
  select from connection
  where connection.integration_id = integration.id
    and connection.connection_id = integration.partial_fault->'evidence'->>'connection_id'
    and connection.deleted_at is null
    and connection.withheld_until is not null
)`;
