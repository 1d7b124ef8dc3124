import { randomUUID } from 'node:crypto';
import { holdConnection } from '../connections/store.ts';
import { type Db, first, type Queryable, type Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { countRecords } from '../metrics/metrics.ts';
import { type Dataset, type DatasetName, ensureDataset, findDataset, lockDataset } from './dataset.ts';
import { queueDatasetEvent } from './dataset-event.ts';
import { arrayText } from './payloads.ts';
import { PositionSet } from './positions.ts';
import type { RunReads } from './run-reads.ts';
import { buryRecords } from './tombstones.ts';

/**
 * Delete tracking: a record that a full sync did not save no longer exists at the provider.
 *
 * Owns: the columns `tracked_from`, `tracking_*`, `held_*` and `allowed_count` of a dataset and the table `tracked`. A live
 * record counts as seen if its position is above the one at which the tracking began, or if a save or an update that left
 * it there has noted its position. A tracking is open until it is ended, dropped or reset, or the dataset is emptied, however long
 * that takes, so a run that resumes after days deletes nothing that was saved before.
 *
 * A tracking is partial if its reader began in the middle of a list whose first part was not tracked. Its end deletes
 * nothing.
 */

/** The maximum number of notes that a resumed tracking keeps apart; more are merged into one row. */
const maxNotes = 1_000;
/** Positions in one row, when a tracking begins with what its run has saved. */
const positionsPerNote = 100_000;

/**
 * Where the reader that calls has begun: at the start of its list, or at a place that was stored while these trackings were
 * open.
 */
export type Beginning = 'start' | { trackings: readonly string[] };

/**
 * Opens a tracking, or resumes the open one, held or not. A dataset has one at most. A reader that resumes at a stored place
 * says so by `beginning`; without it the tracking is whole. The tracking counts as seen what is in `reads`.
 */
export async function startTracking(
  db: Db,
  {
    beginning,
    reads,
    ...name
  }: DatasetName & { beginning?: Beginning | undefined; reads?: RunReads | undefined },
): Promise<{ isResumed: boolean }> {
  const datasetId = await ensureDataset(db, name);
  const started = await db.transaction(async (tx) => {
    await holdConnection(tx, name.connection);
    const dataset = await lockDataset(tx, datasetId);
    if (dataset === undefined) throw new AppError('unknown_connection');
    const isPartial = isPartialFor(dataset, beginning);
    // A place in the middle of a list, for which it is partial, is outside it once it is whole.
    const isWholeNow = dataset.trackingIsPartial && !isPartial;
    const trackingId = (isWholeNow ? null : dataset.trackingId) ?? randomUUID();
    await noteReads(tx, { dataset, reads });
    if (dataset.trackedFrom !== null) {
      await mergeNotes(tx, { datasetId, above: maxNotes });
      if (trackingId !== dataset.trackingId || isPartial !== dataset.trackingIsPartial) {
        await tx.query('update dataset set tracking_id = $2, tracking_is_partial = $3 where id = $1', [
          ...[datasetId, trackingId, isPartial],
        ]);
      }
      return { trackingId, isResumed: true };
    }
    await tx.query(
      `update dataset
       set tracked_from = coalesce($2, last_seq), tracking_id = $3, tracking_is_partial = $4
       where id = $1`,
      [datasetId, reads?.from, trackingId, isPartial],
    );
    return { trackingId, isResumed: false };
  });
  if (reads !== undefined) reads.tracking = started.trackingId;
  return { isResumed: started.isResumed };
}

/** Whether the tracking of a locked dataset is partial, given where the reader began. */
function isPartialFor(dataset: Dataset, beginning: Beginning | undefined): boolean {
  if (beginning === 'start') return false;
  const isOpen = dataset.trackedFrom !== null;
  const isCovered =
    beginning === undefined ||
    (isOpen && dataset.trackingId !== null && beginning.trackings.includes(dataset.trackingId));
  return isCovered ? isOpen && dataset.trackingIsPartial : true;
}

/** Notes what a run has saved of a locked dataset, unless the open tracking holds it. */
async function noteReads(
  tx: Tx,
  {
    dataset: { id: datasetId, trackingId, trackedFrom },
    reads,
  }: { dataset: Dataset; reads: RunReads | undefined },
): Promise<void> {
  if (reads?.from === undefined || (trackingId !== null && trackingId === reads.tracking)) return;
  await tx.query(
    `insert into tracked (dataset_id, seqs)
     select $1, array_agg(seq)
     from (
       select seq from record where dataset_id = $1 and seq > $2 and seq <= $3 and deleted_at is null order by seq
     ) as moved
     having count(*) > 0`,
    [datasetId, reads.from, trackedFrom ?? reads.from],
  );
  const unmoved = [...reads.unmoved()];
  for (let from = 0; from < unmoved.length; from += positionsPerNote) {
    const seqs = unmoved.slice(from, from + positionsPerNote);
    await tx.query('insert into tracked (dataset_id, seqs) values ($1, $2)', [datasetId, arrayText(seqs)]);
  }
}

/** Notes that records were named and stay at these positions of a locked dataset: at most one row a call. */
export async function noteSeen(
  tx: Tx,
  by: { dataset: Dataset; seqs: readonly number[]; reads?: RunReads | undefined },
): Promise<void> {
  const { id, trackedFrom } = by.dataset;
  by.reads?.note(by.dataset, by.seqs);
  if (trackedFrom === null) return;
  const seqs = by.seqs.filter((seq) => seq <= trackedFrom).sort((a, b) => a - b);
  if (seqs.length === 0) return;
  await tx.query('insert into tracked (dataset_id, seqs) values ($1, $2)', [id, arrayText(seqs)]);
}

type TrackingEnd = {
  count: number;
  deletedKeys: string[];
  /** The tracking was partial: nothing was deleted. */
  isPartial?: true;
};

type TrackingEndRequest = DatasetName & {
  override: 'none' | 'mass_delete';
  beginning?: Beginning | undefined;
  /** Of the run that ends it: what it has saved counts as seen. */
  reads?: RunReads | undefined;
  /** Called in the same transaction if the reader has to begin at the start the next time. */
  forgetPlace?: ((tx: Tx) => Promise<unknown>) | undefined;
};

/**
 * Deletes the live records that were not seen since the tracking began, in one transaction, and closes it. A partial
 * tracking is closed and nothing is deleted.
 *
 * Throws `mass_delete_held` with `{would_delete, live}` if that is more than the dataset's share and more than its number:
 * nothing is deleted, the tracking stays open as held, and the event `records.mass_delete_held` is sent, once.
 * `override: 'mass_delete'` deletes them in any case, and so does `allowMassDelete` once, up to its number. Throws
 * `no_delete_tracking` if none is open.
 */
export async function endTracking(db: Db, request: TrackingEndRequest): Promise<TrackingEnd> {
  const { forgetPlace } = request;
  const known = await findDataset(db, request);
  if (known === undefined) throw new AppError('no_delete_tracking');
  const ended = await db.transaction(async (tx) => {
    await holdConnection(tx, request.connection);
    const dataset = await lockDataset(tx, known.id);
    if (dataset === undefined) throw new AppError('no_delete_tracking');
    if (dataset.trackedFrom === null) {
      // A reader that opens a tracking only at the start would never open one again.
      if (request.beginning !== 'start') await forgetPlace?.(tx);
      return { isClosed: true };
    }
    if (isPartialFor(dataset, request.beginning)) {
      await closeTracking(tx, dataset.id);
      await forgetPlace?.(tx);
      return { count: 0, deletedKeys: [], isPartial: true as const };
    }
    await noteReads(tx, { dataset, reads: request.reads });
    const unseen = await findUnseen(tx, dataset, dataset.trackedFrom);
    const isMass = isMassDelete(dataset, { count: unseen.length, reads: request.reads });
    if (isMass) await forgetPlace?.(tx);
    const isAllowed = request.override === 'mass_delete' || unseen.length <= (dataset.allowedCount ?? 0);
    if (isMass && !isAllowed) {
      const held = { would_delete: unseen.length, live: dataset.records };
      await hold(tx, dataset, held);
      return { held };
    }
    const deletedKeys = await buryRecords(tx, { dataset, seqs: unseen });
    await closeTracking(tx, dataset.id);
    return { count: unseen.length, deletedKeys };
  });
  // What the run saves from now on is of another list.
  if (request.reads !== undefined) request.reads.tracking = null;
  // Thrown after the commit, because what the transaction wrote is to stay.
  if ('isClosed' in ended) throw new AppError('no_delete_tracking');
  if ('held' in ended) throw new AppError('mass_delete_held', undefined, { payload: ended.held });
  countRecords({ deleted: ended.count });
  return ended;
}

/**
 * Allows the next end of a held tracking to delete at most `count` records, once: the end uses it up, also if it deletes
 * fewer or is held again. Throws `no_delete_tracking` if none is held, and `invalid_body` if `count` is more than are held.
 */
export async function allowMassDelete(
  tx: Tx,
  { count, ...name }: DatasetName & { count: number },
): Promise<void> {
  const held = first(
    await tx.query<{ id: number; heldCount: number | null }>(
      `select id, held_count as "heldCount"
       from dataset
       where connection = $1 and model = $2 and variant = $3 and held_at is not null
       for no key update`,
      [name.connection, name.model, name.variant],
    ),
  );
  if (held === undefined)
    throw new AppError('no_delete_tracking', `No deletion of records of "${name.model}" is held.`);
  // Null where a service of an earlier version held it.
  if (held.heldCount !== null && count > held.heldCount) {
    const message = `The held deletion is of ${held.heldCount} records of "${name.model}": allow at most as many.`;
    throw new AppError('invalid_body', message);
  }
  await tx.query('update dataset set allowed_count = $2 where id = $1', [held.id, count]);
}

/** Closes an open tracking without deleting anything; one that is held stays, until somebody decides. */
export async function dropTracking(db: Db, name: DatasetName): Promise<void> {
  const known = await findDataset(db, name);
  if (known === undefined || known.trackedFrom === null) return;
  await db.transaction(async (tx) => {
    await holdConnection(tx, name.connection);
    const dataset = await lockDataset(tx, known.id);
    if (dataset !== undefined && dataset.heldAt === null) await closeTracking(tx, dataset.id);
  });
}

/** Closes the tracking of a locked dataset, and removes its notes. */
export async function closeTracking(tx: Tx, datasetId: number): Promise<void> {
  await tx.query('delete from tracked where dataset_id = $1', [datasetId]);
  await tx.query(
    `update dataset
     set tracked_from = null, tracking_id = null, tracking_is_partial = false, held_at = null, held_count = null,
       allowed_count = null
     where id = $1`,
    [datasetId],
  );
}

/** Whether one of these trackings is no longer open, or was held since. */
export async function hasClosed(
  q: Queryable,
  of: { connection: number; variant: string; trackings: readonly string[] },
): Promise<boolean> {
  const found = first(
    await q.query<{ open: number }>(
      `select count(*)::integer as open
       from dataset
       where connection = $1 and variant = $2 and tracking_id = any($3::uuid[])`,
      [of.connection, of.variant, of.trackings],
    ),
  );
  return (found?.open ?? 0) < of.trackings.length;
}

/** What a run has added is not part of the records that it may delete a share of. */
function isMassDelete(
  dataset: Dataset,
  { count, reads }: { count: number; reads: RunReads | undefined },
): boolean {
  const records = Math.min(dataset.records, reads?.records ?? dataset.records);
  return count > dataset.massDeleteNumber && count > dataset.massDeleteShare * records;
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

/** Merges notes into one row if there are more, so that a tracking that lasts for months does not pile up rows. */
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

/** Marks the tracking as held, under a new id: a place that was stored before is outside it. */
async function hold(tx: Tx, dataset: Dataset, held: { would_delete: number; live: number }): Promise<void> {
  await mergeNotes(tx, { datasetId: dataset.id, above: 1 });
  await tx.query(
    `update dataset
     set held_at = coalesce(held_at, clock_timestamp()), held_count = $2, allowed_count = null, tracking_id = $3
     where id = $1`,
    [dataset.id, held.would_delete, randomUUID()],
  );
  if (dataset.heldAt !== null) return;
  await queueDatasetEvent(tx, { datasetId: dataset.id, type: 'records.mass_delete_held', data: held });
}
