/** The list of syncs for the dashboard: by function, connection and state, in pages. */
import { z } from 'zod';
import type { Queryable } from '../../db/pool.ts';
import { nameSchemas } from '../../http/openapi/schema-names.ts';
import type { DataKey, Vault } from '../../vault.ts';
import { formatFrequency } from '../deploys/frequency.ts';
import { connectionIds, functionIds, runStates } from '../runs/runs.ts';
import { keyReader, openError, type StoredError } from '../runs/sealed-output.ts';

/**
 * The state of a sync, the first that applies: `running`, a run waits, is under way or is to follow; `paused`; `held`, its
 * connection prevents runs; `failing`, its last run failed; `active`.
 */
export const syncStates = ['running', 'paused', 'held', 'failing', 'active'] as const;
type SyncState = (typeof syncStates)[number];

const fault = z.object({ code: z.string(), message: z.string() });
const runRef = z.object({ id: z.string(), state: z.enum(runStates) });
export const listedSyncWire = z.object({
  id: z.number(),
  provider_config_key: z.string(),
  connection_id: z.string(),
  /** The email address of the connection's account. */
  account_email: z.string().nullable(),
  function: z.string(),
  /** Whether its function is enabled. */
  enabled: z.boolean(),
  variant: z.string(),
  state: z.enum(syncStates),
  /** The frequency of this connection, which replaces the function's; null if there is none. */
  own_frequency: z.string().nullable(),
  frequency: z.string().nullable(),
  next_at: z.string().nullable(),
  last_succeeded_at: z.string().nullable(),
  /** Failed runs since the last success. */
  failures: z.number(),
  held: fault.nullable(),
  /** Deletions that the guard of delete tracking holds, if any. `allowed`: the maximum that the next run may delete. */
  held_deletes: z
    .array(
      z.object({
        model: z.string(),
        would_delete: z.number(),
        live: z.number(),
        allowed: z.number().nullable(),
      }),
    )
    .optional(),
  /** The run that waits or is under way. */
  current_run: runRef.nullable(),
  /** The run that ended last. */
  last_run: runRef.extend({ ended_at: z.string(), error: fault.nullable() }).nullable(),
});
type ListedSync = z.input<typeof listedSyncWire>;

export const syncCountsWire = z.object({
  running: z.number(),
  paused: z.number(),
  held: z.number(),
  failing: z.number(),
  active: z.number(),
});
nameSchemas({ RunReference: runRef, Sync: listedSyncWire, SyncCounts: syncCountsWire, SyncError: fault });

type SyncFilter = {
  environmentId: number;
  integrationKey?: string | undefined;
  function?: string | undefined;
  connectionId?: string | undefined;
};

type Values = [functions: number[], connections: number[] | null];

/**
 * The syncs of one function are read along the index of functions: with an equality the planner might prefer the order by ID,
 * which may have all syncs of other functions first.
 */
const ofFunctions = ([functions]: Values) =>
  functions.length === 1
    ? 'sync.function_id between ($1::bigint[])[1] and ($1::bigint[])[1]'
    : 'sync.function_id = any($1::bigint[])';
const orderOf = ([functions]: Values, of: string) =>
  functions.length === 1 ? `${of}.function_id, ${of}.id` : `${of}.id`;
/** The syncs of a filter. $1: their functions, $2: their connections, null for all. */
const ofValues = (values: Values) =>
  `${ofFunctions(values)} and ($2::bigint[] is null or sync.connection_id = any($2))`;

const joinRuns = `
  left join run as current
    on current.sync_id = sync.id and current.kind = 'sync' and current.state in ('waiting', 'running')
  left join sync_again as again on again.sync_id = sync.id`;
const stateSql = `
  case
    when current.id is not null or again.sync_id is not null then 'running'
    when sync.state = 'paused' then 'paused'
    when sync.held is not null then 'held'
    when sync.failures > 0 then 'failing'
    else 'active'
  end`;

/** SQL that finds the syncs that may have a state, by an index: few of many syncs have one of these. */
const candidates: Record<SyncState, string> = {
  running: `sync.id in (
    select sync_id from run where kind = 'sync' and state in ('waiting', 'running')
    union all
    select sync_id from sync_again
  )`,
  paused: `sync.state = 'paused'`,
  held: 'sync.held is not null',
  failing: 'sync.failures > 0',
  active: 'true',
};

