import type { Tx } from '../db/pool.ts';
import { advanceDataset, type Dataset } from './dataset.ts';
import { hashBytes } from './hash.ts';
import { arrayText, deletePayloads, insertPayloads } from './payloads.ts';
import type { SealedRecord } from './seal.ts';
import type { Stored } from './stored.ts';

/** A record that takes the next position; `stored` is the row it had before. */
export type Change = { record: SealedRecord; stored: Stored | undefined };
/** An equal record that was pruned: it gets its payload back where it stands. */
export type Restore = { record: SealedRecord; stored: Stored };

/** New and deleted records are added; the others are updated. */
export function isAddition({ stored }: Change): boolean {
  return stored === undefined || stored.isDeleted;
}

/**
 * Writes changes, in their order, and restores to a locked dataset, its counters along with them. `ignored` is the
 * digest of the fields that the changes' hashes leave out.
 */
export async function writeChanges(
  tx: Tx,
  by: { dataset: Dataset; changes: readonly Change[]; restores: readonly Restore[]; ignored: Buffer | null },
): Promise<void> {
  const { changes, restores, ignored } = by;
  if (changes.length + restores.length === 0) return;
  const datasetId = by.dataset.id;
  const moved = changes.flatMap(({ stored }) => stored ?? []);
  const freed = await deletePayloads(tx, { datasetId, seqs: moved.map(({ seq }) => seq) });
  const bodies = [...changes, ...restores].map(({ record }) => record.body);
  const { firstSeq, modifiedAt } = await advanceDataset(tx, datasetId, {
    seqs: changes.length,
    records: changes.filter(isAddition).length,
    deleted: -moved.filter(({ isDeleted }) => isDeleted).length,
    pruned: -(moved.length - freed.count) - restores.length,
    payloadBytes: bodies.reduce((sum, body) => sum + body.length, 0) - freed.bytes,
    ...(restores.length > 0 && { restoredFrom: Math.min(...restores.map(({ stored }) => stored.seq)) }),
  });
  if (changes.length > 0) await writeRecords(tx, { datasetId, firstSeq, modifiedAt, changes, ignored });
  await insertPayloads(tx, {
    datasetId,
    seqs: [...changes.map((_, index) => firstSeq + index), ...restores.map(({ stored }) => stored.seq)],
    bodies,
  });
  await resize(tx, { datasetId, restores });
}

/**
 * Gives every change its row at its new position. The conflict clause finds the rows that move by the primary key
 * whatever the planner knows; without any it is left out, which makes a first import faster.
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

/** An ignored field may have given a restored payload another size, by which pages are measured. */
async function resize(tx: Tx, by: { datasetId: number; restores: readonly Restore[] }): Promise<void> {
  const resized = by.restores.filter(({ record, stored }) => record.body.length !== stored.size);
  if (resized.length === 0) return;
  await tx.query(
    `update record
     set size = (
       select octet_length(body)
       from payload
       where payload.dataset_id = record.dataset_id and payload.seq = record.seq
     )
     where dataset_id = $1 and seq = any($2::bigint[])`,
    [by.datasetId, arrayText(resized.map(({ stored }) => stored.seq))],
  );
}
