/** The status of syncs, in the terms of official clients. */
import { z } from 'zod';
import type { ConnectionReader } from '../../connections/store/reader.ts';
import type { Db } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { nameSchemas } from '../../http/openapi/schema-names.ts';
import type { Vault } from '../../vault.ts';
import { openCheckpoint } from '../context/checkpoint.ts';
import type { ModelCounts, RunCounts } from '../context/service-call.ts';
import { formatFrequency } from '../deploys/frequency.ts';
import type { RunState } from '../runs/runs.ts';
import { keyReader, openError, type StoredError } from '../runs/sealed-output.ts';
import { fromSyncs, isNamed, ofPlace, type SyncName, type SyncPlace } from './syncs.ts';

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
  /** The error of the last run; null if it succeeded. */
  error: error.nullable(),
  /** Why its runs do not start; null if they do. */
  held: error.nullable(),
  /**
   * Whether push channels of the provider notify of changes, so that the sync runs early: `open` if each watch has a channel,
   * `none` if no watch has one. `error` is the reason, if it is known. Null if the sync subscribes to nothing, or if the
   * provider has no such channels.
   */
  push: z
    .object({
      state: z.enum(['open', 'partly', 'none']),
      /** The end of the channel that ends first. Channels are renewed after half their life. */
      expires_at: z.string().nullable(),
      error: error.nullable(),
    })
    .nullable(),
});
nameSchemas({ SyncChanges: counts, SyncError: error, SyncStatus: syncStatusWire });
type SyncStatus = z.input<typeof syncStatusWire>;

type StatusRow = {
  id: number;
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
  failures: number;
  isRunning: boolean;
  last: { state: RunState; counts: RunCounts; error: StoredError | null } | null;
  wrappedKey: Buffer | null;
  connection: number;
  models: string[];
  /** Sealed. */
  checkpoint: Buffer | null;
  push: {
    watched: number;
    open: number;
    expiresAt: string | null;
    fault: { code: string; message: string } | null;
  } | null;
};

const maxSyncs = 1_000;

/** The status of at most 1000 syncs, by connection, name and variant. `wanted` undefined: all. */
export async function syncStatuses(
  {
    db,
    vault,
    reader,
    now,
  }: { db: Db; vault: Vault; reader: Pick<ConnectionReader, 'get'>; now: () => Date },
  {
    environmentId,
    integrationKey,
    connectionId,
    wanted,
  }: SyncPlace & { wanted: readonly SyncName[] | undefined },
): Promise<SyncStatus[]> {
  const rows = await db.query<StatusRow>(statusSql, [
    environmentId,
    integrationKey,
    connectionId ?? null,
    wanted?.map(({ name }) => name) ?? [],
    wanted?.map(({ variant }) => variant) ?? [],
    wanted === undefined,
    maxSyncs,
    now(),
  ]);
  const datasets = await countRecords(
    db,
    rows.map(({ connection }) => connection),
  );
  const statuses: SyncStatus[] = [];
  const keys = keyReader(vault);
  for (const row of rows) {
    const { checkpoint: sealed, last, connectionId: id, wrappedKey } = row;
    const read = async () =>
      openCheckpoint(
        sealed!,
        (await reader.get({ environmentId, integrationKey, connectionId: id })).dataKey,
      );
    const error = last?.error && !isOverFailure(row) ? openError(last.error, keys(wrappedKey)) : null;
    statuses.push({
      ...toWire(row),
      recordCount: recordCountOf(row, datasets.get(row.connection) ?? []),
      checkpoint: sealed && (await read().catch(nullIfDeleted)),
      error: error && { code: error.code, message: error.message },
    });
  }
  return statuses;
}

/** For a connection that was deleted after its row was read. */
function nullIfDeleted(error: unknown): null {
  if (error instanceof AppError && error.code === 'unknown_connection') return null;
  throw error;
}

