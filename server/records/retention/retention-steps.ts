import { setImmediate as nextTurn } from 'node:timers/promises';
import type { RetainedTotals } from '../../activity/audit.ts';
import { type Db, first, recordsDb, type Tx } from '../../db/pool.ts';
import { countRecords } from '../../metrics/metrics.ts';
import { inDataset, type LockedDataset, lockDataset, rowsAt } from '../dataset.ts';
import { findLastBefore } from '../read/list.ts';
import { arrayText, deletePayloads, rowBytes } from '../rows.ts';
import { slowestPosition } from './consumers.ts';
import type { RetentionPolicy } from './policy.ts';
import { removePayloads } from './prune.ts';
import { type Receipt, writeReceipt } from './receipt.ts';

/** The steps of retention. Each is one transaction that holds the lock of its dataset for at most about 50 ms. */

/** A dataset that has payloads or tombstones to remove. */
export type DueDataset = Receipt['dataset'] & { connection: number; environmentId: number; target: string };

/** The totals that retention has removed: `bytes` are sealed bytes of payloads and of contents of tombstones. */
export type PurgeTotals = RetainedTotals;

export const noPurge: PurgeTotals = { payloads: 0, bytes: 0, tombstones: 0 };

export function addPurges(a: PurgeTotals, b: PurgeTotals): PurgeTotals {
  return {
    payloads: a.payloads + b.payloads,
    bytes: a.bytes + b.bytes,
    tombstones: a.tombstones + b.tombstones,
  };
}

/** SQL: the policy of a connection's datasets, which is that of its integration, else that of the environment. */
export const policyOfConnection = `
     cross join lateral (
       select *
       from retention
       where
         retention.environment_id = connection.environment_id
         and (integration_id = integration.id or integration_id is null)
       order by integration_id nulls last
       limit 1
     ) as policy`;

/** The limits of a step: a few milliseconds of work. */
const stepRecords = 500;
const stepBytes = 2 * 1024 * 1024;
const minRecords = 20;
/** After a step that held the lock for longer, the next step takes half as many records, until steps are fast again. */
const slowMs = 25;

/** The number of records of the next step, adapted to the duration of the steps before. */
type Pace = {
  readonly records: number;
  /** Must be called with the time that a step held the lock. */
  held(ms: number): void;
};

export function createPace(): Pace {
  let records = stepRecords;
  return {
    get records() {
      return records;
    },
    held(ms) {
      if (ms > slowMs) records = Math.max(minRecords, Math.floor(records / 2));
      else if (ms < slowMs / 2) records = Math.min(stepRecords, records * 2);
    },
  };
}

type DatasetWork = {
  due: DueDataset;
  now: Date;
  signal: AbortSignal | undefined;
  pace: Pace;
  /** Milliseconds of a monotonic clock. */
  clock: () => number;
};
type Removed = Omit<Receipt, 'dataset'>;
type Step = (
  tx: Tx,
  by: { dataset: LockedDataset; until: number; records: number },
) => Promise<Removed | undefined>;

/** Removes the due payloads and then the due tombstones of a dataset. Returns the totals. */
export async function retainDataset(db: Db, work: DatasetWork): Promise<PurgeTotals> {
  const payloads = await takeSteps(db, {
    ...work,
    daysOf: (policy) => policy.pruneAfterDays,
    step: prunePayloads,
    countOf: ({ count, bytes }) => ({ payloads: count, bytes, tombstones: 0 }),
  });
  const tombstones = await takeSteps(db, {
    ...work,
    daysOf: (policy) => policy.removeTombstonesAfterDays,
    step: removeTombstones,
    countOf: ({ count, bytes }) => ({ payloads: 0, bytes, tombstones: count }),
  });
  return addPurges(payloads, tombstones);
}

/**
 * Takes steps until a step finds nothing left. Before each step, the policy is read again: the steps end if it was removed.
 * A step locks the dataset, reads the limit again, and writes its receipt with its totals, so that these are reported even if
 * the run does not finish.
 */
