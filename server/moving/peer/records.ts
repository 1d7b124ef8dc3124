import type { Db } from '../../db/pool.ts';
import { findConsumer } from '../../records/consumers.ts';
import type { Vault } from '../../vault.ts';
import type { DatasetProgress } from '../dataset-ledger.ts';
import { type FilledDataset, openDataset } from '../datasets.ts';
import type { Dataset, OpenImport, Place } from '../ledger.ts';
import { firstPositionOf, type MovedRecord } from '../records.ts';
import { peerRecordMetadata, peerRecords, peerSyncs, readPart } from './answers.ts';
import type { Peer } from './client.ts';
import { datasetOf, keyOfDataset, type Position } from './positions.ts';
import { reasonOf } from './reason.ts';

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
  from: OpenImport;
  /** Names of models, where the peer does not tell them. */
  models: readonly string[] | undefined;
  positions: ReadonlyMap<string, Position>;
  consumer: string;
};

/** What became of a dataset. `placed`: of the consumer; undefined where no position was given for it. */
export type MovedDataset = Dataset &
  Pick<DatasetProgress, 'records' | 'deleted' | 'pruned'> & {
    /** How many live ones the peer says there are; undefined where it says nothing. */
    expected: number | undefined;
    outcome: 'moved' | 'existing' | 'failed';
    reason?: string;
    /** Which part of it, and why. */
    detail?: string;
    placed: 'made' | 'existing' | undefined;
  };

type Listed = {
  dataset: Dataset;
  expected: number | undefined;
  /** Said of it by the peer or the operator, and not by a position alone. */
  isNamed: boolean;
};

/** All datasets of a connection that is here. Throws PeerError where the peer does not name them, PeerLostError, and what keeps the database from answering. */
export async function moveDatasets(moving: Moving, place: Place): Promise<MovedDataset[]> {
  const done: MovedDataset[] = [];
  for (const listed of await listDatasets(moving, place)) {
    const { dataset, expected } = listed;
    const base = { ...dataset, expected, records: 0, deleted: 0, pruned: 0, placed: undefined };
    try {
      const moved = await moveDataset(moving, listed);
      done.push(moved ?? { ...base, outcome: 'failed', reason: 'unknown_model' });
    } catch (error) {
      const said = reasonOf(error);
      if (said === undefined) throw error;
      done.push({ ...base, outcome: said.reason === 'dataset_has_records' ? 'existing' : 'failed', ...said });
    }
  }
  return done;
}

/** What the peer's syncs of the connection save, and what somebody has named. */
async function listDatasets({ peer, models, positions }: Moving, place: Place): Promise<Listed[]> {
  const found = new Map<string, Listed>();
  const add = (dataset: Dataset, expected: number | undefined) =>
    found.set(keyOfDataset(dataset), { dataset, expected, isNamed: true });
  for (const [key, dataset] of [...positions.keys()].map((one) => [one, datasetOf(one)] as const))
    if (dataset.integration === place.integration && dataset.connection === place.connection)
      found.set(key, { dataset, expected: undefined, isNamed: false });
  for (const model of models ?? []) add({ ...place, model, variant: 'base' }, undefined);
  if (models === undefined) {
    const query = { syncs: '*', provider_config_key: place.integration, connection_id: place.connection };
    const { syncs } = readPart(peerSyncs, await peer.get('/sync/status', query), '/sync/status');
    const hasVariants = syncs.some(({ variant }) => variant && variant !== 'base');
    for (const { variant, recordCount } of syncs) {
      // Its count is of all variants together.
      for (const [model, count] of Object.entries(recordCount ?? {}))
        add({ ...place, model, variant: variant || 'base' }, hasVariants ? undefined : count);
    }
  }
  return [...found.values()];
}

/**
 * Undefined where the peer has nothing of the name. One that was read to its end before is read on, so that it has what changed
 * there since, unless somebody else has saved here.
 */
async function moveDataset(
  moving: Moving,
  { dataset, expected, isNamed }: Listed,
): Promise<MovedDataset | undefined> {
  const filled = await openDataset({ ...moving, metadataKey }, dataset);
  if (!filled.hasOthers) await readOn(moving, { dataset, filled });
  const { records, deleted, pruned, isDone } = filled.progress;
  if (records + deleted + pruned === 0 && !isNamed) return undefined;
  if (!isDone) await filled.end();
  const placed = await place(moving, { dataset, filled });
  return { ...dataset, expected, records, deleted, pruned, outcome: 'moved', placed };
}

type Open = { dataset: Dataset; filled: FilledDataset };

async function readOn(moving: Moving, { dataset, filled }: Open): Promise<void> {
  for await (const page of pages(moving, { dataset, cursor: filled.progress.position })) {
    const position = page.end ?? filled.progress.position;
    await filled.add(page.records, { position, pruned: page.pruned });
  }
}

/** Puts the consumer before the first record that the peer would give next; one that is here stays where it is. */
async function place(moving: Moving, { dataset, filled }: Open): Promise<'made' | 'existing' | undefined> {
  const { db, positions, consumer } = moving;
  const { target } = filled;
  const position = positions.get(keyOfDataset(dataset));
  if (position === undefined) return undefined;
  // Records that have moved on since it was placed are not to be what they were at the peer.
  if ((await findConsumer(db, { ...target, name: consumer })) !== undefined) return 'existing';
  let first: number | undefined;
  for await (const { records } of pages(moving, { dataset, ...position })) {
    // Also what has come since they were read.
    await filled.renew(records);
    const seq = await firstPositionOf(db, { target, ids: records.map(({ id }) => id) });
    if (seq !== undefined && (first === undefined || seq < first)) first = seq;
  }
  return (await filled.place(consumer, first && first - 1)) ? 'made' : 'existing';
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
    const { records, next_cursor: next } = readPart(peerRecords, answer, '/records');
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
