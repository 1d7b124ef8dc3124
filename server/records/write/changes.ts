import type { Tx } from '../../db/pool.ts';
import { hashBytes } from '../codec/seal.ts';
import type { SealedRecord } from '../codec/thread.ts';
import { advanceDataset, type Dataset, inDataset, type LockedDataset, rowsAt } from '../dataset.ts';
import {
  arrayText,
  deletePayloads,
  findPreviousBytes,
  findPruned,
  findPruneTimes,
  insertPayloads,
  type RecordOwner,
  replacePayloads,
  type Stored,
} from '../rows.ts';
import type { NewerChanges, RunReads } from './run-positions.ts';

/** The writes to the rows and counters of a locked dataset: changes, restores and tombstones. */

/** What a save and an update have in common. */
export type WriteRequest = {
  connection: RecordOwner;
  model: string;
  variant: string;
  /** Changes of other writers, which are not overwritten. Their records count as unchanged. */
  leaves?: NewerChanges | undefined;
  /** Gets the positions of the saved records. */
  reads?: RunReads | undefined;
};

/** A record that takes the next position. `stored` is its row before the change. */
export type Change = {
  record: SealedRecord;
  stored: Stored | undefined;
  /** The sealed names of the changed fields, which are kept if the dataset does not keep the former payload. */
  names?: Buffer | undefined;
};
/** An equal record that was pruned: it gets its payload back and keeps its position. */
export type Restore = { record: SealedRecord; stored: Stored };

/** New and deleted records are added; all others are updated. */
export function isAddition({ stored }: Change): boolean {
  return stored === undefined || stored.isDeleted;
}

type ChangeSet = { changes: readonly Change[]; restores: readonly Restore[] };

/**
 * Writes changes, in their order, and restores to a locked dataset, and updates its counters. `ignored` is the digest
 * of the fields that the hashes of the changes ignore.
 *
 * An updated record keeps beside its payload what is known of the former payload: all of it if the dataset keeps it,
 * else the names that came with the change, else nothing. A record that was pruned or deleted has no former payload.
 */
export async function writeChanges(
  tx: Tx,
  by: ChangeSet & { dataset: LockedDataset; ignored: Buffer | null },
): Promise<void> {
  const { changes, restores, ignored } = by;
  if (changes.length + restores.length === 0) return;
  const { id: datasetId, writeTime: modifiedAt } = by.dataset;
  const moved = changes.flatMap(({ stored }) => stored ?? []);
  const live = moved.filter(({ isDeleted }) => !isDeleted).map(({ seq }) => seq);
  const kept: KeptPayloads = by.dataset.keepPrevious
    ? await findPreviousBytes(tx, { datasetId, seqs: live })
    : new Map();
  const left = kept.size === 0 ? moved : moved.filter(({ seq }) => !kept.has(seq));
  const freed = await deletePayloads(tx, { datasetId, seqs: left.map(({ seq }) => seq) });
  const firstSeq = await advanceDataset(tx, by.dataset, {
    seqs: changes.length,
    records: changes.filter(isAddition).length,
    deleted: live.length - moved.length,
    pruned: -(left.length - freed.count) - restores.length,
    payloadBytes: addedBytes(by, kept) - freed.bytes,
    ...(restores.length > 0 && { restoredFrom: Math.min(...restores.map(({ stored }) => stored.seq)) }),
  });
  if (changes.length > 0) await writeRecords(tx, { datasetId, firstSeq, modifiedAt, changes, ignored });
  await writePayloads(tx, { datasetId, firstSeq, changes, restores, kept });
  await resize(tx, { datasetId, restores });
}

/** The updated records whose former payload is kept: by seq, the bytes of what was kept of the payload before that. */
type KeptPayloads = ReadonlyMap<number, number>;

/** The bytes that are added, minus those of `previous` that are replaced. A kept former payload was already counted. */
function addedBytes({ changes, restores }: ChangeSet, kept: KeptPayloads): number {
  let bytes = 0;
  for (const { record, stored, names } of changes) {
    const isKept = stored !== undefined && kept.has(stored.seq);
    bytes += record.body.length + (isKept ? 0 : (names?.length ?? 0));
  }
  for (const { record } of restores) bytes += record.body.length;
  for (const replaced of kept.values()) bytes -= replaced;
  return bytes;
}

async function writePayloads(
  tx: Tx,
  by: ChangeSet & { datasetId: number; firstSeq: number; kept: KeptPayloads },
): Promise<void> {
  const { datasetId, firstSeq, changes, restores, kept } = by;
  const replaced: { former: number; seq: number; body: Buffer }[] = [];
  const seqs: number[] = [];
  const bodies: Buffer[] = [];
  const previous = new Map<number, Buffer>();
  for (const [index, { record, stored, names }] of changes.entries()) {
    const seq = firstSeq + index;
    if (stored !== undefined && kept.has(stored.seq)) {
      replaced.push({ former: stored.seq, seq, body: record.body });
      continue;
    }
    seqs.push(seq);
    bodies.push(record.body);
    if (names !== undefined) previous.set(seq, names);
  }
  for (const { record, stored } of restores) {
    seqs.push(stored.seq);
    bodies.push(record.body);
  }
  await replacePayloads(tx, { datasetId, rows: replaced });
  await insertPayloads(tx, { datasetId, seqs, bodies, previous });
}

