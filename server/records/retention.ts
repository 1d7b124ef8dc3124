import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Db, first, type Tx } from '../db/pool.ts';
import { queueEvent } from '../events/outbox.ts';
import { slowestPosition } from './consumers.ts';
import { type Dataset, lockDataset, planByIndexAlone } from './dataset.ts';
import { findLastBefore } from './list.ts';
import { arrayText, deletePayloads } from './payloads.ts';
import { removePayloads } from './prune.ts';
import { type Receipt, writeReceipt } from './receipt.ts';
import { noteStaleConsumers } from './stale.ts';

/**
 * Retention: lets go by age what a policy names, in small steps.
 *
 * Owns: what is due, the steps, the removal of tombstones. Does not own: policies (`policy.ts`), who follows
 * (`consumers.ts`, `stale.ts`), how a payload goes (`prune.ts`), datasets whose connection is gone (`destroy.ts`), or
 * when it runs (`main.ts`, by a job).
 */

/** A step takes at most this much, so that it holds its dataset's lock for a few milliseconds. */
const stepRecords = 500;
const stepBytes = 2 * 1024 * 1024;

const dayMs = 86_400_000;

export type Retained = { payloads: number; bytes: number; tombstones: number };

/**
 * Lets everything go that is due at `now`, dataset by dataset, until done or until `signal` says to stop; the rest is
 * found again by the next call. Several nodes may run it at once. Each step is one transaction with its receipt in
 * the audit log; an environment where something went is told so by `records.retention_done`.
 */
export async function runRetention(
  db: Db,
  { now, signal }: { now: Date; signal?: AbortSignal },
): Promise<Retained> {
  await noteStaleConsumers(db, now);
  const byEnvironment = new Map<number, Retained & { datasets: number }>();
  const failures: unknown[] = [];
  for (const due of await findDue(db, now)) {
    if (signal?.aborted) break;
    // One dataset that fails keeps no other waiting.
    const went = await retainDataset(db, { due, now, signal }).catch((error: unknown) => {
      failures.push(error);
      return nothing;
    });
    if (went.payloads + went.tombstones === 0) continue;
    const before = byEnvironment.get(due.environmentId) ?? { datasets: 0, ...nothing };
    byEnvironment.set(due.environmentId, { datasets: before.datasets + 1, ...sum(before, went) });
  }
  for (const [environmentId, { datasets, ...went }] of byEnvironment) {
    await queueEvent(db, {
      environmentId,
      type: 'records.retention_done',
      data: { datasets, pruned: went.payloads, bytes: went.bytes, tombstones_removed: went.tombstones },
    });
  }
  if (failures.length > 0) throw new AggregateError(failures, 'retention goes on later in some datasets');
  return [...byEnvironment.values()].reduce<Retained>(sum, nothing);
}

const nothing: Retained = { payloads: 0, bytes: 0, tombstones: 0 };

function sum(a: Retained, b: Retained): Retained {
  return {
    payloads: a.payloads + b.payloads,
    bytes: a.bytes + b.bytes,
    tombstones: a.tombstones + b.tombstones,
  };
}

type Due = { datasetId: number; model: string; variant: string; environmentId: number; target: string };

type Policy = {
  pruneAfterDays: number | null;
  removeTombstonesAfterDays: number | null;
  waitsForConsumers: boolean;
};

/** The policy that holds for a connection's datasets: its integration's, else the environment's. */
const policyOfConnection = `
     cross join lateral (
       select *
       from retention
       where
         retention.environment_id = connection.environment_id
         and (integration_id = integration.id or integration_id is null)
       order by integration_id nulls last
       limit 1
     ) as policy`;

/** Datasets whose oldest payload or oldest tombstone is older than their policy wants: two index probes each. */
function findDue(db: Db, now: Date): Promise<Due[]> {
  return db.transaction(async (tx) => {
    await planByIndexAlone(tx);
    return tx.query<Due>(
      `select
       dataset.id as "datasetId",
       dataset.model,
       dataset.variant,
       connection.environment_id as "environmentId",
       integration.key || '/' || connection.connection_id as target
     from connection
     join integration on integration.id = connection.integration_id
     ${policyOfConnection}
     join dataset on dataset.connection = connection.id
     where
       connection.deleted_at is null
       and (
         (
           dataset.pruned < dataset.records + dataset.deleted
           and (
             select last_modified_at
             from record
             where dataset_id = dataset.id and seq = (
               select seq
               from payload
               where dataset_id = dataset.id and seq > dataset.prune_floor
               order by seq
               limit 1
             )
           ) < $1::timestamptz - make_interval(days => policy.prune_after_days)
         ) or (
           dataset.deleted > 0
           and (
             select last_modified_at
             from record
             where dataset_id = dataset.id and deleted_at is not null
             order by seq
             limit 1
           ) < $1::timestamptz - make_interval(days => policy.remove_tombstones_after_days)
         )
       )
     order by dataset.id`,
      [now],
    );
  });
}

type Work = { due: Due; now: Date; signal: AbortSignal | undefined };
type Step = (tx: Tx, by: { due: Due; dataset: Dataset; until: number }) => Promise<Receipt | undefined>;

