import type { Db } from '../../db/pool.ts';
import type { Vault } from '../../vault.ts';
import { reasonOf } from '../connections.ts';
import {
  type Dataset,
  type DatasetProgress,
  findDatasetProgress,
  type Import,
  noteDatasetProgress,
  type Place,
} from '../ledger.ts';
import {
  firstPositionOf,
  hasRecords,
  lastPosition,
  type MovedRecord,
  openTarget,
  placeConsumer,
  saveMoved,
  type Target,
} from '../records.ts';
import { peerRecordMetadata, peerRecords, peerSyncs, readAnswer } from './answers.ts';
import { type Peer, PeerError } from './client.ts';
import { keyOfDataset, type Position } from './positions.ts';

/**
 * The peer's records, and where the application stands in them.
 *
 * They are read from the first on, in the peer's order, which is that of their latest changes, and saved as they come.
 * Those that the peer has pruned have no payload left and are counted alone. A position is found by asking the peer what
 * comes after it: the consumer here is put before the first of these.
 */
const metadataKey = '_nango_metadata';
const pageSize = 500;

type Moving = {
  db: Db;
  peer: Peer;
  vault: Vault;
  from: Import;
  /** Names of models, where the peer does not tell them. */
  models: readonly string[] | undefined;
  positions: ReadonlyMap<string, Position>;
  consumer: string;
};

/** What became of a dataset. `placed`: of the consumer; undefined where no position was given for it. */
export type MovedDataset = Dataset &
  Omit<DatasetProgress, 'position' | 'isDone'> & {
    /** How many live ones the peer says there are; undefined where it says nothing. */
    expected: number | undefined;
    outcome: 'moved' | 'existing' | 'failed';
    reason?: string;
    placed: 'made' | 'existing' | undefined;
  };

/** All datasets of a connection that is here. Throws PeerError where the peer does not name them, PeerLostError, and what keeps the database from answering. */
export async function moveDatasets(moving: Moving, place: Place): Promise<MovedDataset[]> {
  const done: MovedDataset[] = [];
  for (const { expected, ...dataset } of await listDatasets(moving, place)) {
    const base = { ...dataset, expected, records: 0, deleted: 0, pruned: 0, placed: undefined };
    try {
      done.push(await moveDataset(moving, { dataset, expected }));
    } catch (error) {
      const reason = error instanceof PeerError ? error.code : reasonOf(error)?.reason;
      if (reason === undefined) throw error;
      done.push({ ...base, outcome: 'failed', reason });
    }
  }
  return done;
}

/** What the peer's syncs of the connection save, and what somebody has named. */
async function listDatasets(
  { peer, models, positions }: Moving,
  place: Place,
): Promise<(Dataset & { expected: number | undefined })[]> {
  const found = new Map<string, Dataset & { expected: number | undefined }>();
  const add = (dataset: Dataset, expected: number | undefined) => {
    const key = keyOfDataset(dataset);
    if (!found.has(key) || expected !== undefined) found.set(key, { ...dataset, expected });
  };
  for (const key of positions.keys()) {
    const [integration, connection, model, variant] = JSON.parse(key) as [string, string, string, string];
    if (integration === place.integration && connection === place.connection)
      add({ ...place, model, variant }, undefined);
  }
  for (const model of models ?? []) add({ ...place, model, variant: 'base' }, undefined);
  if (models === undefined) {
    const query = { syncs: '*', provider_config_key: place.integration, connection_id: place.connection };
    const { syncs } = readAnswer(peerSyncs, await peer.get('/sync/status', query), '/sync/status');
    const hasVariants = syncs.some(({ variant }) => variant && variant !== 'base');
    for (const { variant, recordCount } of syncs) {
      // Its count is of all variants together.
      for (const [model, count] of Object.entries(recordCount ?? {}))
        add({ ...place, model, variant: variant || 'base' }, hasVariants ? undefined : count);
    }
  }
  return [...found.values()];
}

