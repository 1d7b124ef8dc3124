import { getConnection } from '../connections/store.ts';
import type { Db } from '../db/pool.ts';
import type { JsonValue } from '../records/canonical.ts';
import { RecordChecker, requireRecords } from '../records/check.ts';
import { acknowledge, findConsumer } from '../records/consumers.ts';
import { cursorWriter } from '../records/cursor.ts';
import {
  ensureDataset,
  findDataset,
  findDatasetForReading,
  type Dataset as Row,
} from '../records/dataset.ts';
import { deleteRecords } from '../records/delete.ts';
import { type RecordOwner, saveRecords } from '../records/save.ts';
import { findStored } from '../records/stored.ts';
import type { Vault } from '../vault.ts';
import type { Dataset } from './ledger.ts';

/**
 * Imported records, saved in the order of their changes at the source, so that a position among them means the same
 * here: a consumer that had read up to the position continues after it.
 *
 * Saving the same ones again changes nothing. Does not own: whether they are to be saved, and how far an import is
 * (`datasets.ts`).
 */
export type Target = { owner: RecordOwner; connection: number; model: string; variant: string };

export type MovedRecord = {
  id: string;
  isDeleted: boolean;
  /** The payload, also with `id` and the metadata of the source in it, which are left out. */
  fields: Record<string, unknown>;
};

/** Throws `unknown_connection` where the connection is not here. */
export async function openTarget(
  db: Db,
  { environmentId, dataset, vault }: { environmentId: number; dataset: Dataset; vault: Vault },
): Promise<Target> {
  const { integration, connection, model, variant } = dataset;
  const place = { environmentId, integrationKey: integration, connectionId: connection };
  const owner = await getConnection(db, { ...place, vault });
  return { owner, connection: owner.id, model, variant };
}

/**
 * Saves records in their order; those that are deleted become tombstones with the payload they come with. Throws
 * `invalid_record` where one does not fit, naming it.
 */
export async function saveMoved(
  db: Db,
  { target, records, metadataKey }: { target: Target; records: readonly MovedRecord[]; metadataKey: string },
): Promise<void> {
  for (const run of runsOf(records)) {
    if (run[0]?.isDeleted !== true) {
      await save(db, { target, records: run, metadataKey });
      continue;
    }
    const ids = run.map(({ id }) => id);
    // One that is deleted here already keeps its position: it was read before, and is read again for a consumer.
    const { missing } = await deleteRecords(db, { ...target, ids });
    if (missing.length === 0) continue;
    const unknown = new Set(missing);
    await save(db, { target, records: run.filter(({ id }) => unknown.has(id)), metadataKey });
    await deleteRecords(db, { ...target, ids: missing });
  }
}

async function save(
  db: Db,
  { target, records, metadataKey }: { target: Target; records: readonly MovedRecord[]; metadataKey: string },
): Promise<void> {
  const checker = new RecordChecker({ metadataKey, expectedBytes: 64 * 1024 });
  for (const [index, { id, fields }] of records.entries()) checker.add({ ...fields, id } as JsonValue, index);
  await saveRecords(db, {
    connection: target.owner,
    model: target.model,
    variant: target.variant,
    records: requireRecords(checker.end()),
    restore: 'always',
  });
}

/** Neighbours of a kind together, so that their order stays. */
function runsOf(records: readonly MovedRecord[]): MovedRecord[][] {
  const runs: MovedRecord[][] = [];
  for (const record of records) {
    const last = runs.at(-1);
    if (last?.[0]?.isDeleted === record.isDeleted) last.push(record);
    else runs.push([record]);
  }
  return runs;
}

export type Stand = Pick<Row, 'lastSeq' | 'records' | 'deleted'>;

/** The dataset's last position, and how many records it has, live ones and deleted ones; 0 where there is none. */
export async function readStand(db: Db, target: Target): Promise<Stand> {
  const { lastSeq, records, deleted } = (await findDataset(db, target)) ?? none;
  return { lastSeq, records, deleted };
}
const none: Stand = { lastSeq: 0, records: 0, deleted: 0 };

/** The first position that one of these records has; undefined where none is here. */
export async function firstPositionOf(
  db: Db,
  { target, ids }: { target: Target; ids: readonly string[] },
): Promise<number | undefined> {
  return db.transaction(async (tx) => {
    const dataset = await findDatasetForReading(tx, target);
    if (dataset === undefined) return undefined;
    const rows = await findStored(tx, dataset, ids);
    return [...rows.values()].map(({ seq }) => seq).sort((a, b) => a - b)[0];
  }, 'snapshot');
}

/**
 * Makes the consumer, as having taken everything up to this position, 0 for nothing. False where there is one of that name:
 * it stays where it is.
 */
export async function placeConsumer(
  db: Db,
  { target, name, seq }: { target: Target; name: string; seq: number },
): Promise<boolean> {
  if ((await findConsumer(db, { ...target, name })) !== undefined) return false;
  const datasetId = await ensureDataset(db, target);
  const cursor = seq === 0 ? undefined : cursorWriter(datasetId)(seq);
  await acknowledge(db, { ...target, name, cursor, by: 'service' });
  return true;
}
