import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Db, first, type Tx } from '../db/pool.ts';
import { countRecords } from '../metrics/metrics.ts';
import { slowestPosition } from './consumers.ts';
import { type Dataset, lockDataset, rowsAt } from './dataset.ts';
import { findLastBefore } from './list.ts';
import { arrayText, deletePayloads, rowBytes } from './payloads.ts';
import { removePayloads } from './prune.ts';
import { type Receipt, writeReceipt } from './receipt.ts';
import { noteRetained, nothing, type PurgeTotals, sum } from './retained.ts';

/** The steps of retention: each one transaction that holds its dataset's lock for at most some 50 ms. */

export type Due = {
  datasetId: number;
  model: string;
  variant: string;
  environmentId: number;
  target: string;
};

type Policy = {
  pruneAfterDays: number | null;
  removeTombstonesAfterDays: number | null;
  waitsForConsumers: boolean;
};

/** The policy that holds for a connection's datasets: its integration's, else the environment's. */
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

/** A step takes at most this much: a few milliseconds of work. */
const stepRecords = 500;
const stepBytes = 2 * 1024 * 1024;
const minRecords = 20;
/** A step that held the lock longer is followed by one of half as many records, until they are quick again. */
const slowMs = 25;

/** How many records a step takes, as the ones before it went. */
type Pace = {
  readonly records: number;
  /** Tells how long a step held the lock. */
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

type Work = {
  due: Due;
  now: Date;
  signal: AbortSignal | undefined;
  pace: Pace;
  /** Milliseconds since some moment. */
  clock: () => number;
};
type Step = (
  tx: Tx,
  by: { due: Due; dataset: Dataset; until: number; records: number },
) => Promise<Receipt | undefined>;

/** Removes the due payloads and then the due tombstones of a dataset. Returns the totals. */
export async function retainDataset(db: Db, work: Work): Promise<PurgeTotals> {
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
  return sum(payloads, tombstones);
}

/**
 * Takes steps until a step finds nothing left: each locks the dataset, reads the policy and its limit again, and writes
 * its receipt and its totals. A policy that was withdrawn ends the steps.
 */
async function takeSteps(
  db: Db,
  by: Work & {
    daysOf: (policy: Policy) => number | null;
    step: Step;
    countOf: (receipt: Receipt) => PurgeTotals;
  },
): Promise<PurgeTotals> {
  const { due, now, signal, pace, clock } = by;
  let went = nothing;
  while (!signal?.aborted) {
    let lockedAt = clock();
    const receipt = await db.transaction(async (tx) => {
      const dataset = await lockDataset(tx, due.datasetId);
      lockedAt = clock();
      const policy = await findPolicy(tx, due.datasetId);
      const days = policy && by.daysOf(policy);
      if (dataset === undefined || policy === undefined || days === null || days === undefined)
        return undefined;
      const before = new Date(now.getTime() - days * dayMs).toISOString();
      const aged = await findLastBefore(tx, { dataset, time: before });
      const slowest = policy.waitsForConsumers ? await slowestPosition(tx, dataset.id) : undefined;
      const until = Math.min(aged, slowest ?? aged);
      const written = await by.step(tx, { due, dataset, until, records: pace.records });
      if (written === undefined) return undefined;
      const remover = { environmentId: due.environmentId, actor: 'retention', target: due.target };
      await writeReceipt(tx, remover, written);
      await noteRetained(tx, due, by.countOf(written));
      return written;
    });
    if (receipt === undefined) break;
    pace.held(clock() - lockedAt);
    const gone = by.countOf(receipt);
    countRecords({ pruned: gone.payloads, removed: gone.tombstones });
    went = sum(went, gone);
    await nextTurn();
  }
  return went;
}

const dayMs = 86_400_000;

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
  { due, dataset, until, records }: Parameters<Step>[1],
): Promise<Receipt | undefined> {
  if (until <= dataset.pruneFloor) return undefined;
  const rows = await tx.query<{ seq: number; size: number }>(
    `select seq, ${rowBytes} as size
     from payload
     where dataset_id = $1 and seq > $2 and seq <= $3
     order by seq
     limit $4`,
    [dataset.id, dataset.pruneFloor, until, records],
  );
  const end = cut(rows).at(-1)?.seq;
  if (end === undefined) return undefined;
  const { count, bytes } = await removePayloads(tx, { dataset, end });
  return { action: 'records.pruned', dataset: nameOf(due), until: end, count, bytes };
}

/** The oldest tombstones up to `until`, with what payloads they still have; undefined where there are none. */
async function removeTombstones(
  tx: Tx,
  { due, dataset, until, records }: Parameters<Step>[1],
): Promise<Receipt | undefined> {
  const rows = await tx.query<{ seq: number; size: number }>(
    `select seq, size
     from record
     where dataset_id = $1 and deleted_at is not null and seq <= $2
     order by seq
     limit $3`,
    [dataset.id, until, records],
  );
  const seqs = cut(rows).map(({ seq }) => seq);
  const end = seqs.at(-1);
  if (end === undefined) return undefined;
  const freed = await deletePayloads(tx, { datasetId: dataset.id, seqs });
  const gone = await tx.query<{ count: number }>(
    `with gone as (
       delete from record
       using (select row_id from unnest($2::bigint[]) as asked (seq) ${rowsAt('record')}) as part
       where record.ctid = part.row_id
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
