import { holdConnection } from '../connections/store.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { countRecords } from '../metrics/metrics.ts';
import { type Dataset, type DatasetName, ensureDataset, findDataset, lockDataset } from './dataset.ts';
import { queueDatasetEvent } from './dataset-event.ts';
import { arrayText } from './payloads.ts';
import { PositionSet } from './positions.ts';
import { buryRecords } from './tombstones.ts';

/**
 * Delete tracking: what a full sync did not name is gone at the provider.
 *
 * Owns: the columns `tracked_from` and `held_at` of a dataset and the table `tracked`. A live record counts as seen
 * where its position is above the one at which the tracking began, or where a save or an update that left it there has
 * noted its position. It lives until `end` or until the dataset is emptied, however long that takes, so that a run that
 * is resumed after days deletes nothing it saw before.
 */

/** Notes of what was seen that lie apart: where a tracking is gone on with there is one in place of more. */
const mostNotes = 1_000;

/** Opens a tracking, or goes on with the open one, held or not, of which there is one at most. */
export async function startTracking(db: Db, name: DatasetName): Promise<{ isResumed: boolean }> {
  const datasetId = await ensureDataset(db, name);
  return db.transaction(async (tx) => {
    await holdConnection(tx, name.connection);
    const dataset = await lockDataset(tx, datasetId);
    if (dataset === undefined) throw new AppError('unknown_connection');
    if (dataset.trackedFrom !== null) {
      await mergeNotes(tx, { datasetId, above: mostNotes });
      return { isResumed: true };
    }
    await tx.query('update dataset set tracked_from = last_seq where id = $1', [datasetId]);
    return { isResumed: false };
  });
}

/** Notes that records were named and stay at these positions of a locked dataset: at most one row a call. */
export async function noteSeen(tx: Tx, by: { dataset: Dataset; seqs: readonly number[] }): Promise<void> {
  const { id, trackedFrom } = by.dataset;
  if (trackedFrom === null) return;
  const seqs = by.seqs.filter((seq) => seq <= trackedFrom).sort((a, b) => a - b);
  if (seqs.length === 0) return;
  await tx.query('insert into tracked (dataset_id, seqs) values ($1, $2)', [id, arrayText(seqs)]);
}

export type TrackingEnd = { count: number; deletedKeys: string[] };

/**
 * Deletes the live records that were not seen since the tracking began, in one transaction, and closes it.
 *
 * Throws `mass_delete_held` with `{would_delete, live}` where that is more than the dataset's share and more than its
 * number: nothing is deleted then, the tracking stays open as held, and the event `records.mass_delete_held` tells of
 * it, once. `override: 'mass_delete'` deletes them all the same. Throws `no_delete_tracking` where none is open.
 */
export async function endTracking(
  db: Db,
  request: DatasetName & { override: 'none' | 'mass_delete' },
): Promise<TrackingEnd> {
  const known = await findDataset(db, request);
  if (known === undefined) throw new AppError('no_delete_tracking');
  const ended = await db.transaction(async (tx) => {
    await holdConnection(tx, request.connection);
    const dataset = await lockDataset(tx, known.id);
    if (dataset === undefined || dataset.trackedFrom === null) throw new AppError('no_delete_tracking');
    const unseen = await findUnseen(tx, dataset, dataset.trackedFrom);
    if (request.override === 'none' && isMassDelete(dataset, unseen.length)) {
      const held = { would_delete: unseen.length, live: dataset.records };
      await hold(tx, dataset, held);
      return { held };
    }
    const deletedKeys = await buryRecords(tx, { dataset, seqs: unseen });
    await closeTracking(tx, dataset.id);
    return { count: unseen.length, deletedKeys };
  });
  // What is held stays written: it is thrown about after the commit.
  if ('held' in ended) throw new AppError('mass_delete_held', undefined, { payload: ended.held });
  countRecords({ deleted: ended.count });
  return ended;
}

/** Forgets an open tracking, and deletes nothing; one that is held stays for whoever decides. */
export async function dropTracking(db: Db, name: DatasetName): Promise<void> {
  const known = await findDataset(db, name);
  if (known === undefined || known.trackedFrom === null) return;
  await db.transaction(async (tx) => {
    await holdConnection(tx, name.connection);
    const dataset = await lockDataset(tx, known.id);
    if (dataset !== undefined && dataset.heldAt === null) await closeTracking(tx, dataset.id);
  });
}

/** Forgets the tracking of a locked dataset, and what it saw. */
export async function closeTracking(tx: Tx, datasetId: number): Promise<void> {
  await tx.query('delete from tracked where dataset_id = $1', [datasetId]);
  await tx.query('update dataset set tracked_from = null, held_at = null where id = $1', [datasetId]);
}

function isMassDelete(dataset: Dataset, count: number): boolean {
  return count > dataset.massDeleteNumber && count > dataset.massDeleteShare * dataset.records;
}

/** Positions of live records, in order; 8 bytes each and a bit for each position that was seen are in memory. */
async function findUnseen(tx: Tx, dataset: Dataset, trackedFrom: number): Promise<number[]> {
  const seen = new PositionSet();
  const add = ([seq]: (Buffer | undefined)[]) => seen.add(readPosition(seq));
  await tx.copyRows(`select unnest(seqs) from tracked where dataset_id = ${dataset.id}`, add);
  const unseen: number[] = [];
  await tx.copyRows(
    `select seq
     from record
     where dataset_id = ${dataset.id} and seq <= ${trackedFrom} and deleted_at is null
     order by seq`,
    ([seq]) => {
      const position = readPosition(seq);
      if (!seen.has(position)) unseen.push(position);
    },
  );
  return unseen;
}

function readPosition(bytes: Buffer | undefined): number {
  return Number((bytes as Buffer).readBigInt64BE());
}

/** Puts what was seen into one row where there are more, so that a tracking that lasts for months does not pile up rows. */
async function mergeNotes(tx: Tx, { datasetId, above }: { datasetId: number; above: number }): Promise<void> {
  await tx.query(
    `with gone as (
       delete from tracked
       where dataset_id = $1
         and (select count(*) from tracked as note where note.dataset_id = $1) > $2
       returning seqs
     )
     insert into tracked (dataset_id, seqs)
     select $1, array_agg(distinct seq)
     from gone
     cross join unnest(seqs) as seq
     having count(*) > 0`,
    [datasetId, above],
  );
}

/** Marks the tracking as held. */
async function hold(tx: Tx, dataset: Dataset, held: { would_delete: number; live: number }): Promise<void> {
  await mergeNotes(tx, { datasetId: dataset.id, above: 1 });
  if (dataset.heldAt !== null) return;
  await tx.query('update dataset set held_at = clock_timestamp() where id = $1', [dataset.id]);
  await queueDatasetEvent(tx, { datasetId: dataset.id, type: 'records.mass_delete_held', data: held });
}
