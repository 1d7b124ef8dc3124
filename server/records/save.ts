import { holdConnection } from '../connections/store.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { countRecords } from '../metrics/metrics.ts';
import type { DataKey } from '../vault.ts';
import type { JsonObject } from './canonical.ts';
import { type Change, isAddition, type Restore, writeChanges } from './changes.ts';
import { type CheckedRecords, countOf } from './checked.ts';
import { type Dataset, ensureDataset, findDataset, lockDataset } from './dataset.ts';
import { changedFields, type IgnoredFields, ignoredFields, isSameDigest } from './ignore.ts';
import type { NewerChanges } from './newer-changes.ts';
import { findPruned } from './payloads.ts';
import { sealNames } from './previous.ts';
import type { RunReads } from './run-reads.ts';
import { freeSealed, openPayload, type SealedRecord, sealRecords } from './seal.ts';
import { findStored, readStored, type Stored } from './stored.ts';
import { noteSeen } from './track-deletes.ts';

/** What records are kept for: the connection's row, and the key that seals its payloads. */
export type RecordOwner = { id: number; dataKey: DataKey };

export type SaveRequest = {
  connection: RecordOwner;
  model: string;
  variant: string;
  /** They are used up. */
  records: CheckedRecords;
  /** Whether a pruned record that comes with equal content gets its payload back. */
  restore: 'always' | 'on_change';
  /** Fields that count for nothing when these records are compared; those of the dataset where absent. */
  ignoreFields?: readonly string[] | undefined;
  /** Whether to say which fields of an updated record changed. */
  withChangedFields?: boolean | undefined;
  /** What others changed meanwhile stays as it is, and counts as unchanged. */
  leaves?: NewerChanges | undefined;
  /** Filled with what is saved. */
  reads?: RunReads | undefined;
};

export type SaveResult = {
  added: string[];
  updated: string[];
  /** Of the unchanged ones, those that were pruned and have their payload again. */
  restored: string[];
  unchangedCount: number;
  /** Ids that came more than once: the last of each was saved. */
  duplicates: string[];
  /** Of the updated ones that were not pruned: the names of the fields that differ. Only where asked for. */
  changedFields?: Map<string, string[]>;
};

/**
 * Saves records: new and deleted ones are added, those with other content are updated, and both take the next
 * positions of the dataset in the order they were sent. What is equal is not written at all; where it was pruned its
 * payload comes back and its position stays. All of it or nothing.
 *
 * Hashing and sealing happen before the dataset is locked. Throws `unknown_connection` where the connection was deleted
 * meanwhile.
 */
export async function saveRecords(db: Db, request: SaveRequest): Promise<SaveResult> {
  const { connection, records, model, variant } = request;
  const name = { connection: connection.id, model, variant };
  const known = await findDataset(db, name);
  const ignoreFields = request.ignoreFields ?? known?.ignoreFields ?? [];
  const ignored = ignoredFields(ignoreFields);
  const { duplicates } = records;
  const changedFields = request.withChangedFields ? new Map<string, string[]>() : undefined;
  if (countOf(records) === 0) {
    const nothing = { added: [], updated: [], restored: [], unchangedCount: 0, duplicates };
    return { ...nothing, ...(changedFields && { changedFields }) };
  }
  const datasetId = known?.id ?? (await ensureDataset(db, name));
  const sealed = await sealRecords(records, { dataKey: connection.dataKey, datasetId, ignoreFields });
  let taken: { first: number; count: number } | undefined;
  const saving = db.transaction(async (tx) => {
    await holdConnection(tx, connection.id);
    const dataset = await lockDataset(tx, datasetId);
    if (dataset === undefined) throw new AppError('unknown_connection');
    const { changes, equal, left } = await compare(tx, {
      dataset,
      leaves: request.leaves,
      dataKey: connection.dataKey,
      records: sealed,
      ignored,
      changedFields,
    });
    const restores = request.restore === 'always' ? await findRestores(tx, dataset, equal) : [];
    await noteSeen(tx, {
      ...{ dataset, reads: request.reads },
      seqs: [...equal.map(({ stored }) => stored), ...left].map(({ seq }) => seq),
    });
    await writeChanges(tx, { dataset, changes, restores, ignored: ignored.digest });
    taken = { first: dataset.lastSeq + 1, count: changes.length };
    const idsOf = (some: readonly { record: SealedRecord }[]) => some.map(({ record }) => record.id);
    return {
      added: idsOf(changes.filter(isAddition)),
      updated: idsOf(changes.filter((change) => !isAddition(change))),
      restored: idsOf(restores),
      unchangedCount: equal.length + left.length,
      duplicates,
      ...(changedFields && { changedFields }),
    };
  });
  const saved = await saving.finally(() => freeSealed(sealed));
  countRecords({
    added: saved.added.length,
    updated: saved.updated.length,
    restored: saved.restored.length,
    unchanged: saved.unchangedCount - saved.restored.length,
  });
  if (taken !== undefined) request.leaves?.noteOwn(taken.first, taken.count);
  return saved;
}