async function moveDataset(
  moving: Moving,
  { dataset, expected }: { dataset: Dataset; expected: number | undefined },
): Promise<MovedDataset> {
  const { db, vault, from } = moving;
  const known = await findDatasetProgress(db, from, dataset);
  const target = await openTarget(db, { environmentId: from.environmentId, dataset, vault });
  const nothing = { records: 0, deleted: 0, pruned: 0 };
  const base = { ...dataset, expected, ...nothing, placed: undefined };
  if (target === undefined) return { ...base, outcome: 'failed', reason: 'unknown_connection' };
  if (known === undefined && (await hasRecords(db, target)))
    return { ...base, outcome: 'existing', reason: 'dataset_has_records' };
  const start = known ?? { ...nothing, position: undefined, isDone: false };
  const read = known?.isDone ? known : await readAll(moving, { dataset, target, start });
  const placed = await place(moving, { dataset, target });
  const { records, deleted, pruned } = read;
  return { ...dataset, expected, records, deleted, pruned, outcome: 'moved', placed };
}

async function readAll(
  moving: Moving,
  given: { dataset: Dataset; target: Target; start: DatasetProgress },
): Promise<DatasetProgress> {
  const { dataset, target } = given;
  const { db, from } = moving;
  let progress = given.start;
  // Written first: what stands in the dataset from now on is of this import.
  await noteDatasetProgress(db, from, { dataset, progress });
  for await (const page of pages(moving, { dataset, cursor: progress.position })) {
    const saved = await saveMoved(db, { target, records: page.records, metadataKey });
    progress = {
      position: page.end ?? progress.position,
      records: progress.records + saved.records,
      deleted: progress.deleted + saved.deleted,
      pruned: progress.pruned + page.pruned,
      isDone: false,
    };
    await noteDatasetProgress(db, from, { dataset, progress });
  }
  progress = { ...progress, isDone: true };
  await noteDatasetProgress(db, from, { dataset, progress });
  return progress;
}

/** Puts the consumer before the first record that the peer would give next. */
async function place(
  moving: Moving,
  { dataset, target }: { dataset: Dataset; target: Target },
): Promise<'made' | 'existing' | undefined> {
  const { db, positions, consumer } = moving;
  const position = positions.get(keyOfDataset(dataset));
  if (position === undefined) return undefined;
  let first: number | undefined;
  for await (const { records } of pages(moving, { dataset, ...position })) {
    // Also what has come since they were read.
    await saveMoved(db, { target, records, metadataKey });
    const seq = await firstPositionOf(db, { target, ids: records.map(({ id }) => id) });
    if (seq !== undefined && (first === undefined || seq < first)) first = seq;
  }
  const seq = first === undefined ? await lastPosition(db, target) : first - 1;
  return (await placeConsumer(db, { target, name: consumer, seq })) ? 'made' : 'existing';
}

type Page = { records: MovedRecord[]; pruned: number; end: string | undefined };

async function* pages(
  { peer }: Moving,
  given: { dataset: Dataset; cursor?: string | undefined; modified_after?: string | undefined },
): AsyncGenerator<Page> {
  const { integration, connection, model, variant } = given.dataset;
  const headers = { 'provider-config-key': integration, 'connection-id': connection };
  for (let cursor = given.cursor; ; ) {
    const answer = await peer.get(
      '/records',
      {
        model,
        ...(variant !== 'base' && { variant }),
        limit: pageSize,
        cursor,
        modified_after: given.modified_after,
      },
      headers,
    );
    const { records, next_cursor: next } = readAnswer(peerRecords, answer, '/records');
    const read = records.map(readRecord);
    if (read.length > 0) {
      yield {
        records: read.filter(({ isPruned }) => !isPruned),
        pruned: read.filter(({ isPruned }) => isPruned).length,
        end: read.at(-1)?.cursor ?? next ?? undefined,
      };
    }
    // A page may be short; only the cursor says that it was the last.
    if (!next) return;
    cursor = next;
  }
}

function readRecord(
  given: Record<string, unknown>,
): MovedRecord & { isPruned: boolean; cursor: string | undefined } {
  const { [metadataKey]: said, ...fields } = given;
  const metadata = peerRecordMetadata.safeParse(said ?? {}).data;
  const isDeleted = metadata?.last_action === 'DELETED' || Boolean(metadata?.deleted_at);
  return {
    id: String(given.id),
    isDeleted,
    // A deletion is worth telling without a payload, too.
    isPruned: !isDeleted && Boolean(metadata?.pruned_at),
    fields,
    cursor: metadata?.cursor ?? undefined,
  };
}
