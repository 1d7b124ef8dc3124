import type { Tx } from '../db/pool.ts';
import { advanceDataset, type Dataset, rowsAt } from './dataset.ts';
import { hashBytes } from './hash.ts';
import { arrayText, deletePayloads, findPreviousBytes, insertPayloads, replacePayloads } from './payloads.ts';
import type { SealedRecord } from './seal.ts';
import type { Stored } from './stored.ts';

/** A record that takes the next position; `stored` is the row it had before. */
export type Change = {
  record: SealedRecord;
  stored: Stored | undefined;
  /** The names of the fields that changed, sealed: kept where the dataset does not keep the former payload. */
  names?: Buffer | undefined;
};
/** An equal record that was pruned: it gets its payload back where it stands. */
export type Restore = { record: SealedRecord; stored: Stored };

/** New and deleted records are added; the others are updated. */
export function isAddition({ stored }: Change): boolean {
  return stored === undefined || stored.isDeleted;
}

/**
 * Writes changes, in their order, and restores to a locked dataset, its counters along with them. `ignored` is the
 * digest of the fields that the changes' hashes leave out.
 *
 * An updated record keeps beside its payload what is known of the one before: all of it where the dataset keeps it, else
 * the names that came with the change, else nothing. A record that was pruned or deleted has none before.
 */
export async function writeChanges(
  tx: Tx,
  by: { dataset: Dataset; changes: readonly Change[]; restores: readonly Restore[]; ignored: Buffer | null },
): Promise<void> {
  const { changes, restores, ignored } = by;
  if (changes.length + restores.length === 0) return;
  const datasetId = by.dataset.id;
  const moved = changes.flatMap(({ stored }) => stored ?? []);
  const kept = by.dataset.keepPrevious
    ? await findPreviousBytes(tx, { datasetId, seqs: liveOnes(moved) })
    : nothingKept;
  const left = kept.size === 0 ? moved : moved.filter(({ seq }) => !kept.has(seq));
  const freed = await deletePayloads(tx, { datasetId, seqs: left.map(({ seq }) => seq) });
  const { firstSeq, modifiedAt } = await advanceDataset(tx, datasetId, {
    seqs: changes.length,
    records: changes.filter(isAddition).length,
    deleted: -moved.filter(({ isDeleted }) => isDeleted).length,
    pruned: -(left.length - freed.count) - restores.length,
    payloadBytes: bytesOf(by, kept) - freed.bytes,
    ...(restores.length > 0 && { restoredFrom: Math.min(...restores.map(({ stored }) => stored.seq)) }),
  });
  if (changes.length > 0) await writeRecords(tx, { datasetId, firstSeq, modifiedAt, changes, ignored });
  await writePayloads(tx, { datasetId, firstSeq, changes, restores, kept });
  await resize(tx, { datasetId, restores });
}

/** Of updated records whose former payload is kept: the bytes of what was kept of the one before that, by seq. */
type Kept = ReadonlyMap<number, number>;
const nothingKept: Kept = new Map();

function liveOnes(stored: readonly Stored[]): number[] {
  return stored.filter(({ isDeleted }) => !isDeleted).map(({ seq }) => seq);
}

/** What comes to stand, less what is kept no more. A former payload that is kept stood before. */
function bytesOf(by: { changes: readonly Change[]; restores: readonly Restore[] }, kept: Kept): number {
  let bytes = 0;
  for (const { record, stored, names } of by.changes) {
    const isKept = stored !== undefined && kept.has(stored.seq);
    bytes += record.body.length + (isKept ? 0 : (names?.length ?? 0));
  }
  for (const { record } of by.restores) bytes += record.body.length;
  for (const gone of kept.values()) bytes -= gone;
  return bytes;
}

async function writePayloads(
  tx: Tx,
  by: {
    datasetId: number;
    firstSeq: number;
    changes: readonly Change[];
    restores: readonly Restore[];
    kept: Kept;
  },
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
     set size = part.size
     from (
       select
         row_id,
         (select octet_length(body) from payload where dataset_id = $1 and payload.seq = asked.seq) as size
       from unnest($2::bigint[]) as asked (seq)
       ${rowsAt('record')}
     ) as part
     where record.ctid = part.row_id`,
    [by.datasetId, arrayText(resized.map(({ stored }) => stored.seq))],
  );
}