/** Reads IDs first: the planner has statistics about them. Undefined if no sync matches. */
async function valuesOf(q: Queryable, filter: SyncFilter): Promise<Values | undefined> {
  const functions = await functionIds(q, { ...filter, functionKind: 'sync' });
  const connections = await connectionIds(q, filter);
  if (functions?.length === 0 || connections?.length === 0) return undefined;
  return [functions ?? [], connections ?? null];
}

type SyncRow = {
  id: number;
  integrationKey: string;
  /** Null if the connection is deleted. */
  connectionId: string | null;
  accountEmail: string | null;
  function: string;
  isEnabled: boolean;
  variant: string;
  is: SyncState;
  frequencyText: string | null;
  frequencyS: number | null;
  nextAt: Date | null;
  lastSucceededAt: Date | null;
  failures: number;
  held: z.input<typeof fault> | null;
  currentId: string | null;
  currentState: z.input<typeof runRef>['state'] | null;
  last: (Omit<NonNullable<ListedSync['last_run']>, 'error'> & { error: StoredError | null }) | null;
  wrappedKey: Buffer | null;
  connection: number;
  models: string[];
};
type LiveRow = SyncRow & { connectionId: string };

/**
 * The syncs after `after`, in the order of their creation. `next` is the `after` of the next page; null: this is the last one.
 * A page is short if a connection was deleted in the last minute.
 */
export async function listSyncs(
  q: Queryable,
  {
    after,
    limit,
    state,
    vault,
    ...filter
  }: SyncFilter & { state?: SyncState | undefined; vault: Vault; after: number; limit: number },
): Promise<{ syncs: ListedSync[]; next: number | null }> {
  const values = await valuesOf(q, filter);
  if (values === undefined) return { syncs: [], next: null };
  // An index scan for an array reads a block once; a nested loop reads the index again for each row. The offset keeps the
  // planner from a partial index without IDs.
  const found = await q.query<SyncRow>(
    `with found as materialized (
       select
         sync.*,
         current.id as "currentId",
         current.state as "currentState",
         ${stateSql} as "is"
       from sync
       ${joinRuns}
       where ${ofValues(values)} and sync.id > $3 and ${state === undefined ? 'true' : `${candidates[state]} and ${stateSql} = '${state}'`}
       order by ${orderOf(values, 'sync')}
       limit $4
     ),
     of_function as materialized (
       select function.*, integration.key as integration, version.definition
       from function
       join function_version version on version.id = function.version_id
       join integration on integration.id = function.integration_id
       where function.id = any(array(select function_id from found))
     ),
     live as materialized (
       select id, connection_id, account_email, data_key
       from (select * from connection where id = any(array(select connection_id from found)) offset 0) as own
       where deleted_at is null
     )
     select
       found.id,
       integration as "integrationKey",
       live.connection_id as "connectionId",
       account_email as "accountEmail",
       function.name as function,
       function.is_enabled as "isEnabled",
       variant,
       "is",
       definition ->> 'frequency' as "frequencyText",
       frequency_s as "frequencyS",
       next_at as "nextAt",
       last_succeeded_at as "lastSucceededAt",
       failures,
       held,
       "currentId",
       "currentState",
       to_jsonb(last) as last,
       case when last.error is not null then (select wrapped from data_key where id = live.data_key) end as "wrappedKey",
       found.connection_id as connection,
       definition -> 'models' as models
     from found
     join of_function function on function.id = found.function_id
     left join live on live.id = found.connection_id
     left join lateral (
       select run.id, run.state, run.ended_at, run.error
       from run
       where run.sync_id = found.id
         and run.environment_id = function.environment_id
         and run.ended_at is not null
       order by run.id desc
       limit 1
     ) as last on true
     order by ${orderOf(values, 'found')}`,
    [...values, after, limit + 1],
  );
  const keys = keyReader(vault);
  const page = found.slice(0, limit);
  const rows = page.filter((row): row is LiveRow => row.connectionId !== null);
  const held = await listHeldDeletes(
    q,
    rows.map(({ connection }) => connection),
  );
  const syncs = rows.map((row) => {
    const own = held.filter(
      ({ connection, variant, model }) =>
        connection === row.connection && variant === row.variant && row.models.includes(model),
    );
    const held_deletes = own.map(({ connection: _, variant: __, ...one }) => one);
    return { ...toWire(row, keys), ...(own.length > 0 && { held_deletes }) };
  });
  return { syncs, next: found.length > limit ? (page.at(-1)?.id ?? null) : null };
}

