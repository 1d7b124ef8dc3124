import type { Db, Tx } from '../../db/pool.ts';
import { countRecords } from '../../metrics/metrics.ts';
import type { DataKey } from '../../vault.ts';
import { type CheckedPart, RecordPacker, refuseLarge } from '../codec/check.ts';
import { type IgnoredFields, ignoredFields, mergeAll } from '../codec/fields.ts';
import { mergeOnThread, type SealedRecord, sealRecords } from '../codec/thread.ts';
import { type Dataset, readDataset } from '../dataset.ts';
import { findPruned, findStored, readPayloads, type Stored, sealNames } from '../rows.ts';
import { type Change, type WriteRequest, writeChanges } from './changes.ts';
import { markRead } from './track-deletes.ts';
import { writeTransaction } from './transaction.ts';

type UpdateResult = {
  updatedCount: number;
  unchangedCount: number;
  /** Ids without a record. */
  missing: string[];
  /** Ids of deleted records, which were not changed. */
  deleted: string[];
  /** Ids of pruned records, which have no payload to merge a part into and were not changed. */
  pruned: string[];
};

/** Fewer bytes are merged faster without the thread. */
const minForThread = 64 * 1024;
/** Characters of stored payloads in one order to the thread. */
const orderLength = 1024 * 1024;
/** Stored bytes that are merged, sealed and written at a time. */
const groupBytes = 4 * 1024 * 1024;

/**
 * Merges parts into stored records in one transaction. Objects are merged at every depth; any other value, also an
 * array, replaces the stored value. Several parts for one id are merged in the order sent. A record that changes takes
 * the next position of the dataset. A record that stays equal, or differs only in ignored fields, is not written.
 *
 * Merging and sealing happen before the dataset is locked. Under the lock, only records that moved meanwhile are merged
 * again, and those beyond the first 4 MB. Throws `invalid_record` for a record that cannot be stored or outgrows 8 MB,
 * and `unknown_connection` if the connection was deleted meanwhile.
 */
export async function updateRecords(
  db: Db,
  request: WriteRequest & { parts: readonly CheckedPart[] },
): Promise<UpdateResult> {
  const { connection, model, variant } = request;
  const parts = Map.groupBy(request.parts, ({ id }) => id);
  const ids = [...parts.keys()];
  const early = await readDataset(db, { connection: connection.id, model, variant }, async (tx, dataset) => {
    if (dataset === undefined) return undefined;
    const { id: datasetId, ignoreFields } = dataset;
    const ignored = ignoredFields(ignoreFields);
    const by: MergeOptions = { datasetId, dataKey: connection.dataKey, parts, ignored, ignoreFields };
    const [rows = []] = groupBySize(findLive(ids, await findStored(tx, dataset, ids)), groupBytes, sizeOf);
    return { by, merged: await mergeRows(tx, { ...by, rows }) };
  });
  if (early === undefined || ids.length === 0)
    return { updatedCount: 0, unchangedCount: 0, missing: ids, deleted: [], pruned: [] };
  const { by } = early;
  const at = { connection: connection.id, datasetId: by.datasetId };
  const { taken, ...updated } = await writeTransaction(db, at, async (tx, dataset) => {
    const stored = await findStored(tx, dataset, ids);
    const isOthers = ({ seq }: Stored) => request.leaves?.isOthers(seq) === true;
    const live = findLive(ids, stored);
    const unmoved = live.filter(isOthers);
    const own = live.filter((row) => !isOthers(row));
    const pruned: string[] = [];
    let updatedCount = 0;
    for (const rows of groupBySize(own, groupBytes, sizeOf)) {
      const merged = await mergeLocked(tx, { ...by, dataset, rows, early: early.merged });
      const changes: Change[] = [];
      for (const row of rows) {
        const { record, names } = merged.get(row.id) ?? {};
        if (record === undefined) unmoved.push(row);
        else changes.push({ record, stored: row, names });
        if (!merged.has(row.id)) pruned.push(row.id);
      }
      await writeChanges(tx, { dataset, changes, restores: [], ignored: by.ignored.digest });
      updatedCount += changes.length;
    }
    await markRead(tx, { dataset, reads: request.reads, seqs: unmoved.map(({ seq }) => seq) });
    return {
      taken: { first: dataset.lastSeq + 1, count: updatedCount },
      updatedCount,
      unchangedCount: unmoved.length - pruned.length,
      missing: ids.filter((id) => !stored.has(id)),
      deleted: ids.filter((id) => stored.get(id)?.isDeleted),
      pruned,
    };
  });
  request.leaves?.addOwn(taken);
  countRecords({ updated: updated.updatedCount, unchanged: updated.unchangedCount });
  return updated;
}

