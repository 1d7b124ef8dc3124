/**
 * Delete tracking: a record that a full sync did not save no longer exists at the provider.
 *
 * Owns: the columns `tracked_from`, `tracking_*`, `held_*` and `allowed_count` of a dataset and the table `tracked`. A
 * live record counts as read if its position is above the one at which the tracking began, or if a save or an update
 * that left it there has marked its position. A tracking is open until it is ended, dropped or reset, or the dataset is
 * emptied, however long that takes, so a run that resumes after days deletes nothing that was saved before.
 *
 * A tracking is partial if its reader began in the middle of a list whose first part was not tracked. Its end deletes
 * nothing.
 */
import { randomUUID } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Db, first, type Queryable, recordsDb, type Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { countRecords } from '../../metrics/metrics.ts';
import {
  type Dataset,
  type DatasetName,
  ensureDataset,
  findDataset,
  type LockedDataset,
  planByIndexAlone,
  rowsAt,
} from '../dataset.ts';
import { type EventOwner, findEventOwner, lockForWrite, queueDatasetEvent } from '../datasets.ts';
import { chunk, removeMarks } from '../leftovers.ts';
import { arrayText } from '../rows.ts';
import { buryRecords } from './changes.ts';
import { PositionSet, type RunReads } from './run-positions.ts';
import { writeTransaction } from './transaction.ts';

/** The maximum number of rows of marks in a resumed tracking; more are merged. */
const maxRows = 1_000;
/** Positions in one row, and in one transaction: some tens of milliseconds of work under the dataset's lock. */
const positionsPerRow = 20_000;

/**
 * Where the caller's reader has begun: at the start of its list, or at a place that was stored while these trackings
 * were open.
 */
export type Beginning = 'start' | { trackings: readonly string[] };

/**
 * Opens a tracking, or resumes the open one, held or not. A dataset has at most one. A reader that resumes at a stored
 * place passes `beginning`; without it the tracking is whole. The records in `reads` count as read.
 *
 * More than `positionsPerRow` of these are marked in several transactions. A tracking that this call opens is partial until
 * the last one: an end before then deletes nothing, also after the process was killed.
 */
