import type { Brand } from '../../brand.ts';
import type { Db } from '../../db/pool.ts';
import { setDatasetSettings } from '../../records/settings.ts';
import type { Vault } from '../../vault.ts';
import { reasonOf } from '../connections.ts';
import {
  type Dataset,
  type DatasetProgress,
  findDatasetProgress,
  type Import,
  noteDatasetProgress,
} from '../ledger.ts';
import {
  hasRecords,
  lastPosition,
  type MovedRecord,
  openTarget,
  placeConsumer,
  saveMoved,
  type Target,
} from '../records.ts';
import type { EntryOf } from './entries.ts';

/**
 * Records of a file, a dataset after the other, saved in batches as they come. How many of a dataset are saved is noted with
 * each batch, so that the next run passes over these.
 */
const batchRecords = 500;
const batchBytes = 4 * 1024 * 1024;

export type TakenDataset = {
  /** `bytes` is about what it has. */
  add(record: EntryOf<'record'>, bytes: number): Promise<void>;
  /** A consumer that has taken what was added so far. */
  place(name: string): Promise<void>;
  end(): Promise<void>;
};
export type Failed = Dataset & { reason: string };

type Given = {
  db: Db;
  vault: Vault;
  brand: Brand;
  from: Import;
  dataset: Dataset;
  entry: EntryOf<'dataset'>;
  onFailure: (failed: Failed) => void;
};

/** Undefined where its records are passed over: `onFailure` is told why. */
export async function takeDataset(given: Given): Promise<TakenDataset | undefined> {
  const { db, vault, from, dataset, entry, onFailure } = given;
  const known = await findDatasetProgress(db, from, dataset);
  const target = await openTarget(db, { environmentId: from.environmentId, dataset, vault });
  if (target === undefined) {
    onFailure({ ...dataset, reason: 'unknown_connection' });
    return undefined;
  }
  if (known === undefined) {
    if (await hasRecords(db, target)) {
      onFailure({ ...dataset, reason: 'dataset_has_records' });
      return undefined;
    }
    await setDatasetSettings(db, target, {
      ignoreFields: entry.ignore_fields,
      keepPrevious: entry.keep_previous,
      massDeleteShare: entry.mass_delete_share,
      massDeleteNumber: entry.mass_delete_number,
    });
  }
  const start = known ?? { position: '0', records: 0, deleted: 0, pruned: 0, isDone: false };
  // Written first: what stands in the dataset from now on is of this import.
  if (known === undefined) await noteDatasetProgress(db, from, { dataset, progress: start });
  return fill(given, { target, start });
}

function fill(
  { db, brand, from, dataset, onFailure }: Given,
  { target, start }: { target: Target; start: DatasetProgress },
): TakenDataset {
  let progress = start;
  /** Of the file, up to the last one that is saved, and those that were read. */
  let saved = Number(start.position);
  let read = 0;
  let batch: EntryOf<'record'>[] = [];
  let bytes = 0;
  let hasFailed = false;

  async function flush(): Promise<void> {
    if (batch.length === 0 || hasFailed) return;
    const taken = batch;
    batch = [];
    bytes = 0;
    try {
      const records = taken.flatMap(asMoved);
      const done = await saveMoved(db, { target, records, metadataKey: brand.metadataKey });
      saved += taken.length;
      progress = {
        ...progress,
        position: String(saved),
        records: progress.records + done.records,
        deleted: progress.deleted + done.deleted,
        pruned: progress.pruned + taken.length - records.length,
      };
      await noteDatasetProgress(db, from, { dataset, progress });
    } catch (error) {
      const reason = reasonOf(error)?.reason;
      if (reason === undefined) throw error;
      hasFailed = true;
      onFailure({ ...dataset, reason });
    }
  }

  return {
    async add(record, size) {
      read += 1;
      if (read <= saved || progress.isDone || hasFailed) return;
      batch.push(record);
      bytes += size;
      if (batch.length >= batchRecords || bytes >= batchBytes) await flush();
    },
    async place(name) {
      await flush();
      if (!progress.isDone && !hasFailed)
        await placeConsumer(db, { target, name, seq: await lastPosition(db, target) });
    },
    async end() {
      await flush();
      if (progress.isDone || hasFailed) return;
      await noteDatasetProgress(db, from, { dataset, progress: { ...progress, isDone: true } });
    },
  };
}

/** None where its payload is gone; a deletion is worth telling without one. */
function asMoved({ id, is_deleted: isDeleted, fields }: EntryOf<'record'>): MovedRecord[] {
  return fields === null && !isDeleted ? [] : [{ id, isDeleted, fields: fields ?? {} }];
}
