import { holdConnection } from '../connections/store.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { countRecords } from '../metrics/metrics.ts';
import type { DataKey } from '../vault.ts';
import { type Change, writeChanges } from './changes.ts';
import { type CheckedPart, refuseLarge } from './check.ts';
import { RecordPacker } from './checked.ts';
import { type Dataset, findDatasetForReading, lockDataset } from './dataset.ts';
import { type IgnoredFields, ignoredFields } from './ignore.ts';
import { type Layers, layParts } from './lay.ts';
import type { NewerChanges } from './newer-changes.ts';
import { findPruned } from './payloads.ts';
import { sealNames } from './previous.ts';
import type { RunReads } from './run-reads.ts';
import type { RecordOwner } from './save.ts';
import { layOnThread } from './save-queue.ts';
import { type SealedRecord, sealRecords } from './seal.ts';
import { findStored, readStored, type Stored } from './stored.ts';
import { noteSeen } from './track-deletes.ts';

type UpdateRequest = {
  connection: RecordOwner;
  model: string;
  variant: string;
  /** What is laid over stored records. */
  parts: readonly CheckedPart[];
  /** What others changed meanwhile stays as it is, and counts as unchanged. */
  leaves?: NewerChanges | undefined;
  /** Filled with what is updated. */
  reads?: RunReads | undefined;
};

type UpdateResult = {
  updatedCount: number;
  unchangedCount: number;
  /** Ids that no record has. */
  missing: string[];
  /** Ids of deleted records, which were left alone. */
  deleted: string[];
  /** Ids of pruned records, which have nothing to lay a part over and were left alone. */
  pruned: string[];
};

/** Less is merged sooner here than on the thread. */
const minForThread = 64 * 1024;
/** Characters that the thread is given in one order. */
const orderLength = 1024 * 1024;
/** Stored bytes that are merged, sealed and written at a time. */
const groupBytes = 4 * 1024 * 1024;

/**
 * Lays parts over stored records: objects are merged at every depth, everything else is replaced, arrays too; several
 * parts for one id are laid in the order sent. A record that changes takes the next position of the dataset; one that
 * comes out equal, or differs in ignored fields alone, is not written. All of it or nothing.
 *
 * Merging and sealing happen before the dataset is locked; under the lock only what has moved until then is merged
 * again, and what lies beyond 4 MB. Throws `invalid_record` for what cannot be stored, also where a record outgrows
 * 8 MB by it, and `unknown_connection` where the connection was deleted meanwhile.
 */
export async function updateRecords(db: Db, request: UpdateRequest): Promise<UpdateResult> {
  const { connection, model, variant } = request;
  const parts = partsById(request.parts);
  const ids = [...parts.keys()];
  const early = await db.transaction(async (tx) => {
    const dataset = await findDatasetForReading(tx, { connection: connection.id, model, variant });
    if (dataset === undefined) return undefined;
    const by = { datasetId: dataset.id, dataKey: connection.dataKey, parts };
    const { ignoreFields } = dataset;
    const ignored = ignoredFields(ignoreFields);
    const [rows = []] = groupsOf(findLive(ids, await findStored(tx, dataset, ids)));
    const laying = { ...by, ignored, ignoreFields };
    return { by: laying, laid: await lay(tx, { ...laying, rows }) };
  }, 'snapshot');
  if (early === undefined || ids.length === 0)
    return { updatedCount: 0, unchangedCount: 0, missing: ids, deleted: [], pruned: [] };
  const { by } = early;
  let taken: { first: number; count: number } | undefined;
  const updated = await db.transaction(async (tx) => {
    await holdConnection(tx, connection.id);
    const dataset = await lockDataset(tx, by.datasetId);
    if (dataset === undefined) throw new AppError('unknown_connection');
    const stored = await findStored(tx, dataset, ids);
    const [left, live] = parted(findLive(ids, stored), request.leaves);
    const pruned: string[] = [];
    let updatedCount = 0;
    for (const rows of groupsOf(live)) {
      const laid = await layAgain(tx, { ...by, dataset, rows, early: early.laid });
      const changes: Change[] = [];
      for (const row of rows) {
        const { record, names } = laid.get(row.id) ?? {};
        if (record === undefined) left.push(row);
        else changes.push({ record, stored: row, names });
        if (!laid.has(row.id)) pruned.push(row.id);
      }
      await writeChanges(tx, { dataset, changes, restores: [], ignored: by.ignored.digest });
      updatedCount += changes.length;
    }
    await noteSeen(tx, { dataset, reads: request.reads, seqs: left.map(({ seq }) => seq) });
    taken = { first: dataset.lastSeq + 1, count: updatedCount };
    return {
      updatedCount,
      unchangedCount: left.length - pruned.length,
      missing: ids.filter((id) => !stored.has(id)),
      deleted: ids.filter((id) => stored.get(id)?.isDeleted),
      pruned,
    };
  });
  if (taken !== undefined) request.leaves?.noteOwn(taken.first, taken.count);
  countRecords({ updated: updated.updatedCount, unchanged: updated.unchangedCount });
  return updated;
}

