/**
 * Warnings of what will stop a connection: the end of its grant, too many grants of one account, and changes that a
 * provider has announced.
 *
 * Owns: why and when a grant expires, the texts of these warnings, the events `connection.expiring` and `integration.sunset`. Does not own: the
 * fault after the end (`health.ts`), the count of an account's grants (`revocation/issued-tokens.ts`).
 */
import type { Db, Queryable } from '../../db/pool.ts';
import { queueEvent } from '../../events/outbox.ts';
import { integrationEvent } from '../../integrations/fault.ts';
import { eachInTurn, type Job } from '../../jobs/jobs.ts';
import type { Logger } from '../../log.ts';
import type { Catalog } from '../../providers/catalog.ts';
import type { ProviderDefinition } from '../../providers/definition.ts';
import { catalogOfEnvironment, listEnvironmentDefinitions } from '../../providers/environment-definitions.ts';
import { type ConnectionHead, findHead, queueConnectionEvent, type TokenSlots } from '../store/store.ts';

/** `testing_expiry`: the provider counts the client as under test; `time_based_expiry`: the user set a time limit. */
type ExpiryCause = 'testing_expiry' | 'time_based_expiry';

/** How long before the end of a grant its event is sent. */
export const noticeMs = 48 * 3600_000;
const dayMs = 24 * 3600_000;
/** The time between the grant and its storage, and the provider's rounding. */
const toleranceMs = 3600_000;
const maxAtOnce = 500;
const expiryJobName = 'connections.expiry';

const nextSteps: Record<ExpiryCause, string> = {
  testing_expiry:
    'The application is in testing at the provider, so its grants expire after some days. Publish the application, then ask the user to connect again.',
  time_based_expiry:
    'The user allowed access for a limited time. Ask the user to connect again before it expires.',
};

/** When and why the grant expires; undefined if the provider named no end. */
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

/** Some providers count the seconds again in each response, and some postpone the end with each refresh. */
const isUnreported = (noticeS: string) =>
  `(expiry_told_for is null or refresh_expires_at > expiry_told_for + make_interval(secs => ${noticeS}))`;

/**
 * Queues `connection.expiring` if the grant ends within two days: once per end, also if several nodes check at the
 * same time, and again if the provider postponed the end by more than two days. Returns false if the end is further
 * away, has passed or was reported, and if the connection needs its user anyway.
 */
export async function warnOfExpiry(
  tx: Queryable,
  given: { connection: ConnectionHead; provider: ProviderDefinition | undefined; at: Date },
): Promise<boolean> {
  const { connection, provider, at } = given;
  const expiry = expiryOf(connection, provider);
  const leftMs = expiry && expiry.at.getTime() - at.getTime();
  if (expiry === undefined || leftMs === undefined || leftMs <= 0 || leftMs > noticeMs) return false;
  const marked = await tx.query(
    `update connection
     set expiry_told_for = refresh_expires_at
     where id = $1
       and environment_id = $2
       and deleted_at is null
       and status <> 'needs_reauth'
       and refresh_expires_at = $3
       and ${isUnreported('$4')}
     returning id`,
    [connection.id, connection.environmentId, expiry.at, noticeMs / 1000],
  );
  if (marked.length === 0) return false;
  const { at: end, ...about } = expiry;
  await queueConnectionEvent(tx, connection, {
    ...about,
    type: 'connection.expiring',
    expires_at: end.toISOString(),
  });
  return true;
}

