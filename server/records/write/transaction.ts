import { type Db, recordsDb, type Tx } from '../../db/pool.ts';
import type { LockedDataset } from '../dataset.ts';
import { lockForWrite } from '../datasets.ts';
import { removeLeftovers } from '../leftovers.ts';

/**
 * A transaction that writes to a dataset, which `lockForWrite` locks. First removes what is left from before the dataset
 * was emptied, without holding the lock between two steps.
 */
export async function writeTransaction<T>(
  db: Db,
  at: { connection: number; datasetId: number },
  work: (tx: Tx, dataset: LockedDataset) => Promise<T>,
): Promise<T> {
  for (;;) {
    const written = await recordsDb(db, at.datasetId).transaction(async (tx) => {
      const dataset = await lockForWrite(tx, at);
      return dataset.hasLeftovers ? undefined : { result: await work(tx, dataset) };
    });
    if (written !== undefined) return written.result;
    await removeLeftovers(db, at.datasetId);
  }
}
