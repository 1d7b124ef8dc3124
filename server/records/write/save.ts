import type { Db, Tx } from '../../db/pool.ts';
import { countRecords } from '../../metrics/metrics.ts';
import type { DataKey } from '../../vault.ts';
import type { JsonObject } from '../codec/canonical.ts';
import { type CheckedRecords, countOf } from '../codec/check.ts';
import { changedFields, type IgnoredFields, ignoredFields, isSameDigest } from '../codec/fields.ts';
import { openPayload } from '../codec/seal.ts';
import { freeSealed, type SealedRecord, sealRecords } from '../codec/thread.ts';
import { type Dataset, ensureDataset, findDataset } from '../dataset.ts';
import { findPruned, findStored, readPayloads, type Stored, sealNames } from '../rows.ts';
import { type Change, isAddition, type Restore, type WriteRequest, writeChanges } from './changes.ts';
import type { NewerChanges } from './run-positions.ts';
import { markRead } from './track-deletes.ts';
import { writeTransaction } from './transaction.ts';

export type SaveRequest = WriteRequest & {
  /** Unusable after the save. */
  records: CheckedRecords;
  /** Whether a pruned record gets its payload back if it is saved with equal content. */
  restore: 'always' | 'on_change';
  /** Fields that the comparison ignores; by default those of the dataset. */
  ignoreFields?: readonly string[] | undefined;
  /** Whether the result names the changed fields of updated records. */
  withChangedFields?: boolean | undefined;
};

export type SaveResult = {
  added: string[];
  updated: string[];
  /** The unchanged records that were pruned and have their payload again. */
  restored: string[];
  unchangedCount: number;
  /** Ids that were sent more than once: the last record of each was saved. */
  duplicates: string[];
  /** The names of the changed fields of updated records that were not pruned. Only with `withChangedFields`. */
  changedFields?: Map<string, string[]>;
};

/**
 * Saves records in one transaction. New and deleted records are added, records with other content are updated, and both
 * take the next positions of the dataset in the order they were sent. An equal record is not written; if it was pruned,
 * its payload comes back and its position stays.
 *
 * Hashing and sealing happen before the dataset is locked. Throws `unknown_connection` if the connection was deleted
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
  const at = { connection: connection.id, datasetId };
  const saving = writeTransaction(db, at, async (tx, dataset) => {
    const { changes, equal, left } = await compare(tx, {
      dataset,
      leaves: request.leaves,
      dataKey: connection.dataKey,
      records: sealed,
      ignored,
      changedFields,
    });
    const restores = request.restore === 'always' ? await findRestores(tx, dataset, equal) : [];
    const unmoved = [...equal.map(({ stored }) => stored), ...left].map(({ seq }) => seq);
    await markRead(tx, { dataset, reads: request.reads, seqs: unmoved });
    await writeChanges(tx, { dataset, changes, restores, ignored: ignored.digest });
    const idsOf = (some: readonly { record: SealedRecord }[]) => some.map(({ record }) => record.id);
    return {
      taken: { first: dataset.lastSeq + 1, count: changes.length },
      added: idsOf(changes.filter(isAddition)),
      updated: idsOf(changes.filter((change) => !isAddition(change))),
      restored: idsOf(restores),
      unchangedCount: equal.length + left.length,
      duplicates,
      ...(changedFields && { changedFields }),
    };
  });
  const { taken, ...saved } = await saving.finally(() => freeSealed(sealed));
  countRecords({
    added: saved.added.length,
    updated: saved.updated.length,
    restored: saved.restored.length,
    unchanged: saved.unchangedCount - saved.restored.length,
  });
  request.leaves?.addOwn(taken);
  return saved;
}

/**
 * Sorts records into changes, equal records, and records that another writer changed. It compares hashes. If a stored
 * hash ignores other fields, it compares with the stored payload; if that is pruned, the record is a change. Fills
 * `changedFields`, whose names the changes have too.
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
  const { dataset, dataKey, records, ignored, changedFields: namesById, leaves } = by;
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
    else if (!isComparable || namesById !== undefined) {
      toRead.push(row);
      sent.set(record.id, record);
    }
  }
  await readPayloads(tx, { datasetId: dataset.id, dataKey, rows: toRead }, (row, stored) => {
    const fields = JSON.parse(stored) as JsonObject;
    const { id, body } = sent.get(row.id) as SealedRecord;
    const text = openPayload(body, { dataKey, datasetId: dataset.id, recordId: id }).toString();
    const to = JSON.parse(text) as JsonObject;
    if (ignored.canonical(fields) === ignored.canonical(to)) equalIds.add(id);
    else if (namesById !== undefined) changed.set(id, changedFields(fields, to));
  });
  for (const [id, names] of changed) {
    namesById?.set(
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

/** Returns the equal records whose payload is pruned. */
async function findRestores(tx: Tx, dataset: Dataset, equal: readonly Restore[]): Promise<Restore[]> {
  if (dataset.pruned === 0 || equal.length === 0) return [];
  const seqs = equal.map(({ stored }) => stored.seq);
  const pruned = await findPruned(tx, { datasetId: dataset.id, seqs });
  return equal.filter(({ stored }) => pruned.has(stored.seq));
}