/**
 * Calls `warnOfExpiry` for all grants that end within two days, each in its own transaction. Returns the number of
 * events.
 */
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
       and ${isUnreported('$4')}
     order by refresh_expires_at
     limit $3`,
    [now, new Date(now.getTime() + noticeMs), maxAtOnce, noticeMs / 1000],
  );
  let warned = 0;
  await eachInTurn(due, {
    job: expiryJobName,
    log,
    signal,
    async work(found) {
      const isWarned = await db.transaction(async (tx) => {
        const connection = await findHead(tx, found);
        if (connection === undefined) return false;
        const { environmentId, providerName } = connection;
        const known = await catalogOfEnvironment(tx, { catalog, environmentId, names: [providerName] });
        return warnOfExpiry(tx, { connection, provider: known.find(providerName), at: now });
      });
      if (isWarned) warned += 1;
    },
  });
  return warned;
}

export function expiryJob(given: {
  db: Db;
  catalog: Catalog;
  log: Logger;
  now?: () => Date;
}): Job<Record<string, never>> {
  const { db, catalog, log, now = () => new Date() } = given;
  return {
    name: expiryJobName,
    run: (_, signal) => warnOfExpiries(db, { catalog, log, now: now(), signal }),
  };
}

/** The next step for an account near the limit of live grants. */
export function slotsNextStep({ used, limit }: TokenSlots): string {
  return `The account has ${used} of the ${limit} active grants that the provider allows for it and this OAuth client; beyond the limit, the provider revokes the oldest grant without notice. Reconnect the oldest connections of the account or delete unused connections, instead of creating new ones.`;
}

type Sunset = ProviderDefinition['sunset'][number];
/** `count`: connections that the change may stop. */
type ConcerningSunset = Sunset & { count: number };

/** How many days before its date a sunset is reported. */
export const warningDays = 90;

/**
 * The sunsets that affect connections of these integrations at `at`, by the integration's row ID, from `warningDays`
 * before their date. Connections that need their user anyway do not count, and test integrations have no sunset.
 */
export async function findSunsets(
  db: Queryable,
  given: {
    integrations: readonly { id: number; isTest: boolean; provider: Pick<ProviderDefinition, 'sunset'> }[];
    at: Date;
  },
): Promise<Map<number, ConcerningSunset[]>> {
  const { integrations, at } = given;
  const near = integrations
    .filter(({ isTest }) => !isTest)
    .map(({ id, provider }) => ({ id, sunsets: provider.sunset.filter((sunset) => isNearDate(sunset, at)) }))
    .filter(({ sunsets }) => sunsets.length > 0);
  if (near.length === 0) return new Map();
  const rows = await db.query<{ id: number; all: number; without_expiry: number }>(
    `select integration_id as id, count(*)::integer as all,
       (count(*) filter (where access_expires_at is null and refresh_token_digest is null))::integer as without_expiry
     from connection
     where integration_id = any($1::bigint[])
       and deleted_at is null
       and status <> 'needs_reauth'
     group by integration_id`,
    [near.map(({ id }) => id)],
  );
  const counts = new Map(rows.map((row) => [row.id, row]));
  return new Map(
    near.map(({ id, sunsets }) => [
      id,
      sunsets
        .map((sunset) => ({ ...sunset, count: counts.get(id)?.[sunset.connections] ?? 0 }))
        .filter(({ count }) => count > 0),
    ]),
  );
}

const sunsetJobName = 'integrations.sunsets';
/** Counting connections takes long, and ends are announced months ahead. */
const sunsetEveryMs = 3600_000;

/**
 * Queues `integration.sunset` for each announced end that affects connections, once for each integration and day. Returns
 * the number of events.
 */
export async function warnOfSunsets(
  db: Db,
  { catalog, log, now, signal }: { catalog: Catalog; log: Logger; now: Date; signal: AbortSignal },
): Promise<number> {
  const own = await listEnvironmentDefinitions(db, catalog);
  const known = [
    ...catalog.listWith('sunset').map((definition) => ({ environmentId: undefined, definition })),
    ...own.filter(({ definition }) => definition.sunset.length > 0),
  ];
  const near = known.filter(({ definition }) => definition.sunset.some((one) => isNearDate(one, now)));
  if (near.length === 0) return 0;
  const rows = await db.query<{ id: number; environmentId: number; key: string; provider: string }>(
    `select id, environment_id as "environmentId", key, provider
     from integration
     where provider = any($1)
       and not is_test
     order by id`,
    [near.map(({ definition }) => definition.name)],
  );
  const integrations = rows.flatMap((row) => {
    const { definition } =
      near.find(
        ({ environmentId = row.environmentId, definition: { name } }) =>
          name === row.provider && environmentId === row.environmentId,
      ) ?? {};
    return definition === undefined ? [] : [{ ...row, isTest: false, provider: definition }];
  });
  const sunsets = await findSunsets(db, { integrations, at: now });
  let warned = 0;
  await eachInTurn(integrations, {
    job: sunsetJobName,
    log,
    signal,
    async work(integration) {
      for (const { on, page, ends, count } of sunsets.get(integration.id) ?? [])
        warned += await db.transaction(async (tx) => {
          const marked = await tx.query(
            `update integration
             set reported_sunsets = reported_sunsets || $3::text
             where id = $1
               and environment_id = $2
               and not reported_sunsets @> array[$3::text]
             returning id`,
            [integration.id, integration.environmentId, on],
          );
          if (marked.length === 0) return 0;
          await queueEvent(tx, {
            environmentId: integration.environmentId,
            type: 'integration.sunset',
            data: {
              ...integrationEvent(integration),
              on,
              announcement: page,
              connections: count,
              next_step: ends,
            },
          });
          return 1;
        });
    },
  });
  return warned;
}

export function sunsetJob({
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
  let nextAt = 0;
  return {
    name: sunsetJobName,
    async run(_, signal) {
      const at = now();
      if (at.getTime() < nextAt) return;
      await warnOfSunsets(db, { catalog, log, now: at, signal });
      nextAt = at.getTime() + sunsetEveryMs;
    },
  };
}

function isNearDate({ on }: Sunset, at: Date): boolean {
  return at.getTime() >= Date.parse(on) - warningDays * dayMs;
}
