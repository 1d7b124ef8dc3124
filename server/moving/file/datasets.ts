import { setDatasetSettings } from '../../records/settings.ts';
import { type FilledDataset, type Filling, openDataset } from '../datasets.ts';
import type { Dataset } from '../ledger.ts';
import { reasonOf } from '../reason.ts';
import type { MovedRecord } from '../records.ts';
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
export type Failed = Dataset & { reason: string; detail: string };

type Given = Filling & {
  dataset: Dataset;
  entry: EntryOf<'dataset'>;
  onFailure: (failed: Failed) => void;
};

/** Undefined where its records are passed over: `onFailure` is told why. */
export async function takeDataset(given: Given): Promise<TakenDataset | undefined> {
  const { db, dataset, entry, onFailure } = given;
  /** Undefined where it failed. */
  const attempt = async <T>(work: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await work();
    } catch (error) {
      const said = reasonOf(error);
      if (said === undefined) throw error;
      onFailure({ ...dataset, ...said });
      return undefined;
    }
  };
  const opened = await attempt(() => openDataset(given, dataset));
  if (opened === undefined) return undefined;
  if (opened.isNew)
    await setDatasetSettings(db, opened.target, {
      ignoreFields: entry.ignore_fields,
      keepPrevious: entry.keep_previous,
      massDeleteShare: entry.mass_delete_share,
      massDeleteNumber: entry.mass_delete_number,
    });
  return fill(opened, attempt);
}

function fill(
  filled: FilledDataset,
  attempt: <T>(work: () => Promise<T>) => Promise<T | undefined>,
): TakenDataset {
  /** Of the file, up to the last one that is saved, and those that were read. */
  let saved = Number(filled.progress.position ?? 0);
  let read = 0;
  let batch: EntryOf<'record'>[] = [];
  let bytes = 0;
  /** All of it was here before, or it has failed. */
  let isOver = filled.progress.isDone;

  async function flush(): Promise<void> {
    if (batch.length === 0 || isOver) return;
    const taken = batch;
    batch = [];
    bytes = 0;
    const done = await attempt(async () => {
      const records = taken.flatMap(asMoved);
      const position = String(saved + taken.length);
      await filled.add(records, { position, pruned: taken.length - records.length });
      saved += taken.length;
      return true;
    });
    isOver = done === undefined;
  }

  return {
    async add(record, size) {
      read += 1;
      if (read <= saved || isOver) return;
      batch.push(record);
      bytes += size;
      if (batch.length >= batchRecords || bytes >= batchBytes) await flush();
    },
    async place(name) {
      await flush();
      if (!isOver) await filled.place(name);
    },
    async end() {
      await flush();
      if (!isOver) await filled.end();
    },
  };
}

/** None where its payload is gone; a deletion is worth telling without one. */
function asMoved({ id, is_deleted: isDeleted, fields }: EntryOf<'record'>): MovedRecord[] {
  return fields === null && !isDeleted ? [] : [{ id, isDeleted, fields: fields ?? {} }];
}
