import type { Db, Queryable } from '../db/pool.ts';
import { queueEvent } from '../events/outbox.ts';
import { eachInTurn } from '../jobs/each.ts';
import type { Job } from '../jobs/jobs.ts';
import type { Logger } from '../log.ts';
import type { Catalog } from '../providers/catalog.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { connectionEvent } from './event.ts';
import { type ConnectionHead, findHead } from './store.ts';

/**
 * Grants that end on a day known beforehand, and the word about it in time.
 *
 * Owns: why a grant ends by itself, the sentence that says what to do, the one event before it does. Does not own:
 * what is told once it has ended (`health.ts`), how many grants of an account may live (`grants.ts`).
 */

/** `testing_expiry`: the provider counts the client as under test; `time_based_expiry`: its user gave a time. */
type ExpiryCause = 'testing_expiry' | 'time_based_expiry';

/** How long before the end the application is told. */
export const noticeMs = 48 * 3600_000;
const dayMs = 24 * 3600_000;
/** Between the grant and our note of it, and by how much a provider rounds. */
const toleranceMs = 3600_000;
const maxAtOnce = 500;
const expiryJobName = 'connections.expiry';

const nextSteps: Record<ExpiryCause, string> = {
  testing_expiry:
    'The provider counts the application as under test, and such grants end after some days. Publish the application, then ask the user to connect again.',
  time_based_expiry: 'The user gave access for a time only. Ask the user to connect again before it is over.',
};

/** When the grant ends by itself, and why; undefined where the provider named no end. Pure. */
export function expiryOf(
  { refreshExpiresAt, grantedAt }: Pick<ConnectionHead, 'refreshExpiresAt' | 'grantedAt'>,
  provider: Pick<ProviderDefinition, 'refresh_token_lifetime'> | undefined,
): { cause: ExpiryCause; at: Date; next_step: string } | undefined {
  if (refreshExpiresAt === undefined) return undefined;
  const testingDays = provider?.refresh_token_lifetime.testing_days;
  const lifeMs = refreshExpiresAt.getTime() - grantedAt.getTime();
  const isTesting = testingDays !== undefined && Math.abs(lifeMs - testingDays * dayMs) <= toleranceMs;
  const cause = isTesting ? 'testing_expiry' : 'time_based_expiry';
  return { cause, at: refreshExpiresAt, next_step: nextSteps[cause] };
}

/** Providers restart the count of seconds at each answer, and some move the end with each refresh. */
const isUntold = (noticeS: string) =>
  `(expiry_told_for is null or refresh_expires_at > expiry_told_for + make_interval(secs => ${noticeS}))`;

/**
 * Raises `connection.expiring` if the grant ends within two days: once per end, also when other nodes check at the same
 * time, and again if the provider postponed the end by more than that. False if the end is further away, has passed or
 * was reported, and if the connection is dead anyway.
 */
export async function warnOfExpiry(
  tx: Queryable,
  {
    connection,
    provider,
    at,
  }: { connection: ConnectionHead; provider: ProviderDefinition | undefined; at: Date },
): Promise<boolean> {
  const expiry = expiryOf(connection, provider);
  const leftMs = expiry && expiry.at.getTime() - at.getTime();
  if (expiry === undefined || leftMs === undefined || leftMs <= 0 || leftMs > noticeMs) return false;
  const told = await tx.query(
    `update connection
     set expiry_told_for = refresh_expires_at
     where id = $1
       and environment_id = $2
       and deleted_at is null
       and status <> 'needs_reauth'
       and refresh_expires_at = $3
       and ${isUntold('$4')}
     returning id`,
    [connection.id, connection.environmentId, expiry.at, noticeMs / 1000],
  );
  if (told.length === 0) return false;
  await queueEvent(tx, {
    environmentId: connection.environmentId,
    type: 'connection.expiring',
    data: {
      ...connectionEvent(connection),
      cause: expiry.cause,
      expires_at: expiry.at.toISOString(),
      next_step: expiry.next_step,
    },
  });
  return true;
}

/** Tells of every grant that ends within two days and was not told of; how many. A transaction for each. */
export async function warnOfExpiries(
  db: Db,
  { catalog, log, now, signal }: { catalog: Catalog; log: Logger; now: Date; signal: AbortSignal },
): Promise<number> {
  const due = await db.query<{ id: number; environmentId: number }>(
    `select id, environment_id as "environmentId"
     from connection
     where refresh_expires_at > $1
       and refresh_expires_at <= $2
       and deleted_at is null
       and status <> 'needs_reauth'
       and ${isUntold('$4')}
     order by refresh_expires_at
     limit $3`,
    [now, new Date(now.getTime() + noticeMs), maxAtOnce, noticeMs / 1000],
  );
  let told = 0;
  await eachInTurn(due, {
    job: expiryJobName,
    log,
    signal,
    async work(found) {
      const isTold = await db.transaction(async (tx) => {
        const connection = await findHead(tx, found);
        if (connection === undefined) return false;
        return warnOfExpiry(tx, { connection, provider: catalog.find(connection.providerName), at: now });
      });
      if (isTold) told += 1;
    },
  });
  return told;
}

/** Looks for grants that are about to end. */
export function expiryJob({
  db,
  catalog,
  log,
  now = () => new Date(),
}: {
  db: Db;
  catalog: Catalog;
  log: Logger;
  now?: () => Date;
}): Job<Record<string, never>> {
  return {
    name: expiryJobName,
    run: (_, signal) => warnOfExpiries(db, { catalog, log, now: now(), signal }),
  };
}
