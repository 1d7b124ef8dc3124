/**
 * Refreshes of connections without calls: the jobs `connections.keepalive` and `connections.probe`.
 *
 * Owns: which connections these jobs refresh. Does not own: the refresh (`refresh.ts`) and its consequences
 * (`health/status-transitions.ts`).
 */
import type { Db } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { claimProbe, type DueProbe, listDueProbes } from '../../integrations/fault.ts';
import { eachInTurn, type Job } from '../../jobs/jobs.ts';
import type { Logger } from '../../log.ts';
import type { Catalog } from '../../providers/catalog.ts';
import type { ProviderDefinition } from '../../providers/definition.ts';
import { listEnvironmentDefinitions } from '../../providers/environment-definitions.ts';
import type { ConnectionReader, LiveConnection } from '../store/reader.ts';
import { listStaleFaults, resume } from '../store/suspension.ts';
import type { CredentialSource } from './credentials.ts';
import { longestPauseMs } from './refresh-due.ts';

type JobDeps = {
  db: Db;
  reader: Pick<ConnectionReader, 'get'>;
  credentials: Pick<CredentialSource, 'refreshedLiving'>;
  /** False: the jobs skip test integrations. */
  isSandboxOn: boolean;
  log: Logger;
  now?: () => Date;
};

/** How many connections of a provider one run refreshes. */
const maxPerProvider = 20;
/** How long a run may begin refreshes of a provider's connections. */
const longestTurnMs = 60_000;
const dayMs = 86_400_000;

type DueConnection = { id: number; provider: string } & Parameters<ConnectionReader['get']>[0];

/**
 * Refreshes, in small steps:
 *
 * - connections whose refresh token would expire because it is not used (`refresh_token_lifetime.unused_days` of the
 *   definition), when half to three quarters of that time have passed. The fraction depends on the connection, so
 *   that connections created on one day are not refreshed on one day;
 * - blocked connections: a day after the last attempt if an administrator blocked them, else an hour;
 * - suspended connections: an hour after the last attempt.
 *
 * The providers are processed in parallel, so that a slow provider delays only its own connections. If a provider
 * refuses an integration's client, its connections without their own client wait for the probe.
 */
export function keepaliveJob({
  db,
  catalog,
  reader,
  credentials,
  isSandboxOn,
  log,
  now = () => new Date(),
  turnMs = longestTurnMs,
}: JobDeps & { catalog: Catalog; turnMs?: number }): Job<Record<string, never>> {
  /** The last connection of each provider's previous run: failing connections must not block the others. */
  const after = new Map<string, number>();

  async function takeTurn({ due, signal }: { due: DueConnection[]; signal: AbortSignal }): Promise<void> {
    const endsAt = performance.now() + turnMs;
    const turn = new AbortController();
    await eachInTurn(due, {
      job: 'connections.keepalive',
      log,
      signal: AbortSignal.any([signal, turn.signal]),
      async work(place) {
        after.set(place.provider, place.id);
        try {
          await credentials.refreshedLiving(await reader.get(place));
        } catch (error) {
          // A refusal or a failure is already written when it is thrown, or the connection was deleted.
          if (!(error instanceof AppError)) throw error;
        } finally {
          if (performance.now() >= endsAt) turn.abort();
        }
      },
    });
  }

  return {
    name: 'connections.keepalive',
    async run(_ids, signal) {
      const due = await listDue(db, { catalog, isSandboxOn, after, at: now() });
      const turns = [...Map.groupBy(due, ({ provider }) => provider).values()];
      const ended = await Promise.allSettled(turns.map((own) => takeTurn({ due: own, signal })));
      for (const turn of ended) if (turn.status === 'rejected') throw turn.reason;
    },
  };
}

