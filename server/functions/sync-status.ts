/** What a sync is at, in the words that official clients know. */
import { z } from 'zod';
import type { ConnectionReader } from '../connections/reader.ts';
import type { Db } from '../db/pool.ts';
import { findCheckpoint } from './checkpoint.ts';
import type { ModelCounts, RunCounts } from './claims.ts';
import { spellFrequency } from './frequency.ts';
import type { RunState } from './runs.ts';
import type { SyncName, SyncPlace } from './syncs.ts';

const counts = z.object({ added: z.number(), updated: z.number(), deleted: z.number() });
const error = z.object({ code: z.string(), message: z.string() });

export const syncStatusWire = z.object({
  id: z.string(),
  connection_id: z.string(),
  name: z.string(),
  variant: z.string(),
  type: z.enum(['INITIAL', 'INCREMENTAL']),
  status: z.enum(['RUNNING', 'SUCCESS', 'ERROR', 'PAUSED', 'STOPPED']),
  frequency: z.string().nullable(),
  finishedAt: z.string().nullable(),
  nextScheduledSyncAt: z.string().nullable(),
  latestExecutionStatus: z.enum(['SUCCESS', 'PAUSED', 'STOPPED', 'RUNNING']).nullable(),
  latestResult: z.record(z.string(), counts),
  recordCount: z.record(z.string(), z.number()),
  checkpoint: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])).nullable(),
  /** Of the last run; null where it went well. */
  error: error.nullable(),
  /** Why its runs do not start; null where they do. */
  held: error.nullable(),
});
export type SyncStatus = z.input<typeof syncStatusWire>;

type Row = {
  id: number;
  functionId: number;
  connection: number;
  connectionId: string;
  name: string;
  variant: string;
  state: 'active' | 'paused';
  frequencyText: string | null;
  frequencyS: number | null;
  nextAt: Date | null;
  lastEndedAt: Date | null;
  lastSucceededAt: Date | null;
  held: { code: string; message: string } | null;
  isRunning: boolean;
  last: { state: RunState; counts: RunCounts; error: { code: string; message: string } | null } | null;
  recordCount: Record<string, number>;
};

const mostSyncs = 1_000;

/** Of at most 1000 syncs, by connection, name and variant. `wanted` undefined: all. */
export async function syncStatuses(
  { db, reader }: { db: Db; reader: Pick<ConnectionReader, 'get'> },
  {
    environmentId,
    integrationKey,
    connectionId,
    wanted,
  }: SyncPlace & { wanted: readonly SyncName[] | undefined },
): Promise<SyncStatus[]> {
  const rows = await db.query<Row>(statusSql, [
    ...[environmentId, integrationKey, connectionId ?? null, wanted === undefined],
    ...[wanted?.map(({ name }) => name) ?? [], wanted?.map(({ variant }) => variant) ?? [], mostSyncs],
  ]);
  const statuses: SyncStatus[] = [];
  for (const row of rows) {
    const place = { environmentId, integrationKey, connectionId: row.connectionId };
    const { dataKey } = await reader.get(place);
    const at = { connectionId: row.connection, functionId: row.functionId, variant: row.variant };
    const { value } = await findCheckpoint(db, { at, dataKey });
    statuses.push({ ...toWire(row), checkpoint: value ?? null });
  }
  return statuses;
}

const statusSql = `
  select
    sync.id,
    function.id as "functionId",
    connection.id as connection,
    connection.connection_id as "connectionId",
    function.name,
    sync.variant,
    sync.state,
    version.definition ->> 'frequency' as "frequencyText",
    sync.frequency_s as "frequencyS",
    sync.next_at as "nextAt",
    sync.last_ended_at as "lastEndedAt",
    sync.last_succeeded_at as "lastSucceededAt",
    sync.held,
    exists (
      select from run where run.sync_id = sync.id and run.kind = 'sync' and run.state = 'running'
    ) as "isRunning",
    (
      select to_jsonb(last)
      from (
        select run.state, run.counts, run.error
        from run
        where run.sync_id = sync.id and run.ended_at is not null
        order by run.id desc
        limit 1
      ) as last
    ) as last,
    (
      select coalesce(jsonb_object_agg(dataset.model, dataset.records), '{}')
      from dataset
      where dataset.connection = sync.connection_id
        and dataset.variant = sync.variant
        and version.definition -> 'models' ? dataset.model
    ) as "recordCount"
  from sync
  join function on function.id = sync.function_id
  join function_version version on version.id = function.version_id
  join integration on integration.id = function.integration_id
  join connection on connection.id = sync.connection_id and connection.deleted_at is null
  where integration.environment_id = $1
    and integration.key = $2
    and ($3::text is null or connection.connection_id = $3)
    and ($4 or (function.name, sync.variant) in (select * from unnest($5::text[], $6::text[])))
  order by connection.id, function.name collate "C", sync.variant collate "C"
  limit $7`;

function toWire(row: Row): Omit<SyncStatus, 'checkpoint'> {
  const { last, state, isRunning } = row;
  const hasFailed = last !== null && last.state !== 'succeeded';
  return {
    id: String(row.id),
    connection_id: row.connectionId,
    name: row.name,
    variant: row.variant,
    type: row.lastSucceededAt === null ? 'INITIAL' : 'INCREMENTAL',
    status: statusOf(row),
    frequency: row.frequencyS === null ? row.frequencyText : spellFrequency(row.frequencyS),
    finishedAt: row.lastEndedAt?.toISOString() ?? null,
    nextScheduledSyncAt: state === 'paused' ? null : (row.nextAt?.toISOString() ?? null),
    latestExecutionStatus: isRunning ? 'RUNNING' : last === null ? null : hasFailed ? 'STOPPED' : 'SUCCESS',
    latestResult: last === null || hasFailed ? {} : changesOf(last.counts),
    recordCount: row.recordCount,
    error: last?.error ? { code: last.error.code, message: last.error.message } : null,
    held: row.held ? { code: row.held.code, message: row.held.message } : null,
  };
}

function statusOf({ isRunning, state, held, last }: Row): SyncStatus['status'] {
  if (isRunning) return 'RUNNING';
  if (state === 'paused') return 'PAUSED';
  if (held !== null || last?.state === 'failed') return 'ERROR';
  return last?.state === 'succeeded' ? 'SUCCESS' : 'STOPPED';
}

function changesOf(of: RunCounts): Record<string, Omit<ModelCounts, 'unchanged'>> {
  const changes = Object.entries(of).map(([model, { added, updated, deleted }]) => [
    model,
    { added, updated, deleted },
  ]);
  return Object.fromEntries(changes);
}