/**
 * Tells changes from equal records and from those that are left alone, by their hashes; where a stored hash leaves out other fields, by the stored payload,
 * and where that is pruned, it is a change. Fills `changedFields`, which the changes then carry, too.
 */
async function compare(
  tx: Tx,
  by: {
    dataset: Dataset;
    dataKey: DataKey;
    records: readonly SealedRecord[];
    ignored: IgnoredFields;
    changedFields: Map<string, string[]> | undefined;
    leaves: NewerChanges | undefined;
  },
): Promise<{ changes: Change[]; equal: Restore[]; left: Stored[] }> {
  const { dataset, dataKey, records, ignored, changedFields: named, leaves } = by;
  const stored = await findStored(
    tx,
    dataset,
    records.map(({ id }) => id),
  );
  const left = new Map([...stored].filter(([, { seq }]) => leaves?.isOthers(seq)));
  const equalIds = new Set<string>();
  const toRead: Stored[] = [];
  const changed = new Map<string, string[]>();
  const sent = new Map<string, SealedRecord>();
  for (const record of records) {
    const row = stored.get(record.id);
    if (row === undefined || row.isDeleted || left.has(record.id)) continue;
    const isComparable = isSameDigest(row.ignored, ignored.digest);
    if (isComparable && row.hash.equals(record.hash)) equalIds.add(record.id);
    else if (!isComparable || named !== undefined) {
      toRead.push(row);
      sent.set(record.id, record);
    }
  }
  await readStored(tx, { datasetId: dataset.id, dataKey, rows: toRead }, (row, stored) => {
    const fields = JSON.parse(stored) as JsonObject;
    const { id, body } = sent.get(row.id) as SealedRecord;
    const text = openPayload(body, { dataKey, datasetId: dataset.id, recordId: id }).toString();
    const to = JSON.parse(text) as JsonObject;
    if (ignored.canonical(fields) === ignored.canonical(to)) equalIds.add(id);
    else if (named !== undefined) changed.set(id, changedFields(fields, to));
  });
  for (const [id, names] of changed) {
    named?.set(
      id,
      names.filter((name) => !ignored.has(name)),
    );
  }
  const sealedNames = dataset.keepPrevious
    ? undefined
    : sealNames(changed, { dataKey, datasetId: dataset.id });
  const changes: Change[] = [];
  const equal: Restore[] = [];
  for (const record of records) {
    if (left.has(record.id)) continue;
    const row = stored.get(record.id);
    if (row !== undefined && equalIds.has(record.id)) equal.push({ record, stored: row });
    else changes.push({ record, stored: row, names: sealedNames?.get(record.id) });
  }
  return { changes, equal, left: [...left.values()] };
}

/** The equal ones whose payload is pruned. */
async function findRestores(tx: Tx, dataset: Dataset, equal: readonly Restore[]): Promise<Restore[]> {
  if (dataset.pruned === 0 || equal.length === 0) return [];
  const seqs = equal.map(({ stored }) => stored.seq);
  const pruned = await findPruned(tx, { datasetId: dataset.id, seqs });
  return equal.filter(({ stored }) => pruned.has(stored.seq));
}