const statusSql = `
  select
    sync.id,
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
    sync.failures,
    exists (
      select from run
      where run.sync_id = sync.id and run.kind = 'sync' and run.state in ('waiting', 'running') and run.owner is not null
      union all
      select from sync_again as again where again.sync_id = sync.id
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
    (select wrapped from data_key where id = connection.data_key) as "wrappedKey",
    (
      select value
      from function_checkpoint
      where connection_id = sync.connection_id and function_id = sync.function_id and variant = sync.variant
    ) as checkpoint,
    sync.connection_id as connection,
    version.definition -> 'models' as models,
    (
      select jsonb_build_object(
        'watched', count(*),
        'open', count(channel.id),
        'expiresAt', min(channel.expires_at),
        'fault', (array_agg(watch.fault order by watch.id) filter (where watch.fault is not null))[1]
      )
      from watch
      left join channel
        on channel.connection_id = watch.connection_id
        and channel.target = watch.target
        and channel.state = 'open'
        and channel.expires_at > $8
      where watch.connection_id = sync.connection_id
        and jsonb_array_length(version.definition -> 'webhook_subscriptions') > 0
      having count(*) > 0
    ) as push
  ${fromSyncs}
  where ${ofPlace}
    and ($6 or ${isNamed})
  order by connection.id, function.name collate "C", sync.variant collate "C"
  limit $7`;

type DatasetCount = { connection: number; variant: string; model: string; records: number };

/** The numbers of records in all datasets of these connections. */
async function countRecords(db: Db, connections: readonly number[]): Promise<Map<number, DatasetCount[]>> {
  if (connections.length === 0) return new Map();
  const rows = await db.query<DatasetCount>(
    'select connection, variant, model, records from dataset where connection = any($1) order by id',
    [[...new Set(connections)]],
  );
  return Map.groupBy(rows, ({ connection }) => connection);
}

function recordCountOf(
  { variant, models }: StatusRow,
  datasets: readonly DatasetCount[],
): SyncStatus['recordCount'] {
  const own = datasets.filter((dataset) => dataset.variant === variant && models.includes(dataset.model));
  return Object.fromEntries(own.map(({ model, records }) => [model, records]));
}

function toWire(row: StatusRow): Omit<SyncStatus, 'checkpoint' | 'error' | 'recordCount'> {
  const { last, state, isRunning } = row;
  const hasFailed = last !== null && last.state !== 'succeeded';
  return {
    id: String(row.id),
    connection_id: row.connectionId,
    name: row.name,
    variant: row.variant,
    type: row.lastSucceededAt === null ? 'INITIAL' : 'INCREMENTAL',
    status: statusOf(row),
    frequency: row.frequencyS === null ? row.frequencyText : formatFrequency(row.frequencyS),
    finishedAt: row.lastEndedAt?.toISOString() ?? null,
    nextScheduledSyncAt: state === 'paused' ? null : (row.nextAt?.toISOString() ?? null),
    latestExecutionStatus: isRunning ? 'RUNNING' : last === null ? null : hasFailed ? 'STOPPED' : 'SUCCESS',
    latestResult: last === null || hasFailed ? {} : changesOf(last.counts),
    held: row.held ? { code: row.held.code, message: row.held.message } : null,
    push: row.push ? pushToWire(row.push) : null,
  };
}

/** A failure whose cause ended with a new authorization of the account. */
function isOverFailure({ last, failures, held }: StatusRow): boolean {
  return last?.state === 'failed' && failures === 0 && held === null;
}

function pushToWire({ watched, open, expiresAt, fault }: NonNullable<StatusRow['push']>): SyncStatus['push'] {
  return {
    state: open === 0 ? 'none' : open < watched ? 'partly' : 'open',
    expires_at: expiresAt === null ? null : new Date(expiresAt).toISOString(),
    error: fault ? { code: fault.code, message: fault.message } : null,
  };
}

function statusOf({ isRunning, state, held, last, failures }: StatusRow): SyncStatus['status'] {
  if (isRunning) return 'RUNNING';
  if (state === 'paused') return 'PAUSED';
  if (held !== null || (last?.state === 'failed' && failures > 0)) return 'ERROR';
  return last?.state === 'succeeded' ? 'SUCCESS' : 'STOPPED';
}

function changesOf(of: RunCounts): Record<string, Omit<ModelCounts, 'unchanged'>> {
  const changes = Object.entries(of).map(([model, { added, updated, deleted }]) => [
    model,
    { added, updated, deleted },
  ]);
  return Object.fromEntries(changes);
}
