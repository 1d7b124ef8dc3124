/**
 * Runs of an environment, newest first, by what they are of. There may be tens of millions: each list reads an index in its
 * order and about as many rows as it answers, also where few runs, or none, fit.
 */
import type { Queryable } from '../../db/pool.ts';
import type { Kind } from '../deploys/definition.ts';
import type { RunKind } from './claims.ts';
import { type RunState, type RunView, runViewSql } from './runs.ts';

export type RunFilter = {
  environmentId: number;
  integrationKey?: string | undefined;
  connectionId?: string | undefined;
  function?: string | undefined;
  /** Of the function: functions of several kinds may have a name. */
  functionKind?: Kind | undefined;
  kind?: RunKind | undefined;
  state?: RunState | undefined;
};

/** Beyond it one look at all runs finds some sooner than a look for each function. */
const maxApart = 50;

/** Newest first, those before `before`. */
export async function listRuns(
  q: Queryable,
  { before, limit, ...filter }: RunFilter & { before?: string | undefined; limit: number },
): Promise<RunView[]> {
  const functions = await functionIds(q, filter);
  const connections = await connectionIds(q, filter);
  if (functions?.length === 0 || connections?.length === 0) return [];
  const isApart = connections === undefined && functions !== undefined && functions.length <= maxApart;
  return q.query<RunView>(
    `${runViewSql}
     join (${isApart ? ofEachFunction : ofAll}) as found on found.id = run.id
     order by run.id desc`,
    [
      ...[filter.environmentId, before ?? null, filter.kind ?? null, filter.state ?? null],
      ...[functions ?? null, connections ?? null, limit],
    ],
  );
}

const fits = `
  run.environment_id = $1
  and ($2::uuid is null or run.id < $2)
  and ($3::text is null or run.kind = $3)
  and ($4::text is null or run.state = $4)
  and ($5::bigint[] is null or run.function_id = any($5))
  and ($6::bigint[] is null or run.connection_id = any($6))`;

const ofAll = `
  select run.id
  from run
  where ${fits}
  order by run.id desc
  limit $7`;

const ofEachFunction = `
  select newest.id
  from unnest($5::bigint[]) as wanted (function_id)
  cross join lateral (
    select run.id
    from run
    where run.function_id = wanted.function_id and ${fits}
    order by run.id desc
    limit $7
  ) as newest
  order by newest.id desc
  limit $7`;

/** Undefined: of any. */
async function functionIds(q: Queryable, filter: RunFilter): Promise<number[] | undefined> {
  const { environmentId, integrationKey, function: name, functionKind, kind } = filter;
  if ([integrationKey, name, functionKind, kind].every((given) => given === undefined)) return undefined;
  const rows = await q.query<{ id: number }>(
    `select function.id
     from function
     join integration on integration.id = function.integration_id
     where function.environment_id = $1
       and ($2::text is null or integration.key = $2)
       and ($3::text is null or function.name = $3)
       and ($4::text is null or function.kind = $4)
       and ($5::text is null or function.kind = $5)`,
    [
      ...[environmentId, integrationKey ?? null, name ?? null, functionKind ?? null],
      // Syncs are what webhooks run.
      kind === 'webhook' ? 'sync' : (kind ?? null),
    ],
  );
  return rows.map(({ id }) => id);
}

/** Of live ones; several integrations may have the ID. Undefined: of any. */
async function connectionIds(
  q: Queryable,
  { environmentId, connectionId }: RunFilter,
): Promise<number[] | undefined> {
  if (connectionId === undefined) return undefined;
  const rows = await q.query<{ id: number }>(
    `select connection.id
     from integration
     join connection on connection.integration_id = integration.id
     where integration.environment_id = $1
       and connection.connection_id = $2
       and connection.deleted_at is null`,
    [environmentId, connectionId],
  );
  return rows.map(({ id }) => id);
}