async function retainDataset(db: Db, work: Work): Promise<Retained> {
  const payloads = await takeSteps(db, {
    ...work,
    daysOf: (policy) => policy.pruneAfterDays,
    step: prunePayloads,
  });
  const tombstones = await takeSteps(db, {
    ...work,
    daysOf: (policy) => policy.removeTombstonesAfterDays,
    step: removeTombstones,
  });
  return {
    payloads: payloads.count,
    bytes: payloads.bytes + tombstones.bytes,
    tombstones: tombstones.count,
  };
}

/**
 * Steps until one finds nothing left: each locks the dataset, asks anew what the policy says and how far it may go,
 * and writes its receipt. A policy that was taken back ends it.
 */
async function takeSteps(
  db: Db,
  { due, now, signal, daysOf, step }: Work & { daysOf: (policy: Policy) => number | null; step: Step },
): Promise<{ count: number; bytes: number }> {
  const went = { count: 0, bytes: 0 };
  while (!signal?.aborted) {
    const receipt = await db.transaction(async (tx) => {
      const dataset = await lockDataset(tx, due.datasetId);
      const policy = await findPolicy(tx, due.datasetId);
      const days = policy && daysOf(policy);
      if (dataset === undefined || policy === undefined || days === null || days === undefined)
        return undefined;
      const before = new Date(now.getTime() - days * dayMs).toISOString();
      const aged = await findLastBefore(tx, { dataset, time: before });
      const slowest = policy.waitsForConsumers ? await slowestPosition(tx, dataset.id) : undefined;
      const written = await step(tx, { due, dataset, until: Math.min(aged, slowest ?? aged) });
      if (written !== undefined) {
        await writeReceipt(
          tx,
          { environmentId: due.environmentId, actor: 'retention', target: due.target },
          written,
        );
      }
      return written;
    });
    if (receipt === undefined) break;
    went.count += receipt.count;
    went.bytes += receipt.bytes;
    await nextTurn();
  }
  return went;
}

/** Undefined where no policy holds for the dataset, or its connection is deleted. */
async function findPolicy(tx: Tx, datasetId: number): Promise<Policy | undefined> {
  const rows = await tx.query<Policy>(
    `select
       policy.prune_after_days as "pruneAfterDays",
       policy.remove_tombstones_after_days as "removeTombstonesAfterDays",
       policy.wait_for_consumers as "waitsForConsumers"
     from dataset
     join connection on connection.id = dataset.connection
     join integration on integration.id = connection.integration_id
     ${policyOfConnection}
     where dataset.id = $1 and connection.deleted_at is null`,
    [datasetId],
  );
  return first(rows);
}

/** The oldest payloads up to `until`; undefined where there are none. */
async function prunePayloads(
  tx: Tx,
  { due, dataset, until }: Parameters<Step>[1],
): Promise<Receipt | undefined> {
  if (until <= dataset.pruneFloor) return undefined;
  const rows = await tx.query<{ seq: number; size: number }>(
    `select seq, octet_length(body) as size
     from payload
     where dataset_id = $1 and seq > $2 and seq <= $3
     order by seq
     limit $4`,
    [dataset.id, dataset.pruneFloor, until, stepRecords],
  );
  const end = cut(rows).at(-1)?.seq;
  if (end === undefined) return undefined;
  const { count, bytes } = await removePayloads(tx, { dataset, end });
  return { action: 'records.pruned', dataset: nameOf(due), until: end, count, bytes };
}

/** The oldest tombstones up to `until`, with what payloads they still have; undefined where there are none. */
async function removeTombstones(
  tx: Tx,
  { due, dataset, until }: Parameters<Step>[1],
): Promise<Receipt | undefined> {
  const rows = await tx.query<{ seq: number; size: number }>(
    `select seq, size
     from record
     where dataset_id = $1 and deleted_at is not null and seq <= $2
     order by seq
     limit $3`,
    [dataset.id, until, stepRecords],
  );
  const seqs = cut(rows).map(({ seq }) => seq);
  const end = seqs.at(-1);
  if (end === undefined) return undefined;
  const freed = await deletePayloads(tx, { datasetId: dataset.id, seqs });
  const gone = await tx.query<{ count: number }>(
    `with gone as (
       delete from record
       where dataset_id = $1 and seq = any($2::bigint[])
       returning 1
     ),
     total as (select count(*) as count from gone)
     update dataset
     set
       deleted = deleted - total.count,
       pruned = pruned - (total.count - $3::bigint),
       payload_bytes = payload_bytes - $4::bigint,
       tombstone_floor = greatest(tombstone_floor, $5::bigint)
     from total
     where id = $1
     returning total.count as count`,
    [dataset.id, arrayText(seqs), freed.count, freed.bytes, end],
  );
  return {
    action: 'records.tombstones_removed',
    dataset: nameOf(due),
    until: end,
    count: first(gone)?.count ?? 0,
    bytes: freed.bytes,
  };
}

/** The first rows, up to the one that brings them to `stepBytes`. */
function cut<R extends { size: number }>(rows: readonly R[]): R[] {
  let bytes = 0;
  const end = rows.findIndex(({ size }) => {
    bytes += size;
    return bytes >= stepBytes;
  });
  return end < 0 ? [...rows] : rows.slice(0, end + 1);
}

function nameOf({ datasetId, model, variant }: Due): Receipt['dataset'] {
  return { id: datasetId, model, variant };
}
