import { holdConnection } from '../connections/store.ts';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { countRecords } from '../metrics/metrics.ts';
import { type DatasetName, findDataset, lockDataset } from './dataset.ts';
import type { NewerChanges } from './newer-changes.ts';
import { findStored } from './stored.ts';
import { buryRecords } from './tombstones.ts';

type DeleteResult = {
  /** Records that were deleted by this call. */
  count: number;
  /** Ids of records that were deleted before: nothing changed about them. */
  alreadyDeleted: string[];
  /** Ids that no record has. */
  missing: string[];
};

/**
 * Deletes records: each becomes a tombstone at the next position and keeps the payload it had last. All of it or
 * nothing; the same call again changes nothing. Throws `unknown_connection` where the connection was deleted meanwhile.
 */
export async function deleteRecords(
  db: Db,
  request: DatasetName & {
    ids: readonly string[];
    /** What others changed meanwhile stays as it is. */
    leaves?: NewerChanges | undefined;
  },
): Promise<DeleteResult> {
  const ids = [...new Set(request.ids)];
  const known = await findDataset(db, request);
  if (known === undefined || ids.length === 0) return { count: 0, alreadyDeleted: [], missing: ids };
  const { leaves } = request;
  let taken: { first: number; count: number } | undefined;
  const deleted = await db.transaction(async (tx) => {
    await holdConnection(tx, request.connection);
    const dataset = await lockDataset(tx, known.id);
    if (dataset === undefined) throw new AppError('unknown_connection');
    const stored = await findStored(tx, dataset, ids);
    const live = ids
      .flatMap((id) => stored.get(id) ?? [])
      .filter(({ seq, isDeleted }) => !isDeleted && !leaves?.isOthers(seq));
    await buryRecords(tx, { dataset, seqs: live.map(({ seq }) => seq) });
    taken = { first: dataset.lastSeq + 1, count: live.length };
    return {
      count: live.length,
      alreadyDeleted: ids.filter((id) => stored.get(id)?.isDeleted),
      missing: ids.filter((id) => !stored.has(id)),
    };
  });
  if (taken !== undefined) leaves?.noteOwn(taken.first, taken.count);
  countRecords({ deleted: deleted.count });
  return deleted;
}
