import type { CredentialSource } from '../connections/credentials.ts';
import { isRefusal } from '../connections/health.ts';
import type { ConnectionReader } from '../connections/reader.ts';
import type { ConnectionHead } from '../connections/store.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { eachInTurn } from '../jobs/each.ts';
import type { Job } from '../jobs/jobs.ts';
import type { Logger } from '../log.ts';

/**
 * Connections of accounts that were restored, tried again until the provider has judged.
 *
 * Owns: the column `retry_at`. Does not own: what an attempt comes to (`connections/status-transitions.ts`).
 */
type RetryDeps = {
  db: Db;
  reader: ConnectionReader;
  credentials: Pick<CredentialSource, 'refreshed'>;
  log: Logger;
  now?: () => Date;
};

type Place = Pick<ConnectionHead, 'id' | 'environmentId' | 'integrationKey' | 'connectionId'>;

/** Until the node that took the event has tried by itself, and between further attempts. */
const firstWaitMs = 60_000;
const waitMs = 5 * 60_000;
/** Connections that one run tries, one after the other. */
const maxAtOnce = 20;

/** Notes, in the transaction of the event, that they are to be tried. */
export async function noteRetries(
  tx: Tx,
  { connections, at }: { connections: readonly { id: number }[]; at: Date },
): Promise<void> {
  await tx.query('update connection set retry_at = $2 where id = any($1) and deleted_at is null', [
    connections.map(({ id }) => id),
    new Date(at.getTime() + firstWaitMs),
  ]);
}

/** One refresh, of a connection that is still as the event left it: where it succeeds the connection is active again. */
export async function retry(
  { db, reader, credentials, now = () => new Date() }: RetryDeps,
  place: Place,
): Promise<void> {
  // Whatever goes wrong, the next attempt is later than those of others.
  await schedule(db, { place, at: new Date(now().getTime() + waitMs) });
  reader.forget(place);
  try {
    const connection = await reader.get(place);
    if (connection.fault?.cause === 'security_event') await credentials.refreshed(connection);
  } catch (error) {
    if (!(error instanceof AppError && isRefusal(error))) throw error;
  }
  await schedule(db, { place, at: null });
}

/** Tries those whose first attempt was cut off or got no judgement. */
export function retryJob(deps: RetryDeps): Job<Record<string, never>> {
  const { db, log, now = () => new Date() } = deps;
  return {
    name: 'webhooks.retries',
    async run(_, signal) {
      const due = await db.query<Place>(
        `select
           connection.id, connection.environment_id as "environmentId", integration.key as "integrationKey",
           connection.connection_id as "connectionId"
         from connection
         join integration on integration.id = connection.integration_id
         where connection.retry_at <= $1
           and connection.deleted_at is null
         order by connection.retry_at
         limit $2`,
        [now(), maxAtOnce],
      );
      await eachInTurn(due, { job: 'webhooks.retries', log, signal, work: (place) => retry(deps, place) });
    },
  };
}

async function schedule(db: Db, { place, at }: { place: Place; at: Date | null }): Promise<void> {
  await db.query('update connection set retry_at = $3 where id = $1 and environment_id = $2', [
    ...[place.id, place.environmentId],
    at,
  ]);
}
