/**
 * Imported datasets, filled in batches; each batch is one transaction with its entry in the ledger.
 *
 * Records are saved in the order of their changes at the source, so a position among them means the same here: a consumer
 * that had read up to the position continues after it. Saving the same records again changes nothing.
 *
 * If anyone else has saved in a dataset, the records of the source are older and the import leaves it unchanged. A dataset
 * without any record, live or deleted, is filled from the beginning. Does not own: where records come from (`peer/`,
 * `file/`).
 */
import { getConnection, holdConnection } from '../../server/connections/store/store.ts';
import type { Db, Tx } from '../../server/db/pool.ts';
import type { JsonValue } from '../../server/records/codec/canonical.ts';
import { checkRecords } from '../../server/records/codec/check.ts';
import { cursorWriter } from '../../server/records/cursor.ts';
import {
  type Dataset,
  ensureDataset,
  findDataset,
  lockDataset,
  readDataset,
} from '../../server/records/dataset.ts';
import { acknowledge, findConsumer } from '../../server/records/retention/consumers.ts';
import { findStored, type RecordOwner } from '../../server/records/rows.ts';
import { deleteRecords } from '../../server/records/write/delete.ts';
import { saveRecords } from '../../server/records/write/save.ts';
import type { Vault } from '../../server/vault.ts';
import {
  type DatasetProgress,
  type DatasetRef,
  findDatasetProgress,
  type ImportRun,
  isFromImport,
  saveDatasetProgress,
} from './ledger.ts';

export type ImportedDataset = {
  readonly target: DatasetTarget;
  /** No run has opened it before. */
  readonly isNew: boolean;
  readonly progress: DatasetProgress;
  /** All records of the source were here, and others have saved since: nothing may be added. */
  readonly hasOthers: boolean;
  /**
   * Saves the next records and how far the source was read with them; `pruned` of them have no payload any more. Throws
   * SkippedError and what `saveImported` throws: then nothing is saved.
   */
  add(
    records: readonly ImportedRecord[],
    upTo: { position: string | undefined; pruned: number },
  ): Promise<void>;
  /** Saves records that may have changed at the source since they were read; they are not counted. Throws as `add`. */
  renew(records: readonly ImportedRecord[]): Promise<void>;
  /** Marks the dataset as complete. */
  end(): Promise<void>;
  /** Makes a consumer that has read up to this position, or up to the last one. False if the name is taken. */
  place(name: string, seq?: number): Promise<boolean>;
};

type DatasetTarget = { owner: RecordOwner; connection: number; model: string; variant: string };

export type ImportedRecord = {
  id: string;
  isDeleted: boolean;
  /** The payload; `id` and the metadata of the source are left out when it is saved. */
  fields: Record<string, unknown>;
};

/** A dataset is left unchanged; `reason` is a code of the report. */
export class SkippedError extends Error {
  readonly reason: 'connection_differs' | 'integration_skipped' | 'dataset_has_records';
  constructor(reason: SkippedError['reason'], message: string) {
    super(message);
    this.name = 'SkippedError';
    this.reason = reason;
  }
}

const hasRecords = () =>
  new SkippedError('dataset_has_records', 'The dataset already has records that this import did not save.');

/** The integration was skipped for `reason`, so nothing has checked its connections. */
export const integrationSkipped = (reason: string) =>
  new SkippedError(
    'integration_skipped',
    `The integration was skipped (${reason}), and the data of its connections with it. Read the message about the ` +
      'integration, then run this command again.',
  );

type DatasetImport = { db: Db; vault: Vault; from: ImportRun; metadataKey: string };

const nothing: DatasetProgress = {
  position: undefined,
  records: 0,
  deleted: 0,
  pruned: 0,
  isDone: false,
  lastSeq: 0,
};

/**
 * Opens the dataset where the previous run has left it. Throws `unknown_connection` if the connection is not here, and
 * SkippedError if the connection is not of this import, or if records are left to add and others have saved.
 */
export async function openDataset(
  { db, vault, from, metadataKey }: DatasetImport,
  dataset: DatasetRef,
): Promise<ImportedDataset> {
  const { environmentId } = from;
  const target = await openTarget(db, { environmentId, dataset, vault });
  const storedId = target.connection;
  if (!(await isFromImport(db, from, { ref: dataset, storedId })))
    throw new SkippedError(
      'connection_differs',
      'The existing connection was not imported from this source, so its records may belong to another account. If it is ' +
        'the same account, run this command again with --overwrite; otherwise change the ID of one of the two connections.',
    );
  const known = await findDatasetProgress(db, from, { dataset, storedId });
  const totals = await readTotals(db, target);
  // An empty dataset may have a position: after a restore, or after all of its records were removed.
  const isEmpty = totals.records + totals.deleted === 0;
  let progress = isEmpty ? { ...nothing, lastSeq: totals.lastSeq } : (known ?? nothing);
  const hasOthers = totals.lastSeq !== progress.lastSeq;
  if (!progress.isDone && hasOthers) throw hasRecords();

  /** Holds the lock of the dataset, so nothing is saved between the check and the entry in the ledger. */
  async function save(
    records: readonly ImportedRecord[],
    advance: (totals: DatasetTotals) => Partial<DatasetProgress>,
  ): Promise<void> {
    progress = await db.transaction(async (tx) => {
      const inside = within(tx);
      let now: DatasetTotals = progress;
      if (records.length > 0) {
        await holdConnection(tx, target.connection);
        const locked = await lockDataset(tx, await ensureDataset(inside, target));
        if (locked?.lastSeq !== progress.lastSeq) throw hasRecords();
        await saveImported(inside, { target, records, metadataKey });
        now = await readTotals(inside, target);
      }
      const next = { ...progress, ...advance(now), lastSeq: now.lastSeq };
      await saveDatasetProgress(tx, from, { dataset, storedId, progress: next });
      return next;
    });
  }

  return {
    target,
    isNew: known === undefined,
    hasOthers,
    get progress() {
      return progress;
    },
    add: (records, { position, pruned }) =>
      // The totals here: a record that was changed or deleted at the source since it was read comes again.
      save(records, (now) => ({
        position,
        records: now.records,
        deleted: now.deleted,
        pruned: progress.pruned + pruned,
      })),
    renew: (records) => save(records, () => ({})),
    end: () => save([], () => ({ isDone: true })),
    place: (name, seq = progress.lastSeq) => placeConsumer(db, { target, name, seq }),
  };
}

