import type { Tx } from '../db/pool.ts';
import type { DataKey } from '../vault.ts';
import type { Dataset } from './dataset.ts';
import { selectPayloads } from './payloads.ts';
import { openPayload } from './seal.ts';

/** A row of `record` as writers see it. */
export type Stored = {
  id: string;
  seq: number;
  hash: Buffer;
  /** Digest of the fields that were left out of `hash`. */
  ignored: Buffer | null;
  /** Sealed bytes of the payload as last written. */
  size: number;
  isDeleted: boolean;
};

/**
 * Rows that stand under these ids. Nothing is locked or written: an equal record costs no byte of WAL.
 *
 * The two bounds are equality in a form that leaves the order to an index: see `byIndexAlone`. With an order the subquery
 * stays a subquery: as a join the planner might start from the dataset's rows, and take 15 times as long.
 */
export async function findStored(
  tx: Tx,
  dataset: Dataset,
  ids: readonly string[],
): Promise<Map<string, Stored>> {
  if (dataset.records + dataset.deleted === 0 || ids.length === 0) return new Map();
  const rows = await tx.query<Stored>(
    `select asked.id, found.seq, found.hash, found.ignored, found.size, found."isDeleted"
     from unnest($2::text[]) as asked (id)
     cross join lateral (
       select seq, hash, ignored, size, deleted_at is not null as "isDeleted"
       from record
       where dataset_id = $1 and external_id >= asked.id and external_id <= asked.id
       order by external_id
     ) as found`,
    [dataset.id, ids],
  );
  return new Map(rows.map((row) => [row.id, row]));
}

/**
 * Opens the payloads that stand at these rows and hands over the JSON text of one at a time, in the order of positions; pruned ones are
 * passed over. Only what `onPayload` keeps stays in memory.
 */
export async function readStored(
  tx: Tx,
  at: { datasetId: number; dataKey: DataKey; rows: readonly Stored[] },
  onPayload: (row: Stored, text: string) => void,
): Promise<void> {
  if (at.rows.length === 0) return;
  const bySeq = new Map(at.rows.map((row) => [row.seq, row]));
  await tx.copyRows(
    selectPayloads({ datasetId: at.datasetId, seqs: [...bySeq.keys()], columns: 'seq, body' }),
    ([seq, body]) => {
      const row = bySeq.get(Number(seq?.readBigInt64BE()));
      if (row === undefined || body === undefined) return;
      const text = openPayload(body, { ...at, recordId: row.id }).toString('utf8');
      onPayload(row, text);
    },
  );
}