async function listDue(
  db: Db,
  {
    catalog,
    isSandboxOn,
    after,
    at,
  }: {
    catalog: Catalog;
    isSandboxOn: boolean;
    after: ReadonlyMap<string, number>;
    at: Date;
  },
): Promise<DueConnection[]> {
  const known: { environmentId?: number; definition: ProviderDefinition }[] = [
    ...catalog.listWith('refresh_token_lifetime').map((definition) => ({ definition })),
    ...(await listEnvironmentDefinitions(db, catalog)),
  ];
  const unused = known.flatMap(({ environmentId = null, definition }) => {
    const { name, refresh_token_lifetime: of } = definition;
    const days = of.unused_days;
    if (days === undefined) return [];
    return [{ environmentId, name, days, before: new Date(at.getTime() - (days / 2) * dayMs) }];
  });
  // Each part of the union has its own index: a scan of all connections each minute would be expensive.
  return db.query<DueConnection>(
    `with dying as materialized (
       select integration.id as integration_id, given.days, given.before
       from unnest($2::text[], $3::float8[], $4::timestamptz[], $10::bigint[])
         as given(provider, days, before, environment_id)
       join integration
         on integration.provider = given.provider
         and (given.environment_id is null or integration.environment_id = given.environment_id)
     ),
     due as (
       select id, integration_id, has_own_client
       from connection
       where deleted_at is null
         and status = 'blocked'
         and (refresh_not_before is null or refresh_not_before <= $1 or refresh_not_before > $8)
       union all
       select connection.id, connection.integration_id, connection.has_own_client
       from integration
       join connection
         on connection.integration_id = integration.id
         and (connection.withheld_until <= $1 or connection.withheld_until > $9)
       where integration.partial_fault is not null
         and ${mayBeTried}
       union all
       select connection.id, connection.integration_id, connection.has_own_client
       from dying
       join connection
         on connection.integration_id = dying.integration_id
         and connection.refreshed_at < dying.before
       where connection.deleted_at is null
         and connection.status = 'active'
         and connection.withheld_until is null
         and ${mayBeTried}
         and connection.refreshed_at
           + make_interval(secs => dying.days * 21600 * (connection.id % 97) / 97) < dying.before
     ),
     ranked as (
       select due.id, integration.provider, integration.key,
         row_number() over (
           partition by integration.provider
           order by due.id <= coalesce(($5::jsonb->>integration.provider)::bigint, 0), due.id
         ) as turn
       from due
       join integration on integration.id = due.integration_id
       where ($6 or not integration.is_test)
         and (due.has_own_client or integration.fault is null or integration.fault->>'cause' = 'api_disabled')
     )
     select
       connection.id, ranked.provider, connection.environment_id as "environmentId", ranked.key as "integrationKey",
       connection.connection_id as "connectionId"
     from ranked
     join connection on connection.id = ranked.id
     where ranked.turn <= $7
     order by ranked.turn, ranked.id`,
    [
      at,
      unused.map(({ name }) => name),
      unused.map(({ days }) => days),
      unused.map(({ before }) => before),
      JSON.stringify(Object.fromEntries(after)),
      isSandboxOn,
      maxPerProvider,
      new Date(at.getTime() + 2 * dayMs),
      new Date(at.getTime() + longestPauseMs),
      unused.map(({ environmentId }) => environmentId),
    ],
  );
}

/** A pause beyond the longest one was written by a wrong clock. */
const mayBeTried =
  '(connection.refresh_not_before is null or connection.refresh_not_before <= $1 or connection.refresh_not_before > $9)';

/** How many integrations one run probes. */
const maxProbes = 20;
/** How many connections of an integration a probe tries to read. */
const maxCandidates = 5;

/**
 * Checks whether a provider accepts an integration's client again, also without calls: one refresh of one of its
 * connections, at intervals that grow from a minute to an hour. Also ends partial faults without a suspended
 * connection, which remain if transactions that end suspensions skip a locked row (`store/suspension.ts`).
 */
export function probeJob(given: JobDeps): Job<Record<string, never>> {
  const { db, reader, credentials, isSandboxOn, log, now = () => new Date() } = given;
  async function probe(integration: DueProbe): Promise<void> {
    try {
      const connection = await readFirst(integration, await listCandidates(db, integration));
      // A refusal is already written when it is thrown, and it is the expected result.
      if (connection !== undefined) await credentials.refreshedLiving(connection).catch(() => {});
    } finally {
      // The next probe waits, whatever happened, unless the refresh has claimed the probe or cleared the fault.
      await claimProbe(db, { integration, at: now() });
    }
  }

  /** The first connection that can be read: a deleted or unreadable one is skipped. */
  async function readFirst(
    { environmentId, key }: DueProbe,
    ids: string[],
  ): Promise<LiveConnection | undefined> {
    for (const connectionId of ids) {
      try {
        return await reader.get({ environmentId, integrationKey: key, connectionId });
      } catch (error) {
        log.warn(
          { err: error, integration: key, connection: connectionId },
          'a connection could not be probed',
        );
      }
    }
    return undefined;
  }

  return {
    name: 'connections.probe',
    async run(_ids, signal) {
      const due = await listDueProbes(db, { at: now(), isSandboxOn, limit: maxProbes });
      const each = { job: 'connections.probe', log, signal };
      await eachInTurn(due, { ...each, work: probe });
      const stale = await listStaleFaults(db, maxProbes);
      await eachInTurn(stale, {
        ...each,
        work: (of) => db.transaction((tx) => resume(tx, { ...of, at: now() })),
      });
    },
  };
}

/**
 * Connections with the integration's client. The order changes with each probe, and connections with few failures
 * come first, so that a failing connection does not block the others. Suspended connections come last, because a
 * refusal of their token proves nothing.
 */
async function listCandidates(db: Db, { id, environmentId, probes }: DueProbe): Promise<string[]> {
  const found = await db.query<{ connection_id: string }>(
    `select connection_id
     from connection
     where integration_id = $1
       and environment_id = $2
       and deleted_at is null
       and status = 'active'
       and access_expires_at is not null
       and not has_own_client
     order by withheld_until is not null, refresh_failures, md5((id + $3)::text)
     limit $4`,
    [id, environmentId, probes, maxCandidates],
  );
  return found.map((row) => row.connection_id);
}