async function takeSteps(
  db: Db,
  by: DatasetWork & {
    daysOf: (policy: RetentionPolicy) => number | null;
    step: Step;
    countOf: (removed: Removed) => PurgeTotals;
  },
): Promise<PurgeTotals> {
  const { due, now, signal, pace, clock } = by;
  let total = noPurge;
  while (!signal?.aborted) {
    const policy = await findPolicy(db, due.connection);
    const days = policy && by.daysOf(policy);
    if (policy === undefined || days === null || days === undefined) break;
    let lockedAt = clock();
    const removed = await recordsDb(db, due.id).transaction(async (tx) => {
      const dataset = await lockDataset(tx, due.id);
      lockedAt = clock();
      // Another job removes its rows, or its leftovers first.
      if (dataset === undefined || dataset.isClosed || dataset.hasLeftovers) return undefined;
      const before = new Date(now.getTime() - days * dayMs).toISOString();
      const aged = await findLastBefore(tx, { dataset, time: before });
      const slowest = policy.waitForConsumers ? await slowestPosition(tx, dataset.id) : undefined;
      const until = Math.min(aged, slowest ?? aged);
      const step = await by.step(tx, { dataset, until, records: pace.records });
      if (step === undefined) return undefined;
      const remover = { environmentId: due.environmentId, actor: 'retention', target: due.target };
      writeReceipt(tx, remover, { ...step, dataset: due, retained: by.countOf(step) });
      return step;
    });
    if (removed === undefined) break;
    pace.held(clock() - lockedAt);
    const gone = by.countOf(removed);
    countRecords({ pruned: gone.payloads, removed: gone.tombstones });
    total = addPurges(total, gone);
    await nextTurn();
  }
  return total;
}

const dayMs = 86_400_000;

/** Undefined if the datasets of the connection have no policy or it is deleted. */
async function findPolicy(db: Db, connection: number): Promise<RetentionPolicy | undefined> {
  const rows = await db.query<RetentionPolicy>(
    `select
       policy.prune_after_days as "pruneAfterDays",
       policy.remove_tombstones_after_days as "removeTombstonesAfterDays",
       policy.wait_for_consumers as "waitForConsumers"
     from connection
     join integration on integration.id = connection.integration_id
     ${policyOfConnection}
     where connection.id = $1 and connection.deleted_at is null`,
    [connection],
  );
  return first(rows);
}

/** Removes the oldest payloads up to `until`. Undefined if there are none. */
async function prunePayloads(
  tx: Tx,
  { dataset, until, records }: Parameters<Step>[1],
): Promise<Removed | undefined> {
  if (until <= dataset.pruneFloor) return undefined;
  const rows = await tx.query<{ seq: number; size: number }>(
    `select seq, ${rowBytes} as size
     from payload
     where dataset_id = $1 and seq > $2 and seq <= $3
     order by seq
     limit $4`,
    [dataset.id, dataset.pruneFloor, until, records],
  );
  const end = cutStep(rows).at(-1)?.seq;
  if (end === undefined) return undefined;
  const { count, bytes } = await removePayloads(tx, { dataset, end });
  return { action: 'records.pruned', until: end, count, bytes };
}

/** Removes the oldest tombstones up to `until`, with the payloads that they still have. Undefined if there are none. */
async function removeTombstones(
  tx: Tx,
  { dataset, until, records }: Parameters<Step>[1],
): Promise<Removed | undefined> {
  const rows = await tx.query<{ seq: number; size: number }>(
    `select seq, size
     from record
     where dataset_id = $1 and deleted_at is not null and seq <= $2
     order by seq
     limit $3`,
    [dataset.id, until, records],
  );
  const seqs = cutStep(rows).map(({ seq }) => seq);
  const end = seqs.at(-1);
  if (end === undefined) return undefined;
  const freed = await deletePayloads(tx, { datasetId: dataset.id, seqs });
  const gone = await tx.query<{ count: number }>(
    `with gone as (
       delete from record
       using (select row_id from unnest($2::bigint[]) as asked (seq) ${rowsAt('record')}) as part
       where record.ctid = part.row_id and record.${inDataset}
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
  const count = first(gone)?.count ?? 0;
  return { action: 'records.tombstones_removed', until: end, count, bytes: freed.bytes };
}

/** Returns the first rows, up to the row that brings them to `stepBytes`. */
function cutStep<R extends { size: number }>(rows: readonly R[]): R[] {
  let bytes = 0;
  const end = rows.findIndex(({ size }) => {
    bytes += size;
    return bytes >= stepBytes;
  });
  return end < 0 ? [...rows] : rows.slice(0, end + 1);
}
