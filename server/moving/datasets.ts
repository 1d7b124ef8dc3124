import { holdConnection } from '../connections/store.ts';
import type { Db, Tx } from '../db/pool.ts';
import { ensureDataset, lockDataset } from '../records/dataset.ts';
import type { Vault } from '../vault.ts';
import { type DatasetProgress, findDatasetProgress, noteDatasetProgress } from './dataset-ledger.ts';
import type { Dataset, OpenImport } from './ledger.ts';
import { isOfImport } from './origin.ts';
import {
  type MovedRecord,
  openTarget,
  placeConsumer,
  readStand,
  type Stand,
  saveMoved,
  type Target,
} from './records.ts';

/**
 * Datasets that are filled from elsewhere, batch by batch, each in one transaction with what the ledger says of it.
 *
 * Where anybody else has saved in a dataset, whatever the source has is older, and the import keeps away from it, unless it
 * was emptied: one that holds nothing, not even a record that is deleted, is filled from the beginning. Does not own: how
 * records are saved (`records.ts`), where they come from and in which order (`peer/`, `file/`).
 */
export type FilledDataset = {
  readonly target: Target;
  /** No run has opened it before. */
  readonly isNew: boolean;
  readonly progress: DatasetProgress;
  /** All of the source was here, and others have saved since: then nothing is to be added. */
  readonly hasOthers: boolean;
  /**
   * Saves the next ones and notes how far the source was read with them; `pruned` is how many of them have no payload any more.
   * Throws HasRecordsError, and what `saveMoved` throws: then nothing is saved.
   */
  add(records: readonly MovedRecord[], upTo: { position: string | undefined; pruned: number }): Promise<void>;
  /** Saves what may have changed at the source since it was read; it is not counted. Throws as `add`. */
  renew(records: readonly MovedRecord[]): Promise<void>;
  /** Notes that all of it is here. */
  end(): Promise<void>;
  /** A consumer that has taken everything up to this position, or to the last one. False where there is one of the name. */
  place(name: string, seq?: number): Promise<boolean>;
};

/** Records were saved there that are not of this import. */
export class HasRecordsError extends Error {
  constructor() {
    super('The dataset has records that this import has not saved.');
    this.name = 'HasRecordsError';
  }
}

/** The connection here is another one than the source's, though it has the same ID. */
export class ConnectionDiffersError extends Error {
  constructor() {
    super(
      'The connection here was not brought by this import, so that its records may be of another account. Where it is the ' +
        'same one, run this again with --overwrite; else give one of the two another ID.',
    );
    this.name = 'ConnectionDiffersError';
  }
}

/** The connections of its integration are passed over for now, for this reason, so that nobody has looked whose they are. */
export class IntegrationSkippedError extends Error {
  constructor(reason: string) {
    super(
      `The integration was passed over (${reason}), and what belongs to its connections with it. See what is told of it, then ` +
        'run this again.',
    );
    this.name = 'IntegrationSkippedError';
  }
}

export type Filling = { db: Db; vault: Vault; from: OpenImport; metadataKey: string };

const nothing: DatasetProgress = {
  ...{ position: undefined, records: 0, deleted: 0, pruned: 0 },
  ...{ isDone: false, lastSeq: 0 },
};

/**
 * The dataset, to be filled from where the run before has left it. Throws `unknown_connection` where the connection is not
 * here, ConnectionDiffersError where it is not of this import, HasRecordsError where there is something left to do and others
 * have saved.
 */
export async function openDataset(
  { db, vault, from, metadataKey }: Filling,
  dataset: Dataset,
): Promise<FilledDataset> {
  const target = await openTarget(db, { environmentId: from.environmentId, dataset, vault });
  const storedId = target.connection;
  if (!(await isOfImport(db, from, { place: dataset, storedId }))) throw new ConnectionDiffersError();
  const known = await findDatasetProgress(db, from, { dataset, storedId });
  const stand = await readStand(db, target);
  // An empty one may have a position: of a restore, or of records that are gone.
  const isEmpty = stand.records + stand.deleted === 0;
  let progress = isEmpty ? { ...nothing, lastSeq: stand.lastSeq } : (known ?? nothing);
  const hasOthers = stand.lastSeq !== progress.lastSeq;
  if (!progress.isDone && hasOthers) throw new HasRecordsError();

  /** Under the dataset's lock, so that nobody saves between the look and the note. */
  async function save(
    records: readonly MovedRecord[],
    advance: (now: Stand) => Partial<DatasetProgress>,
  ): Promise<void> {
    progress = await db.transaction(async (tx) => {
      const inside = within(tx);
      const { lastSeq } = progress;
      let now: Stand = progress;
      if (records.length > 0) {
        await holdConnection(tx, target.connection);
        const locked = await lockDataset(tx, await ensureDataset(inside, target));
        if (locked?.lastSeq !== lastSeq) throw new HasRecordsError();
        await saveMoved(inside, { target, records, metadataKey });
        now = await readStand(inside, target);
      }
      const next = { ...progress, ...advance(now), lastSeq: now.lastSeq };
      await noteDatasetProgress(tx, from, { dataset, storedId, progress: next });
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
      // As they stand here: one that was changed or deleted there since it was read comes once more.
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

/** The transaction, for work that would begin one of its own. It has nothing that needs another connection. */
function within(tx: Tx): Db {
  const refuse = (): never => {
    throw new Error('Not within a transaction.');
  };
  return {
    query: (text, values) => tx.query(text, values),
    run: (built) => tx.run(built),
    transaction: async (work, mode) => (mode === 'snapshot' ? refuse() : work(tx)),
    transactionWithin: async () => refuse(),
    pipeline: async () => refuse(),
    load: refuse,
    end: async () => refuse(),
  };
}