export async function startTracking(
  db: Db,
  request: DatasetName & { beginning?: Beginning | undefined; reads?: RunReads | undefined },
): Promise<{ isResumed: boolean }> {
  const { beginning, reads, ...name } = request;
  const datasetId = await ensureDataset(db, name);
  const at = { connection: name.connection, datasetId };
  await mergeMarks(db, at);
  const marker = createReadsMarker(reads);
  /** The tracking that this call has opened, as it will be. */
  let own: { trackingId: string; isPartial: boolean; isResumed: boolean } | undefined;
  for (;;) {
    const started = await writeTransaction(db, at, async (tx, dataset) => {
      const isOpen = dataset.trackedFrom !== null;
      if (!isOpen && (await hasMarks(tx, datasetId))) {
        // Of a former tracking; only a node of an earlier version leaves them so.
        await tx.query('update dataset set has_leftovers = true where id = $1', [datasetId]);
        return undefined;
      }
      if (own?.trackingId !== dataset.trackingId) own = undefined;
      const isPartial = own?.isPartial ?? isPartialFor(dataset, beginning);
      // The stored place in the middle of a list, which made the tracking partial, does not belong to a whole tracking.
      const isWholeNow = own === undefined && dataset.trackingIsPartial && !isPartial;
      const trackingId = (isWholeNow ? null : dataset.trackingId) ?? randomUUID();
      const isComplete = await marker.addTo(tx, dataset, trackingId);
      const isResumed = own?.isResumed ?? isOpen;
      if (trackingId !== dataset.trackingId) own = { trackingId, isPartial, isResumed };
      const isPartialNow = isPartial || (own !== undefined && !isComplete);
      if (!isOpen || trackingId !== dataset.trackingId || isPartialNow !== dataset.trackingIsPartial) {
        await tx.query(
          `update dataset
           set tracked_from = $2, tracking_id = $3, tracking_is_partial = $4
           where id = $1`,
          [datasetId, dataset.trackedFrom ?? reads?.from ?? dataset.lastSeq, trackingId, isPartialNow],
        );
      }
      return isComplete ? { trackingId, isResumed } : undefined;
    });
    if (started === undefined) continue;
    if (reads !== undefined) reads.tracking = started.trackingId;
    return { isResumed: started.isResumed };
  }
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

type ReadsMarker = {
  /**
   * Marks in a tracking of a locked dataset what the run has saved, unless the tracking has it: two rows at most. Returns whether
   * all is marked. A tracking that is not the one of the call before gets all.
   */
  addTo(tx: Tx, dataset: Pick<Dataset, 'id' | 'trackedFrom'>, trackingId: string | null): Promise<boolean>;
};

function createReadsMarker(reads: RunReads | undefined): ReadsMarker {
  let of: string | null | undefined;
  /** The last position of the changed records that are marked; undefined if all are. */
  let moved: number | undefined;
  let unmoved: Generator<number> | undefined;
  return {
    async addTo(tx, { id, trackedFrom }, trackingId) {
      if (reads?.from === undefined || (trackingId !== null && trackingId === reads.tracking)) return true;
      if (unmoved === undefined || of !== trackingId) {
        [of, moved, unmoved] = [trackingId, reads.from, reads.unmoved()];
      }
      if (moved !== undefined && moved < (trackedFrom ?? reads.from)) {
        const [row] = await tx.query<{ last: number; count: number }>(
          `insert into tracked (dataset_id, seqs)
           select $1, array_agg(seq order by seq)
           from (
             select seq
             from record
             where dataset_id = $1 and seq > $2 and seq <= $3 and deleted_at is null
             order by seq
             limit $4
           ) as moved
           having count(*) > 0
           returning seqs[cardinality(seqs)] as last, cardinality(seqs) as count`,
          [id, moved, trackedFrom, positionsPerRow],
        );
        moved = row?.count === positionsPerRow ? row.last : undefined;
        if (moved !== undefined) return false;
      }
      const seqs = takeFrom(unmoved, positionsPerRow);
      await insertMarks(tx, id, seqs);
      return seqs.length < positionsPerRow;
    },
  };
}

async function insertMarks(tx: Tx, datasetId: number, seqs: readonly number[]): Promise<void> {
  if (seqs.length === 0) return;
  await tx.query('insert into tracked (dataset_id, seqs) values ($1, $2)', [datasetId, arrayText(seqs)]);
}

/** The next values. Unlike `take`, it leaves the iterator open. */
function takeFrom(iterator: Iterator<number>, max: number): number[] {
  const some: number[] = [];
  while (some.length < max) {
    const next = iterator.next();
    if (next.done) break;
    some.push(next.value);
  }
  return some;
}

async function hasMarks(tx: Tx, datasetId: number): Promise<boolean> {
  const rows = await tx.query('select from tracked where dataset_id = $1 order by id limit 1', [datasetId]);
  return rows.length > 0;
}

/** Marks positions of a locked dataset whose records were sent again and stay there: at most one row a call. */
export async function markRead(
  tx: Tx,
  by: { dataset: Dataset; seqs: readonly number[]; reads?: RunReads | undefined },
): Promise<void> {
  const { id, trackedFrom } = by.dataset;
  by.reads?.add(by.dataset, by.seqs);
  if (trackedFrom === null) return;
  const seqs = by.seqs.filter((seq) => seq <= trackedFrom).sort((a, b) => a - b);
  await insertMarks(tx, id, seqs);
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
  /** What the run that ends the tracking has saved, which counts as read. */
  reads?: RunReads | undefined;
  /** Called if the reader has to begin at the start the next time: before the tracking is closed or held. */
  forgetPlace?: (() => Promise<unknown>) | undefined;
};

/** The number of records that one transaction deletes: some tens of milliseconds of work under the dataset's lock. */
const perStep = 1_000;

/**
 * Deletes the live records that were not read since the tracking began, and closes the tracking. A partial tracking is
 * closed and nothing is deleted.
 *
 * More than `perStep` records are deleted in several transactions, so that other writers wait for one of them at most. The
 * last one closes the tracking: if the process is killed before, the tracking stays open, and its next end deletes the
 * rest, which is allowed then. Each step leaves out records that were read or changed since the step before.
 *
 * Throws `mass_delete_held` with `{would_delete, live}` if that is more than the dataset's share and more than its
 * number: nothing is deleted, the tracking stays open and held, and the event `records.mass_delete_held` is sent once.
 * `override: 'mass_delete'` deletes them in any case, and so does `allowMassDelete` once, up to its number. Throws
 * `no_delete_tracking` if none is open.
 */
export async function endTracking(db: Db, request: TrackingEndRequest): Promise<TrackingEnd> {
  const known = await findDataset(db, request);
  if (known === undefined) throw new AppError('no_delete_tracking');
  const at = { connection: request.connection, datasetId: known.id };
  const marker = createReadsMarker(request.reads);
  const total: Required<Pick<TrackingEnd, 'count' | 'deletedKeys'>> = { count: 0, deletedKeys: [] };
  let unread: Unread | undefined;
  let owner: EventOwner | undefined;
  let isDecided = false;
  let { forgetPlace } = request;
  for (;;) {
    unread ??= await findUnread(db, known.id);
    const left = unread;
    // A deletion of nothing is never held.
    if (left.seqs.length > 0) owner ??= await findEventOwner(db, request.connection);
    const mustForget = forgetPlace !== undefined;
    const step = await recordsDb(db, known.id).transaction((tx) =>
      endStep(tx, { request, at, marker, unread: left, owner, isDecided, mustForget }),
    );
    if (step === 'unmarked') continue;
    if (step === 'forget') {
      // If the process is killed after this, the tracking is still open, and the next reader begins at the start.
      await forgetPlace?.();
      forgetPlace = undefined;
      continue;
    }
    if (step === 'changed') {
      unread = undefined;
      continue;
    }
    // What the run saves from now on belongs to another list.
    if (request.reads !== undefined) request.reads.tracking = null;
    // Thrown after the commit, because what the transaction wrote is to stay.
    if ('held' in step) {
      await mergeMarks(db, at);
      throw new AppError('mass_delete_held', undefined, { payload: step.held });
    }
    if ('isPartial' in step) return step;
    if ('isClosed' in step) {
      // Another caller has ended the tracking between two steps.
      if (isDecided) return total;
      throw new AppError('no_delete_tracking');
    }
    total.count += step.deletedKeys.length;
    for (const key of step.deletedKeys) total.deletedKeys.push(key);
    countRecords({ deleted: step.deletedKeys.length });
    if (step.isLast) return total;
    isDecided = true;
  }
}

type EndStep =
  | { isClosed: true }
  | { held: { would_delete: number; live: number } }
  | (TrackingEnd & { isPartial: true })
  | { deletedKeys: string[]; isLast: boolean };

/**
 * One transaction of an end. It takes the records that it deletes from `unread`. Returns `changed`, with nothing written, if
 * `unread` is of another tracking, and `unmarked` if it has marked a part of what the run has saved. With `mustForget` it
 * returns `forget`, before it closes or holds a tracking whose reader has to begin at the start. `isDecided`: an earlier step
 * of this end has found the deletion allowed.
 */
async function endStep(
  tx: Tx,
  by: {
    request: TrackingEndRequest;
    at: { connection: number; datasetId: number };
    marker: ReadsMarker;
    unread: Unread;
    owner: EventOwner | undefined;
    isDecided: boolean;
    mustForget: boolean;
  },
): Promise<EndStep | 'changed' | 'unmarked' | 'forget'> {
  const { request, unread, isDecided, mustForget } = by;
  const { reads } = request;
  const dataset = await lockForWrite(tx, by.at);
  if (dataset.trackedFrom === null) {
    // Else a reader that opens a tracking only at the start would never open one again.
    const mustBeginAnew = !isDecided && request.beginning !== 'start';
    return mustBeginAnew && mustForget ? 'forget' : { isClosed: true };
  }
  if (!isDecided && isPartialFor(dataset, request.beginning)) {
    if (mustForget) return 'forget';
    await closeTracking(tx, dataset.id);
    return { count: 0, deletedKeys: [], isPartial: true };
  }
  // After the first step a reader may have resumed the tracking, with another id. One that was opened since begins later.
  if (dataset.trackedFrom !== unread.trackedFrom) return isDecided ? { isClosed: true } : 'changed';
  if (!isDecided && dataset.trackingId !== unread.trackingId) return 'changed';
  if (!isDecided && !(await by.marker.addTo(tx, dataset, dataset.trackingId))) return 'unmarked';
  await leaveOutRead(tx, dataset.id, unread);
  if (!isDecided) {
    const count = unread.seqs.length;
    const isMass = isMassDelete(dataset, { count, reads });
    if (isMass && mustForget) return 'forget';
    const isAllowed = request.override === 'mass_delete' || count <= (dataset.allowedCount ?? 0);
    if (isMass && !isAllowed) {
      const held = { would_delete: count, live: dataset.records };
      await hold(tx, { dataset, owner: by.owner, held });
      return { held };
    }
    if (count > perStep)
      await tx.query('update dataset set allowed_count = $2 where id = $1', [dataset.id, count]);
  }
  const seqs = await findStanding(tx, { datasetId: dataset.id, seqs: unread.seqs.splice(0, perStep) });
  const deletedKeys = await buryRecords(tx, { dataset, seqs });
  const isLast = unread.seqs.length === 0;
  if (isLast) await closeTracking(tx, dataset.id);
  return { deletedKeys, isLast };
}

/**
 * Allows the next end of a held tracking to delete at most `count` records, once: the end uses it up, also if it
 * deletes fewer or is held again. Throws `no_delete_tracking` if none is held, and `invalid_body` if `count` is more
 * than are held.
 */
export async function allowMassDelete(
  tx: Tx,
  { count, ...name }: DatasetName & { count: number },
): Promise<void> {
  const known = await findDataset(tx, name);
  const held = first(
    await tx.query<{ id: number; heldCount: number | null }>(
      `select id, held_count as "heldCount"
       from dataset
       where id = $1 and held_at is not null
       for no key update`,
      [known?.id],
    ),
  );
  if (held === undefined)
    throw new AppError('no_delete_tracking', `No deletion of records of "${name.model}" is held.`);
  // Null if a service of an earlier version held it.
  if (held.heldCount !== null && count > held.heldCount) {
    const message = `The held deletion is of ${held.heldCount} records of "${name.model}": allow at most as many.`;
    throw new AppError('invalid_body', message);
  }
  await tx.query('update dataset set allowed_count = $2 where id = $1', [held.id, count]);
}

/** Closes an open tracking without deleting anything. A held tracking stays until it is decided. */
export async function dropTracking(db: Db, name: DatasetName): Promise<void> {
  const known = await findDataset(db, name);
  if (known === undefined || known.trackedFrom === null) return;
  await recordsDb(db, known.id).transaction(async (tx) => {
    const dataset = await lockForWrite(tx, { connection: name.connection, datasetId: known.id });
    if (dataset.heldAt === null) await closeTracking(tx, dataset.id);
  });
}

/** Closes the tracking of a locked dataset. Marks that one transaction cannot remove are left: see `leftovers.ts`. */
export async function closeTracking(tx: Tx, datasetId: number): Promise<void> {
  const { mayHaveMore } = await removeMarks(tx, datasetId);
  await tx.query(
    `update dataset
     set tracked_from = null, tracking_id = null, tracking_is_partial = false, held_at = null, held_count = null,
       allowed_count = null, has_leftovers = has_leftovers or $2
     where id = $1`,
    [datasetId, mayHaveMore],
  );
}

/** Returns those of these trackings that were neither closed nor held meanwhile, of these models (undefined: of any). */
export async function findOpenTrackings(
  q: Queryable,
  of: {
    connection: number;
    variant: string;
    trackings: readonly string[];
    models?: readonly string[] | undefined;
  },
): Promise<string[]> {
  if (of.trackings.length === 0) return [];
  const rows = await q.query<{ id: string }>(
    `select tracking_id as id
     from dataset
     where
       connection = $1
       and variant = $2
       and tracking_id = any($3::uuid[])
       and ($4::text[] is null or model = any($4))`,
    [of.connection, of.variant, of.trackings, of.models],
  );
  return rows.map(({ id }) => id);
}

/** Records that the run has added do not count towards the records that it may delete a share of. */
function isMassDelete(
  dataset: Dataset,
  { count, reads }: { count: number; reads: RunReads | undefined },
): boolean {
  const records = Math.min(dataset.records, reads?.records ?? dataset.records);
  return count > dataset.massDeleteNumber && count > dataset.massDeleteShare * records;
}

/** What a tracking has not read yet. */
type Unread = Pick<Dataset, 'trackedFrom' | 'trackingId'> & {
  /** The positions of live records, in order. */
  seqs: number[];
  /** The rows of marks that are taken into account. */
  marks: Marks;
};
/** Ids of rows of marks. On a cluster they are not in the order of the writes: see `ops/cluster/distribute.ts`. */
type Marks = Set<number>;

/**
 * Returns the unread records of a dataset without its lock: later changes only take records away, and `leaveOutRead` and
 * `findStanding` leave these out. Memory: 8 bytes for each, and a bit for each read position.
 */
async function findUnread(db: Db, datasetId: number): Promise<Unread> {
  return recordsDb(db, datasetId).transaction(async (tx) => {
    const [dataset] = await tx.query<Pick<Dataset, 'trackedFrom' | 'trackingId'>>(
      'select tracked_from as "trackedFrom", tracking_id as "trackingId" from dataset where id = $1',
      [datasetId],
    );
    const unread: Unread = { trackedFrom: null, trackingId: null, ...dataset, seqs: [], marks: new Set() };
    if (unread.trackedFrom === null) return unread;
    await planByIndexAlone(tx);
    const read = await readMarks(tx, datasetId, unread.marks);
    await tx.copyRows(
      `select seq
       from record
       where dataset_id = ${datasetId} and seq <= ${unread.trackedFrom} and deleted_at is null
       order by seq`,
      ([seq]) => {
        const position = readPosition(seq);
        if (!read.has(position)) unread.seqs.push(position);
      },
    );
    return unread;
  });
}

/** Returns the positions of the rows of marks that are not in `marks`, and adds these rows. */
async function readMarks(tx: Tx, datasetId: number, marks: Marks): Promise<PositionSet> {
  const read = new PositionSet();
  await tx.copyRows(
    `select id, unnest(seqs)
     from tracked
     where dataset_id = ${datasetId} and id <> all ('${arrayText([...marks])}'::bigint[])`,
    ([id, seq]) => {
      marks.add(readPosition(id));
      read.add(readPosition(seq));
    },
  );
  return read;
}

/** Takes the records out of `unread` that were read since it was made. The dataset is locked. */
async function leaveOutRead(tx: Tx, datasetId: number, unread: Unread): Promise<void> {
  const before = unread.marks.size;
  const read = await readMarks(tx, datasetId, unread.marks);
  if (unread.marks.size > before) unread.seqs = unread.seqs.filter((seq) => !read.has(seq));
}

/** Returns those of `seqs` at which a record still is: one that was changed or deleted has left its position. */
async function findStanding(
  tx: Tx,
  { datasetId, seqs }: { datasetId: number; seqs: readonly number[] },
): Promise<number[]> {
  if (seqs.length === 0) return [];
  const rows = await tx.query<{ seq: number }>(
    `select asked.seq
     from unnest($2::bigint[]) as asked (seq)
     ${rowsAt('record')}`,
    [datasetId, arrayText(seqs)],
  );
  return rows.map(({ seq }) => seq).sort((a, b) => a - b);
}

function readPosition(bytes: Buffer | undefined): number {
  return Number((bytes as Buffer).readBigInt64BE());
}

/**
 * Merges the rows of marks of an open tracking if there are more than `maxRows`, so that a tracking of months does not
 * accumulate rows. They are read without the dataset's lock. Steps then insert the merged rows, and others remove the former
 * ones: after each step the same positions are marked, so a process may be killed, and any caller may come, between two steps.
 */
async function mergeMarks(db: Db, at: { connection: number; datasetId: number }): Promise<void> {
  const { datasetId } = at;
  const records = recordsDb(db, datasetId);
  const found = await records.transaction(async (tx) => {
    await planByIndexAlone(tx);
    const last = await tx.query('select from tracked where dataset_id = $1 order by id limit 1 offset $2', [
      datasetId,
      maxRows,
    ]);
    const [tracking] = await tx.query<Pick<Dataset, 'trackedFrom' | 'trackingId'>>(
      'select tracked_from as "trackedFrom", tracking_id as "trackingId" from dataset where id = $1',
      [datasetId],
    );
    if (last.length === 0 || tracking === undefined || tracking.trackedFrom === null) return undefined;
    const seen = { ...tracking, marks: new Set<number>() };
    return { seen, read: await readMarks(tx, datasetId, seen.marks) };
  });
  if (found === undefined) return;
  const { seen, read } = found;
  /** Does nothing if the tracking is another one by now. */
  const step = <T>(work: (tx: Tx) => Promise<T>): Promise<T | undefined> =>
    records.transaction(async (tx) => {
      const { trackedFrom, trackingId } = await lockForWrite(tx, at);
      return trackedFrom === seen.trackedFrom && trackingId === seen.trackingId ? work(tx) : undefined;
    });
  const positions = read.upTo(seen.trackedFrom ?? 0);
  for (let isLast = false; !isLast; ) {
    const seqs = takeFrom(positions, positionsPerRow);
    isLast = seqs.length < positionsPerRow;
    if ((await step(async (tx) => insertMarks(tx, datasetId, seqs).then(() => true))) === undefined) return;
  }
  const former = [...seen.marks];
  while (former.length > 0) {
    const ids = former.splice(0, chunk);
    const removed = await step(async (tx) => {
      await tx.query('delete from tracked where dataset_id = $1 and id = any($2::bigint[])', [
        datasetId,
        arrayText(ids),
      ]);
      return true;
    });
    if (removed === undefined) return;
    await nextTurn();
  }
}

/** Marks the tracking as held and gives it a new id, so that a place that was stored before does not belong to it. */
async function hold(
  tx: Tx,
  {
    dataset,
    owner,
    held,
  }: {
    dataset: LockedDataset;
    owner: EventOwner | undefined;
    held: { would_delete: number; live: number };
  },
): Promise<void> {
  await tx.query(
    `update dataset
     set
       held_at = coalesce(held_at, $4::timestamptz),
       held_count = $2,
       allowed_count = null,
       tracking_id = $3
     where id = $1`,
    [dataset.id, held.would_delete, randomUUID(), dataset.writeTime],
  );
  if (dataset.heldAt !== null) return;
  queueDatasetEvent(tx, { dataset, owner }, { type: 'records.mass_delete_held', data: held });
}