type HeldDelete = NonNullable<ListedSync['held_deletes']>[number] & { connection: number; variant: string };

/** The held deletions in all datasets of these connections. */
async function listHeldDeletes(q: Queryable, connections: readonly number[]): Promise<HeldDelete[]> {
  if (connections.length === 0) return [];
  return q.query<HeldDelete>(
    `select connection, variant, model, held_count as would_delete, records as live, allowed_count as allowed
     from dataset
     where connection = any($1) and held_count is not null
     order by model`,
    [[...new Set(connections)]],
  );
}

/** More syncs are not counted. */
const maxCounted = 10_000;

/**
 * The number of syncs in each state, `maxCounted` in all at most. Reads only an index, and those in a state other than
 * `active`. Syncs of a connection that was deleted in the last minute may count.
 */
export async function countSyncs(q: Queryable, filter: SyncFilter): Promise<z.input<typeof syncCountsWire>> {
  const values = await valuesOf(q, filter);
  if (values === undefined) return { running: 0, paused: 0, held: 0, failing: 0, active: 0 };
  const { paused, held, failing, running } = candidates;
  const foundBy = (condition: string) => `(
    select sync.id, ${stateSql} as "is"
    from sync
    ${joinRuns}
    where ${ofValues(values)} and ${condition}
    limit ${maxCounted}
  )`;
  const others = syncStates.filter((is) => is !== 'active');
  const [counts] = await q.query<z.input<typeof syncCountsWire>>(
    `select
       ${others.map((is) => `count(*) filter (where "is" = '${is}') as ${is}`).join(', ')},
       greatest(0, (
         select count(*)
         from (
           select
           from sync
           where ${ofValues(values)}
           limit ${maxCounted}
         ) as listed
       ) - count(*)) as active
     from (
       ${foundBy(`(${paused} or ${held} or ${failing})`)}
       union
       ${foundBy(running)}
     ) as other`,
    values,
  );
  return counts!;
}

/**
 * Functions with syncs whose last run failed, those with most failing syncs first, up to `limit`. Syncs of a connection that was
 * deleted in the last minute may count.
 */
export function listFailingSyncs(
  q: Queryable,
  { environmentId, limit }: { environmentId: number; limit: number },
): Promise<{ integrationKey: string; function: string; count: number }[]> {
  return q.query(
    `select integration.key as "integrationKey", function.name as function, count(*)::integer as count
     from function
     join integration on integration.id = function.integration_id
     join sync on sync.function_id = function.id
     where function.environment_id = $1
       and function.is_enabled
       and sync.state = 'active'
       and sync.held is null
       and sync.failures > 0
     group by integration.key, function.name
     order by count desc, integration.key, function.name
     limit $2`,
    [environmentId, limit],
  );
}

function toWire(row: LiveRow, keys: ReturnType<typeof keyReader>): ListedSync {
  const own = row.frequencyS === null ? null : formatFrequency(row.frequencyS);
  const { last } = row;
  return {
    id: row.id,
    provider_config_key: row.integrationKey,
    connection_id: row.connectionId,
    account_email: row.accountEmail,
    function: row.function,
    enabled: row.isEnabled,
    variant: row.variant,
    state: row.is,
    own_frequency: own,
    frequency: own ?? row.frequencyText,
    next_at: row.nextAt?.toISOString() ?? null,
    last_succeeded_at: row.lastSucceededAt?.toISOString() ?? null,
    failures: row.failures,
    held: row.held === null ? null : withoutPayload(row.held),
    current_run:
      row.currentId === null || row.currentState === null
        ? null
        : { id: row.currentId, state: row.currentState },
    last_run: last === null ? null : { ...last, ...endedOf(last, keys(row.wrappedKey)) },
  };
}

function endedOf({ ended_at: endedAt, error }: NonNullable<SyncRow['last']>, key: DataKey | undefined) {
  return {
    ended_at: new Date(endedAt).toISOString(),
    error: error === null ? null : withoutPayload(openError(error, key)),
  };
}

function withoutPayload({ code, message }: z.input<typeof fault>): z.input<typeof fault> {
  return { code, message };
}
