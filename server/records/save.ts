import { holdConnection } from '../connections/store.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { DataKey } from '../vault.ts';
import type { JsonValue } from './canonical.ts';
import { checkRecords } from './check.ts';
import { advanceDataset, type Dataset, ensureDataset, lockDataset } from './dataset.ts';
import { arrayText, deletePayloads, findPruned, insertPayloads } from './payloads.ts';
import { hashBytes, type SealedRecord, sealRecords } from './seal.ts';

/** What records are kept for: the connection's row, and the key that seals its payloads. */
export type RecordOwner = { id: number; dataKey: DataKey };

export type SaveRequest = {
  connection: RecordOwner;
  model: string;
  variant: string;
  records: readonly JsonValue[];
  /** Dropped from each record: it is ours. */
  metadataKey: string;
  /** Whether a pruned record that comes with equal content gets its payload back. */
  restore: 'always' | 'on_change';
};

export type SaveResult = {
  added: string[];
  updated: string[];
  /** Of the unchanged ones, those that were pruned and have their payload again. */
  restored: string[];
  unchangedCount: number;
  /** Ids that came more than once: the last of each was saved. */
  duplicates: string[];
};

/**
 * Saves records: new and deleted ones are added, those with other content are updated, and both take the next
 * positions of the dataset in the order they were sent. What is equal is not written at all; where it was pruned its
 * payload comes back and its position stays. All of it or nothing.
 *
 * Checking, hashing and sealing happen before the dataset is locked. Throws `invalid_record` for what cannot be
 * stored and `unknown_connection` where the connection was deleted meanwhile.
 */
export async function saveRecords(db: Db, request: SaveRequest): Promise<SaveResult> {
  const { records, duplicates } = checkRecords(request.records, request.metadataKey);
  if (records.length === 0) return { added: [], updated: [], restored: [], unchangedCount: 0, duplicates };
  const { connection, model, variant } = request;
  const datasetId = await ensureDataset(db, { connection: connection.id, model, variant });
  const sealed = await sealRecords(records, { dataKey: connection.dataKey, datasetId });
  return db.transaction(async (tx) => {
    await holdConnection(tx, connection.id);
    const dataset = await lockDataset(tx, datasetId);
    if (dataset === undefined) throw new AppError('unknown_connection');
    const plan = await compare(tx, { dataset, records: sealed, restore: request.restore });
    await write(tx, { dataset, plan });
    const idsOf = (changes: readonly Change[]) => changes.map(({ record }) => record.id);
    return {
      added: idsOf(plan.changes.filter(({ isAdded }) => isAdded)),
      updated: idsOf(plan.changes.filter(({ isAdded }) => !isAdded)),
      restored: plan.restores.map(({ record }) => record.id),
      unchangedCount: sealed.length - plan.changes.length,
      duplicates,
    };
  });
}

type Stored = { id: string; seq: number; hash: Buffer; isDeleted: boolean };
type Change = { record: SealedRecord; stored: Stored | undefined; isAdded: boolean };
type Plan = { changes: Change[]; restores: { record: SealedRecord; seq: number }[] };

async function compare(
  tx: Tx,
  by: { dataset: Dataset; records: readonly SealedRecord[]; restore: SaveRequest['restore'] },
): Promise<Plan> {
  const stored = await findStored(
    tx,
    by.dataset,
    by.records.map(({ id }) => id),
  );
  const changes: Change[] = [];
  const equal: { record: SealedRecord; seq: number }[] = [];
  for (const record of by.records) {
    const known = stored.get(record.id);
    if (known === undefined || known.isDeleted) changes.push({ record, stored: known, isAdded: true });
    else if (!known.hash.equals(record.hash)) changes.push({ record, stored: known, isAdded: false });
    else equal.push({ record, seq: known.seq });
  }
  if (by.restore === 'on_change' || by.dataset.pruned === 0 || equal.length === 0)
    return { changes, restores: [] };
  const pruned = await findPruned(tx, { datasetId: by.dataset.id, seqs: equal.map(({ seq }) => seq) });
  return { changes, restores: equal.filter(({ seq }) => pruned.has(seq)) };
}