/** A database whose transactions are this transaction, for functions that open their own. */
function within(tx: Tx): Db {
  const refuse = (): never => {
    throw new Error('Not within a transaction.');
  };
  return {
    database: tx.database,
    query: (text, values) => tx.query(text, values),
    run: (built) => tx.run(built),
    transaction: async (work, mode) => (mode === 'snapshot' ? refuse() : work(tx)),
    transactionWithin: async () => refuse(),
    pipeline: async () => refuse(),
    load: refuse,
    end: async () => refuse(),
  };
}

/** Throws `unknown_connection` if the connection is not here. */
export async function openTarget(
  db: Db,
  { environmentId, dataset, vault }: { environmentId: number; dataset: DatasetRef; vault: Vault },
): Promise<DatasetTarget> {
  const { integration, connection, model, variant } = dataset;
  const at = { environmentId, integrationKey: integration, connectionId: connection };
  const owner = await getConnection(db, { ...at, vault });
  return { owner, connection: owner.id, model, variant };
}

/**
 * Saves records in their order; deleted ones become tombstones with the payload that they come with. Throws
 * `invalid_record` with the name of a record that is not valid.
 */
export async function saveImported(
  db: Db,
  {
    target,
    records,
    metadataKey,
  }: { target: DatasetTarget; records: readonly ImportedRecord[]; metadataKey: string },
): Promise<void> {
  const save = async (some: readonly ImportedRecord[]) => {
    const sent = some.map(({ id, fields }) => ({ ...fields, id }) as JsonValue);
    const checked = checkRecords(sent, { metadataKey, expectedBytes: 64 * 1024 });
    const { owner: connection, model, variant } = target;
    await saveRecords(db, { connection, model, variant, records: checked, restore: 'always' });
  };
  for (const run of runsOf(records)) {
    if (run[0]?.isDeleted !== true) {
      await save(run);
      continue;
    }
    const ids = run.map(({ id }) => id);
    // A record that is deleted here already keeps its position: it was read before, and is read again for a consumer.
    const { missing } = await deleteRecords(db, { ...target, ids });
    if (missing.length === 0) continue;
    const unknown = new Set(missing);
    await save(run.filter(({ id }) => unknown.has(id)));
    await deleteRecords(db, { ...target, ids: missing });
  }
}

/** Runs of live and of deleted records, in the order of the records. */
function runsOf(records: readonly ImportedRecord[]): ImportedRecord[][] {
  const runs: ImportedRecord[][] = [];
  for (const record of records) {
    const last = runs.at(-1);
    if (last?.[0]?.isDeleted === record.isDeleted) last.push(record);
    else runs.push([record]);
  }
  return runs;
}

type DatasetTotals = Pick<Dataset, 'lastSeq' | 'records' | 'deleted'>;

/** The dataset's last position and its numbers of live and deleted records; 0 if there is no dataset. */
async function readTotals(db: Db, target: DatasetTarget): Promise<DatasetTotals> {
  return (await findDataset(db, target)) ?? nothing;
}

/** The first position among these records; undefined if none is here. */
export async function firstPositionOf(
  db: Db,
  { target, ids }: { target: DatasetTarget; ids: readonly string[] },
): Promise<number | undefined> {
  return readDataset(db, target, async (tx, dataset) => {
    if (dataset === undefined) return undefined;
    const rows = await findStored(tx, dataset, ids);
    return [...rows.values()].map(({ seq }) => seq).sort((a, b) => a - b)[0];
  });
}

/** Makes a consumer that has read up to this position, 0 for nothing. False if the name is taken: that one stays. */
async function placeConsumer(
  db: Db,
  { target, name, seq }: { target: DatasetTarget; name: string; seq: number },
): Promise<boolean> {
  if ((await findConsumer(db, { ...target, name })) !== undefined) return false;
  const datasetId = await ensureDataset(db, target);
  const cursor = seq === 0 ? undefined : cursorWriter(datasetId)(seq);
  await acknowledge(db, { ...target, name, cursor, by: 'service' });
  return true;
}
