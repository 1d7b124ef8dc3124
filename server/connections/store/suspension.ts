/**
 * Suspended connections: the provider does not allow the integration's client to use their token (RFC 6749 §5.2,
 * `unauthorized_client`), because the token was issued to another client, or because the client may not refresh. The
 * mode of client credentials suspends a connection if the provider refuses the client only with this connection's
 * settings (`auth-modes/client-credentials.ts`). The fault is the integration's, but only the suspended connections
 * stop; all other connections of the integration continue.
 *
 * A connection with its own client is never suspended: a refusal of that client is not a fault of the integration
 * (`health/health.ts`).
 *
 * Owns: the columns `withheld` and `withheld_until` of a connection, `partial_fault` of an integration, and its
 * events. Does not own: the fault of a client that the provider refuses for all connections
 * (`integrations/fault.ts`), the errors of callers (`health/health.ts`).
 *
 * An integration has a partial fault while at least one of its connections is suspended. An event reports the first
 * suspension. Another event reports that none is left, because the last one was refreshed, connected again, ended for
 * another cause, or deleted.
 */
import type { Queryable } from '../../db/pool.ts';
import { queueEvent } from '../../events/outbox.ts';
import { type IntegrationFault, integrationEvent } from '../../integrations/fault.ts';
import type { LiveConnection } from './reader.ts';

/** How long a suspended connection waits for its next refresh, unless the integration is changed earlier. */
export const suspensionMs = 3_600_000;

/**
 * Suspends a connection for `fault`. Writes nothing and returns `outdated` if the integration or the credentials were
 * changed since the provider judged them, or if the connection is not active.
 */
export async function suspend(
  tx: Queryable,
  { connection, fault, at }: { connection: LiveConnection; fault: IntegrationFault; at: Date },
): Promise<'outdated' | 'suspended' | 'first suspended'> {
  const { integration } = connection;
  // Locks the integration first, as every change of an integration does: such a change resets its connections under
  // this lock.
  const [known] = await tx.query<{ updatedAt: Date; hasPartialFault: boolean }>(
    `select updated_at as "updatedAt", partial_fault is not null as "hasPartialFault"
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
  if (known.hasPartialFault) return 'suspended';
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

type IntegrationRef = { integrationId: number; environmentId: number };
type FaultyIntegration = { fault: IntegrationFault; key: string; provider: string; isTest: boolean };

/**
 * Call it in the transaction that ends the suspension of a connection, after that write. If this was the last
 * suspended connection, the integration's partial fault ends with the event `integration.recovered`. If the fault
 * named this connection, another suspended connection replaces it.
 */
export async function resume(
  tx: Queryable,
  { integrationId, environmentId, at }: IntegrationRef & { at: Date },
): Promise<void> {
  // Skips a locked row, so that a transaction may end several suspensions without a deadlock. The job handles skipped
  // rows.
  const [before] = await tx.query<FaultyIntegration>(
    `select partial_fault as fault, key, provider, is_test as "isTest"
     from integration
     where id = $1
       and environment_id = $2
       and partial_fault is not null
     for no key update skip locked`,
    [integrationId, environmentId],
  );
  if (before === undefined) return;
  // A separate statement, because it must see all commits from before the lock.
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
       and ${namesNoneSuspended}
     returning partial_fault as fault`,
    [integrationId, environmentId],
  );
  if (after === undefined || after.fault !== null) return;
  const { fault, key, isTest, provider } = before;
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
export async function listStaleFaults(
  db: Queryable,
  limit: number,
): Promise<(IntegrationRef & { id: number })[]> {
  return db.query(
    `select id, id as "integrationId", environment_id as "environmentId"
     from integration
     where partial_fault is not null
       and ${namesNoneSuspended}
     order by id
     limit $1`,
    [limit],
  );
}

const namesNoneSuspended = `not exists (
  select from connection
  where connection.integration_id = integration.id
    and connection.connection_id = integration.partial_fault->'evidence'->>'connection_id'
    and connection.deleted_at is null
    and connection.withheld_until is not null
)`;
