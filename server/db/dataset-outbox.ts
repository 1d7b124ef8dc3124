import { randomUUID } from 'node:crypto';
import type { Queryable, Tx } from './pool.ts';
import type { SequenceName } from './sequencer.ts';

/**
 * Writes an entry of the audit log or an event beside the records of a dataset, so that the transaction changes the rows
 * of that dataset alone. The sequencer copies it once, whatever happens to the dataset: see `Sequence`. `columns` are
 * those of the row, by their names.
 */
export function writeToOutbox(
  tx: Tx,
  entry: { datasetId: number; sequence: SequenceName; columns: Record<string, unknown> },
): void {
  const { datasetId, sequence, columns } = entry;
  // Hexadecimal digits cannot end the text.
  const json = Buffer.from(JSON.stringify(columns)).toString('hex');
  tx.runWithCommit(
    `insert into dataset_outbox (dataset_id, id, sequence, entry)
     values (
       ${datasetId},
       '${randomUUID()}',
       '${sequence}',
       convert_from(decode('${json}', 'hex'), 'UTF8')::jsonb
     )`,
  );
}

/** Removes the entries for which the SQL `isSettled` holds. Several nodes may do it at once: none waits for another. */
export async function removeFromOutbox(
  q: Queryable,
  of: { sequence: SequenceName; from: string; isSettled: string },
): Promise<void> {
  await q.query(
    `delete from dataset_outbox
     using (
       select ctid as row_id
       from dataset_outbox
       where sequence = '${of.sequence}' and written_in >= $1::xid8 and (${of.isSettled})
       for update skip locked
     ) as settled
     where dataset_outbox.ctid = settled.row_id`,
    [of.from],
  );
}
