import type { Tx } from '../db/pool.ts';
import { lockDataset } from './dataset.ts';
import { queueDatasetEvent } from './dataset-event.ts';
import { closeTracking } from './track-deletes.ts';

/**
 * Removes every record of a dataset, tombstones and receipts too, without a trace in its feed. The dataset, its settings
 * and its last position stay, so cursors stay good and what is saved again comes after them. Readers learn of it by the
 * event `records.dataset_emptied`, or by a list with `unless_emptied`, which refuses cursors from before. An open delete
 * tracking ends. False where the dataset is gone.
 */
export async function emptyDataset(tx: Tx, datasetId: number): Promise<boolean> {
  const dataset = await lockDataset(tx, datasetId);
  if (dataset === undefined) return false;
  await closeTracking(tx, datasetId);
  for (const table of ['payload', 'record', 'prune'] as const) {
    await tx.query(`delete from ${table} where dataset_id = $1`, [datasetId]);
  }
  // Where it held nothing, nobody holds what it held.
  await tx.query(
    `update dataset
     set
       records = 0,
       deleted = 0,
       pruned = 0,
       payload_bytes = 0,
       prune_floor = last_seq,
       emptied_seq = case when records + deleted > 0 then last_seq else emptied_seq end
     where id = $1`,
    [datasetId],
  );
  await queueDatasetEvent(tx, {
    datasetId,
    type: 'records.dataset_emptied',
    data: { records: dataset.records, deleted: dataset.deleted },
  });
  return true;
}