/** Those that are left alone, and the others. */
function parted(rows: readonly Stored[], leaves: NewerChanges | undefined): [Stored[], Stored[]] {
  const isLeft = ({ seq }: Stored) => leaves?.isOthers(seq) === true;
  return [rows.filter(isLeft), rows.filter((row) => !isLeft(row))];
}

function partsById(parts: readonly CheckedPart[]): Map<string, CheckedPart[]> {
  return Map.groupBy(parts, ({ id }) => id);
}

function findLive(ids: readonly string[], stored: ReadonlyMap<string, Stored>): Stored[] {
  return ids.flatMap((id) => stored.get(id) ?? []).filter(({ isDeleted }) => !isDeleted);
}

/** Neighbours whose payloads together are in memory at once. */
function groupsOf(rows: readonly Stored[]): Stored[][] {
  const groups: Stored[][] = [];
  let bytes = groupBytes;
  for (const row of rows) {
    if (bytes >= groupBytes) {
      groups.push([]);
      bytes = 0;
    }
    groups.at(-1)?.push(row);
    bytes += row.size;
  }
  return groups;
}

/** What came of a record that stood at `seq`; no record, and no sealed names of what changed, where it comes out equal. */
type Laid = { seq: number; record: SealedRecord | undefined; names: Buffer | undefined };
type Laying = {
  datasetId: number;
  dataKey: DataKey;
  parts: ReadonlyMap<string, readonly CheckedPart[]>;
  ignored: IgnoredFields;
  ignoreFields: readonly string[];
};

/** Pruned records are not in the result. */
async function lay(tx: Tx, by: Laying & { rows: readonly Stored[] }): Promise<Map<string, Laid>> {
  const laid = new Map<string, Laid>();
  const lengthOf = ({ id, size }: Stored) =>
    (by.parts.get(id) ?? []).reduce((sum, { text }) => sum + text.length, size);
  const isLarge = by.rows.reduce((sum, row) => sum + lengthOf(row), 0) >= minForThread;
  // Both forms of each record, with a reserve.
  const names = new Map<string, string[]>();
  const changed = new RecordPacker(by.rows.reduce((sum, { size }) => sum + size * 3, 0));
  const read: { row: Stored; stored: string; parts: readonly CheckedPart[] }[] = [];
  await readStored(tx, by, (row, stored) => {
    read.push({ row, stored, parts: by.parts.get(row.id) ?? [] });
  });
  for (const some of ordersOf(read)) {
    const layers: Layers = some.map(({ stored, parts }) => ({
      stored,
      parts: parts.map(({ text }) => text),
    }));
    const came = await (isLarge ? layOnThread : layParts)(layers, by.ignoreFields);
    for (const [n, { row, parts }] of some.entries()) {
      laid.set(row.id, { seq: row.seq, record: undefined, names: undefined });
      const change = came[n];
      if (change === undefined) continue;
      refuseLarge(change.text, parts.at(-1)?.index ?? 0);
      changed.add({ id: row.id, text: change.text, canonical: change.canonical });
      names.set(row.id, change.names);
    }
  }
  const sealedNames = sealNames(names, by);
  // What is ignored is left out already.
  for (const record of await sealRecords(changed.pack(), { ...by, ignoreFields: [] })) {
    const seq = laid.get(record.id)?.seq ?? 0;
    laid.set(record.id, { seq, record, names: sealedNames.get(record.id) });
  }
  return laid;
}

/** Neighbours that the thread is given together. */
function ordersOf<T extends { stored: string }>(read: readonly T[]): T[][] {
  const orders: T[][] = [];
  let length = orderLength;
  for (const one of read) {
    if (length >= orderLength) {
      orders.push([]);
      length = 0;
    }
    orders.at(-1)?.push(one);
    length += one.stored.length;
  }
  return orders;
}

/** As `lay`, under the lock: what was laid early stands where the record has neither moved nor been pruned since. */
async function layAgain(
  tx: Tx,
  by: Laying & { dataset: Dataset; rows: readonly Stored[]; early: ReadonlyMap<string, Laid> },
): Promise<Map<string, Laid>> {
  const isGood = ({ id, seq }: Stored) => by.early.get(id)?.seq === seq;
  const good = by.rows.filter(isGood);
  const again = await lay(tx, { ...by, rows: by.rows.filter((row) => !isGood(row)) });
  const seqs = good.map(({ seq }) => seq);
  const pruned = by.dataset.pruned === 0 ? new Set() : await findPruned(tx, { ...by, seqs });
  for (const { id, seq } of good) {
    if (!pruned.has(seq)) again.set(id, by.early.get(id) as Laid);
  }
  return again;
}