/**
 * Writes the row of every change at its new position. The conflict clause finds the rows that move by the primary key,
 * whatever the planner expects. Without such rows it is left out, which makes a first import faster.
 */
async function writeRecords(
  tx: Tx,
  by: {
    datasetId: number;
    firstSeq: number;
    modifiedAt: string;
    changes: readonly Change[];
    ignored: Buffer | null;
  },
): Promise<void> {
  const hasMoves = by.changes.some(({ stored }) => stored !== undefined);
  await tx.query(
    `insert into record
       (dataset_id, seq, first_seen_at, last_modified_at, size, hash, external_id, ignored)
     select
       $1,
       $2::bigint + part.n - 1,
       $3::timestamptz,
       $3::timestamptz,
       part.size,
       substring($4::bytea from (part.n::int - 1) * ${hashBytes} + 1 for ${hashBytes}),
       part.id,
       $7::bytea
     from unnest($5::text[], $6::int[]) with ordinality as part (id, size, n)
     ${hasMoves ? moveClause : ''}`,
    [
      by.datasetId,
      by.firstSeq,
      by.modifiedAt,
      Buffer.concat(by.changes.map(({ record }) => record.hash)),
      by.changes.map(({ record }) => record.id),
      arrayText(by.changes.map(({ record }) => record.body.length)),
      by.ignored,
    ],
  );
}

const moveClause = `
  on conflict on constraint record_pkey do update
  set
    seq = excluded.seq,
    first_seen_at = case
      when record.deleted_at is null then record.first_seen_at
      else excluded.first_seen_at
    end,
    last_modified_at = excluded.last_modified_at,
    deleted_at = null,
    pruned_at = null,
    size = excluded.size,
    hash = excluded.hash,
    ignored = excluded.ignored`;

/** Updates the sizes of restored payloads, which differ if an ignored field changed. Pages are measured by them. */
async function resize(tx: Tx, by: { datasetId: number; restores: readonly Restore[] }): Promise<void> {
  const resized = by.restores.filter(({ record, stored }) => record.body.length !== stored.size);
  if (resized.length === 0) return;
  await tx.query(
    `update record
     set size = part.size
     from (
       select
         row_id,
         (select octet_length(body) from payload where dataset_id = $1 and payload.seq = asked.seq) as size
       from unnest($2::bigint[]) as asked (seq)
       ${rowsAt('record')}
     ) as part
     where record.ctid = part.row_id and record.${inDataset}`,
    [by.datasetId, arrayText(resized.map(({ stored }) => stored.seq))],
  );
}

/**
 * Makes tombstones of the live records of a locked dataset at `seqs`: each moves to the next position, in the order
 * given, and keeps its last payload. A pruned record stays pruned, and its row gets the time of the prune, since no
 * receipt has its new position. Returns their ids, in that order.
 *
 * One statement for each table, whatever the number of records, and one index probe for each row: see `rowsAt`.
 */
export async function buryRecords(
  tx: Tx,
  by: { dataset: LockedDataset; seqs: readonly number[] },
): Promise<string[]> {
  const { dataset, seqs } = by;
  if (seqs.length === 0) return [];
  const firstSeq = await advanceDataset(tx, dataset, {
    seqs: seqs.length,
    records: -seqs.length,
    deleted: seqs.length,
  });
  const times = await findTimesOfPruned(tx, dataset, seqs);
  const moved = await tx.query<{ id: string; seq: number }>(
    `update record
     set
       seq = $2::bigint + part.at - 1,
       last_modified_at = $5::timestamptz,
       deleted_at = $5::timestamptz,
       pruned_at = part.pruned_at at time zone 'UTC'
     from (
       select row_id, pruned_at, at
       from unnest($3::bigint[], $4::timestamp[]) with ordinality as asked (seq, pruned_at, at)
       ${rowsAt('record')}
     ) as part
     where record.ctid = part.row_id and record.${inDataset}
     returning external_id as id, record.seq`,
    [
      dataset.id,
      firstSeq,
      arrayText(seqs),
      times.size === 0 ? null : seqs.map((seq) => times.get(seq) ?? null),
      dataset.writeTime,
    ],
  );
  await tx.query(
    `update payload
     set seq = $2::bigint + part.at - 1
     from (
       select row_id, at
       from unnest($3::bigint[]) with ordinality as asked (seq, at)
       ${rowsAt('payload')}
     ) as part
     where payload.ctid = part.row_id and payload.${inDataset}`,
    [dataset.id, firstSeq, arrayText(seqs)],
  );
  return moved.sort((a, b) => a.seq - b.seq).map(({ id }) => id);
}

/** Returns the prune times of those records that are pruned. */
async function findTimesOfPruned(
  tx: Tx,
  dataset: Dataset,
  seqs: readonly number[],
): Promise<ReadonlyMap<number, string>> {
  if (dataset.pruned === 0) return new Map();
  const pruned = await findPruned(tx, { datasetId: dataset.id, seqs });
  if (pruned.size === 0) return new Map();
  return findPruneTimes(tx, { datasetId: dataset.id, seqs: [...pruned] });
}