/**
 * Rows that stand under these ids. Nothing is locked or written: an equal record costs no byte of WAL.
 *
 * `offset 0` keeps the planner from turning the probes into a join, which it may start from the dataset's side: one
 * array scan a record, and 15 times as long.
 */
async function findStored(tx: Tx, dataset: Dataset, ids: readonly string[]): Promise<Map<string, Stored>> {
  if (dataset.records + dataset.deleted === 0) return new Map();
  const rows = await tx.query<Stored>(
    `select asked.id, found.seq, found.hash, found."isDeleted"
     from unnest($2::text[]) as asked (id)
     cross join lateral (
       select seq, hash, deleted_at is not null as "isDeleted"
       from record
       where dataset_id = $1 and external_id = asked.id
       offset 0
     ) as found`,
    [dataset.id, ids],
  );
  return new Map(rows.map((row) => [row.id, row]));
}

async function write(tx: Tx, by: { dataset: Dataset; plan: Plan }): Promise<void> {
  const { changes, restores } = by.plan;
  if (changes.length + restores.length === 0) return;
  const datasetId = by.dataset.id;
  const moved = changes.flatMap(({ stored }) => stored ?? []);
  const freed = await deletePayloads(tx, { datasetId, seqs: moved.map(({ seq }) => seq) });
  const bodies = [...changes, ...restores].map(({ record }) => record.body);
  const { firstSeq, modifiedAt } = await advanceDataset(tx, datasetId, {
    seqs: changes.length,
    records: changes.filter(({ isAdded }) => isAdded).length,
    deleted: -moved.filter(({ isDeleted }) => isDeleted).length,
    pruned: -(moved.length - freed.count) - restores.length,
    payloadBytes: bodies.reduce((sum, body) => sum + body.length, 0) - freed.bytes,
    ...(restores.length > 0 && { restoredFrom: Math.min(...restores.map(({ seq }) => seq)) }),
  });
  if (changes.length > 0) await writeRecords(tx, { datasetId, firstSeq, modifiedAt, changes });
  await insertPayloads(tx, {
    datasetId,
    seqs: [...changes.map((_, index) => firstSeq + index), ...restores.map(({ seq }) => seq)],
    bodies,
  });
}

/**
 * Gives every change its row at its new position. The conflict clause finds the rows that move by the primary key
 * whatever the planner knows; without any it is left out, which makes a first import faster.
 */
async function writeRecords(
  tx: Tx,
  by: { datasetId: number; firstSeq: number; modifiedAt: string; changes: readonly Change[] },
): Promise<void> {
  const hasMoves = by.changes.some(({ stored }) => stored !== undefined);
  await tx.query(
    `insert into record
       (dataset_id, seq, first_seen_at, last_modified_at, size, hash, external_id)
     select
       $1,
       $2::bigint + part.n - 1,
       $3::timestamptz,
       $3::timestamptz,
       part.size,
       substring($4::bytea from (part.n::int - 1) * ${hashBytes} + 1 for ${hashBytes}),
       part.id
     from unnest($5::text[], $6::int[]) with ordinality as part (id, size, n)
     ${hasMoves ? moveClause : ''}`,
    [
      by.datasetId,
      by.firstSeq,
      by.modifiedAt,
      Buffer.concat(by.changes.map(({ record }) => record.hash)),
      by.changes.map(({ record }) => record.id),
      arrayText(by.changes.map(({ record }) => record.body.length)),
    ],
  );
}

const moveClause = `
  on conflict on constraint record_pkey do update
  set
    seq = excluded.seq,
    first_seen_at = case
      when record.deleted_at is null then record.first_seen_at
      else excluded.first_seen_at
    end,
    last_modified_at = excluded.last_modified_at,
    deleted_at = null,
    pruned_at = null,
    size = excluded.size,
    hash = excluded.hash`;