function findLive(ids: readonly string[], stored: ReadonlyMap<string, Stored>): Stored[] {
  return ids.flatMap((id) => stored.get(id) ?? []).filter(({ isDeleted }) => !isDeleted);
}

/** Groups neighbours. A group ends with the item that brings it to the limit. */
function groupBySize<T>(items: readonly T[], limit: number, size: (item: T) => number): T[][] {
  const groups: T[][] = [];
  let filled = limit;
  for (const item of items) {
    if (filled >= limit) {
      groups.push([]);
      filled = 0;
    }
    groups.at(-1)?.push(item);
    filled += size(item);
  }
  return groups;
}

const sizeOf = ({ size }: Stored) => size;

type MergeOptions = {
  datasetId: number;
  dataKey: DataKey;
  parts: ReadonlyMap<string, readonly CheckedPart[]>;
  ignored: IgnoredFields;
  ignoreFields: readonly string[];
};

/**
 * The sealed result for a record that was at `seq`. An equal record has neither `record` nor sealed `names` of changed
 * fields.
 */
type MergedRecord = { seq: number; record: SealedRecord | undefined; names: Buffer | undefined };

/** Merges the parts into these rows and seals the changed records. Pruned records are not in the result. */
async function mergeRows(
  tx: Tx,
  by: MergeOptions & { rows: readonly Stored[] },
): Promise<Map<string, MergedRecord>> {
  const merged = new Map<string, MergedRecord>();
  const lengthOf = ({ id, size }: Stored) =>
    (by.parts.get(id) ?? []).reduce((sum, { text }) => sum + text.length, size);
  const isLarge = by.rows.reduce((sum, row) => sum + lengthOf(row), 0) >= minForThread;
  const names = new Map<string, string[]>();
  // Both forms of each record, with a reserve.
  const changed = new RecordPacker(by.rows.reduce((sum, { size }) => sum + size * 3, 0));
  const read: { row: Stored; stored: string; parts: readonly CheckedPart[] }[] = [];
  await readPayloads(tx, by, (row, stored) => {
    read.push({ row, stored, parts: by.parts.get(row.id) ?? [] });
  });
  for (const order of groupBySize(read, orderLength, ({ stored }) => stored.length)) {
    const merges = order.map(({ stored, parts }) => ({ stored, parts: parts.map(({ text }) => text) }));
    const payloads = await (isLarge ? mergeOnThread : mergeAll)(merges, by.ignoreFields);
    for (const [n, { row, parts }] of order.entries()) {
      merged.set(row.id, { seq: row.seq, record: undefined, names: undefined });
      const payload = payloads[n];
      if (payload === undefined) continue;
      refuseLarge(payload.text, parts.at(-1)?.index ?? 0);
      changed.add({ id: row.id, text: payload.text, canonical: payload.canonical });
      names.set(row.id, payload.names);
    }
  }
  const sealedNames = sealNames(names, by);
  // The canonical texts are already without the ignored fields.
  for (const record of await sealRecords(changed.pack(), { ...by, ignoreFields: [] })) {
    const seq = merged.get(record.id)?.seq ?? 0;
    merged.set(record.id, { seq, record, names: sealedNames.get(record.id) });
  }
  return merged;
}

/**
 * As `mergeRows`, under the lock. An early result is used if its record has neither moved nor been pruned meanwhile.
 */
async function mergeLocked(
  tx: Tx,
  by: MergeOptions & {
    dataset: Dataset;
    rows: readonly Stored[];
    early: ReadonlyMap<string, MergedRecord>;
  },
): Promise<Map<string, MergedRecord>> {
  const isUnmoved = ({ id, seq }: Stored) => by.early.get(id)?.seq === seq;
  const unmoved = by.rows.filter(isUnmoved);
  const merged = await mergeRows(tx, { ...by, rows: by.rows.filter((row) => !isUnmoved(row)) });
  const seqs = unmoved.map(({ seq }) => seq);
  const pruned = by.dataset.pruned === 0 ? new Set() : await findPruned(tx, { ...by, seqs });
  for (const { id, seq } of unmoved) {
    if (!pruned.has(seq)) merged.set(id, by.early.get(id) as MergedRecord);
  }
  return merged;
}
