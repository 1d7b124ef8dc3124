import type { Db, Tx } from '../../db/pool.ts';
import { countRecords } from '../../metrics/metrics.ts';
import { type DatasetName, findDataset, lockDataset } from '../dataset.ts';
import { findEventOwner, queueDatasetEvent } from '../datasets.ts';
import { findStored } from '../rows.ts';
import { buryRecords } from './changes.ts';
import type { NewerChanges } from './run-positions.ts';
import { closeTracking } from './track-deletes.ts';
import { writeTransaction } from './transaction.ts';

type DeleteResult = {
  /** The number of records that this call deleted. */
  count: number;
  /** Ids of records that were already deleted, and did not change. */
  alreadyDeleted: string[];
  /** Ids without a record. */
  missing: string[];
};

/**
 * Deletes records in one transaction: each becomes a tombstone at the next position and keeps its last payload. The
 * same call again changes nothing. Throws `unknown_connection` if the connection was deleted meanwhile.
 */
export async function deleteRecords(
  db: Db,
  request: DatasetName & {
    ids: readonly string[];
    /** Changes of other writers, which are not overwritten. */
    leaves?: NewerChanges | undefined;
  },
): Promise<DeleteResult> {
  const ids = [...new Set(request.ids)];
  const known = await findDataset(db, request);
  if (known === undefined || ids.length === 0) return { count: 0, alreadyDeleted: [], missing: ids };
  const { leaves } = request;
  const at = { connection: request.connection, datasetId: known.id };
  const { taken, ...deleted } = await writeTransaction(db, at, async (tx, dataset) => {
    const stored = await findStored(tx, dataset, ids);
    const live = ids
      .flatMap((id) => stored.get(id) ?? [])
      .filter(({ seq, isDeleted }) => !isDeleted && !leaves?.isOthers(seq));
    await buryRecords(tx, { dataset, seqs: live.map(({ seq }) => seq) });
    return {
      taken: { first: dataset.lastSeq + 1, count: live.length },
      count: live.length,
      alreadyDeleted: ids.filter((id) => stored.get(id)?.isDeleted),
      missing: ids.filter((id) => !stored.has(id)),
    };
  });
  leaves?.addOwn(taken);
  countRecords({ deleted: deleted.count });
  return deleted;
}

/**
 * Removes every record of a dataset, also tombstones and receipts, without a trace in its feed. Takes the same time for any
 * number of records: their rows stay for a while, as `leftovers.ts` describes, and no caller sees them. The dataset, its
 * settings and its last position stay, so cursors stay valid and later records come after them. Readers are notified by
 * the event `records.dataset_emptied`, or by a list with `unless_emptied`, which refuses older cursors. An open delete
 * tracking ends. Returns false if the dataset is gone.
 */
export async function emptyDataset(tx: Tx, datasetId: number): Promise<boolean> {
  const dataset = await lockDataset(tx, datasetId);
  if (dataset === undefined) return false;
  await closeTracking(tx, datasetId);
  const isVacant = dataset.records + dataset.deleted === 0;
  if (isVacant && !dataset.hasLeftovers)
    await tx.query('delete from prune where dataset_id = $1', [datasetId]);
  // If the dataset had no records, no reader has a copy of them.
  await tx.query(
    `update dataset
     set
       records = 0,
       deleted = 0,
       pruned = 0,
       payload_bytes = 0,
       prune_floor = last_seq,
       emptied_seq = case when $2 then emptied_seq else last_seq end,
       has_leftovers = has_leftovers or not $2
     where id = $1`,
    [datasetId, isVacant],
  );
  const owner = await findEventOwner(tx, dataset.connection);
  queueDatasetEvent(
    tx,
    { dataset, owner },
    { type: 'records.dataset_emptied', data: { records: dataset.records, deleted: dataset.deleted } },
  );
  return true;
}
