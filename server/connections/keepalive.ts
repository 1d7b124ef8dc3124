import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { eachInTurn } from '../jobs/each.ts';
import type { Job } from '../jobs/jobs.ts';
import type { Logger } from '../log.ts';
import type { Catalog } from '../providers/catalog.ts';
import type { CredentialSource } from './credentials.ts';
import type { ConnectionReader } from './reader.ts';

/** Connections that one run refreshes, one after the other. */
const mostAtOnce = 20;
const dayMs = 86_400_000;

type Due = { id: number; environmentId: number; integrationKey: string; connectionId: string };

/**
 * Refreshes connections that nobody calls, in small steps:
 *
 * - those whose refresh token would die of disuse (`refresh_token_lifetime.unused_days` of the definition), once half
 *   to three quarters of that time have passed: which part is the connection's own, so that what was connected in one
 *   day is not refreshed in one;
 * - those that are blocked: a day after the last attempt where an administrator did it, else an hour.
 *
 * What a refresh comes to is written where every refresh is judged (`states.ts`). Integrations that the provider
 * refuses wait for their probe (`probe.ts`).
 */
export function keepaliveJob({
  db,
  catalog,
  reader,
  credentials,
  isSandboxOn,
  log,
  now = () => new Date(),
}: {
  db: Db;
  catalog: Pick<Catalog, 'list'>;
  reader: Pick<ConnectionReader, 'get'>;
  credentials: Pick<CredentialSource, 'refreshed'>;
  /** Test connections are left alone while it is not. */
  isSandboxOn: boolean;
  log: Logger;
  now?: () => Date;
}): Job<Record<string, never>> {
  // Each run goes on where the one before ended, so that those who keep failing do not stand in front of the others.
  let after = 0;

  return {
    name: 'connections.keepalive',
    async run(_ids, signal) {
      const due = await listDue(db, { catalog, isSandboxOn, after, at: now() });
      after = due.length < mostAtOnce ? 0 : (due.at(-1)?.id ?? 0);
      await eachInTurn(due, {
        ...{ job: 'connections.keepalive', log, signal },
        async work(place) {
          try {
            await credentials.refreshed(await reader.get(place));
          } catch (error) {
            // A refusal or a failure has been written by the time it is thrown, or the connection was deleted.
            if (!(error instanceof AppError)) throw error;
          }
        },
      });
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
  }: { catalog: Pick<Catalog, 'list'>; isSandboxOn: boolean; after: number; at: Date },
): Promise<Due[]> {
  const dying = catalog.list().flatMap(({ name, refresh_token_lifetime: { unused_days: days } }) => {
    return days === undefined ? [] : [{ name, days, before: new Date(at.getTime() - (days / 2) * dayMs) }];
  });
  // Each half of the union has an index of its own: a scan of all connections each minute would be felt.
  return db.query<Due>(
    `with dying as materialized (
       select integration.id as integration_id, given.days, given.before
       from unnest($2::text[], $3::float8[], $4::timestamptz[]) as given(provider, days, before)
       join integration on integration.provider = given.provider
     ),
     due as (
       select id, integration_id
       from connection
       where deleted_at is null
         and status = 'blocked'
         and (refresh_not_before is null or refresh_not_before <= $1)
       union all
       select connection.id, connection.integration_id
       from dying
       join connection
         on connection.integration_id = dying.integration_id
         and connection.refreshed_at < dying.before
       where connection.deleted_at is null
         and connection.status = 'active'
         and (connection.refresh_not_before is null or connection.refresh_not_before <= $1)
         and connection.refreshed_at
           + make_interval(secs => dying.days * 21600 * (connection.id % 97) / 97) < dying.before
     )
     select
       connection.id, connection.environment_id as "environmentId", integration.key as "integrationKey",
       connection.connection_id as "connectionId"
     from due
     join integration on integration.id = due.integration_id
     join connection on connection.id = due.id
     where due.id > $5
       and ($6 or not integration.is_test)
       and (integration.fault is null or integration.fault->>'cause' = 'api_disabled')
     order by due.id
     limit $7`,
    [
      at,
      dying.map(({ name }) => name),
      dying.map(({ days }) => days),
      dying.map(({ before }) => before),
      ...[after, isSandboxOn, mostAtOnce],
    ],
  );
}
