import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { eachInTurn } from '../jobs/each.ts';
import type { Job } from '../jobs/jobs.ts';
import type { Logger } from '../log.ts';
import type { Catalog } from '../providers/catalog.ts';
import type { CredentialSource } from './credentials.ts';
import type { ConnectionReader } from './reader.ts';
import { longestPauseMs } from './refresh-due.ts';

/** Connections of a provider that one run refreshes, one after the other. */
const maxAtOnce = 20;
/** After which none of its connections is begun any more in a run. */
const longestTurnMs = 60_000;
const dayMs = 86_400_000;

type Due = { id: number; provider: string } & Parameters<ConnectionReader['get']>[0];

/**
 * Refreshes connections that nobody calls, in small steps:
 *
 * - those whose refresh token would die of disuse (`refresh_token_lifetime.unused_days` of the definition), once half
 *   to three quarters of that time have passed: which part is the connection's own, so that what was connected in one
 *   day is not refreshed in one;
 * - those that are blocked: a day after the last attempt where an administrator did it, else an hour;
 * - those whose token the provider does not let the client use: an hour after the last attempt.
 *
 * Each provider has a turn of its own beside the others', so that one that is slow or silent keeps only its own
 * connections waiting.
 * What a refresh comes to is written where every refresh is judged (`status-transitions.ts`). Where the provider refuses an
 * integration's client, those connections that have none of their own wait for its probe (`probe.ts`).
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
}: {
  db: Db;
  catalog: Pick<Catalog, 'list'>;
  reader: Pick<ConnectionReader, 'get'>;
  credentials: Pick<CredentialSource, 'refreshedLiving'>;
  /** Test connections are left alone while it is not. */
  isSandboxOn: boolean;
  log: Logger;
  now?: () => Date;
  turnMs?: number;
}): Job<Record<string, never>> {
  /** Each turn goes on where the one before ended, so that those who keep failing do not stand in front of the others. */
  const after = new Map<string, number>();

  async function takeTurn({ due, signal }: { due: Due[]; signal: AbortSignal }): Promise<void> {
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
          // A refusal or a failure has been written by the time it is thrown, or the connection was deleted.
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

function listDue(
  db: Db,
  {
    catalog,
    isSandboxOn,
    after,
    at,
  }: { catalog: Pick<Catalog, 'list'>; isSandboxOn: boolean; after: ReadonlyMap<string, number>; at: Date },
): Promise<Due[]> {
  const dying = catalog.list().flatMap(({ name, refresh_token_lifetime: { unused_days: days } }) => {
    return days === undefined ? [] : [{ name, days, before: new Date(at.getTime() - (days / 2) * dayMs) }];
  });
  // Each part of the union has an index of its own: a scan of all connections each minute would be felt.
  return db.query<Due>(
    `with dying as materialized (
       select integration.id as integration_id, given.days, given.before
       from unnest($2::text[], $3::float8[], $4::timestamptz[]) as given(provider, days, before)
       join integration on integration.provider = given.provider
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
      dying.map(({ name }) => name),
      dying.map(({ days }) => days),
      dying.map(({ before }) => before),
      ...[JSON.stringify(Object.fromEntries(after)), isSandboxOn, maxAtOnce],
      ...[new Date(at.getTime() + 2 * dayMs), new Date(at.getTime() + longestPauseMs)],
    ],
  );
}

/** An end beyond the longest pause was written by a clock that is wrong. */
const mayBeTried =
  '(connection.refresh_not_before is null or connection.refresh_not_before <= $1 or connection.refresh_not_before > $9)';
