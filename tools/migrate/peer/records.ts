import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import type { Db } from '../../../server/db/pool.ts';
import { findConsumer } from '../../../server/records/retention/consumers.ts';
import type { Vault } from '../../../server/vault.ts';
import { firstPositionOf, type ImportedDataset, type ImportedRecord, openDataset } from '../datasets.ts';
import type { ConnectionRef, DatasetProgress, DatasetRef, ImportRun } from '../ledger.ts';
import { failureOf } from '../report.ts';
import { peerRecordMetadata, peerRecords, peerSyncs, readOptional } from './answers.ts';
import type { Peer } from './client.ts';

/**
 * The peer's records, and the application's position in them.
 *
 * They are read from the first one, in the peer's order, which is that of their latest changes, and saved in it. Records
 * that the peer has pruned have no payload and are only counted. A position is resolved by reading what the peer returns
 * after it: the consumer here is placed before the first of these records.
 */
const metadataKey = '_nango_metadata';
const pageSize = 500;

/** A position that the application has noted: a cursor, or a time. A file of positions has one a line, as JSON. */
const position = z
  .strictObject({
    provider_config_key: z.string().min(1),
    connection_id: z.string().min(1),
    model: z.string().min(1),
    variant: z.string().min(1).default('base'),
    cursor: z.string().min(1).max(1000).optional(),
    modified_after: z.string().min(1).max(100).optional(),
  })
  .refine(({ cursor, modified_after }) => (cursor === undefined) !== (modified_after === undefined), {
    message: 'takes either cursor or modified_after',
  });
export type Position = Pick<z.output<typeof position>, 'cursor' | 'modified_after'>;

/** By `keyOfDataset`. Throws with the number of a line that is not valid. */
export async function readPositions(path: string): Promise<Map<string, Position>> {
  const found = new Map<string, Position>();
  let number = 0;
  for await (const line of createInterface({ input: createReadStream(path), crlfDelay: Infinity })) {
    number += 1;
    if (line.trim() === '') continue;
    const {
      provider_config_key: integration,
      connection_id: connection,
      ...rest
    } = parsePosition(line, {
      path,
      number,
    });
    const { model, variant, ...noted } = rest;
    found.set(keyOfDataset({ integration, connection, model, variant }), noted);
  }
  return found;
}

function parsePosition(line: string, at: { path: string; number: number }): z.output<typeof position> {
  const fault = (message: string) => new Error(`${at.path}:${at.number}: ${message}`);
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw fault('is not JSON');
  }
  const parsed = position.safeParse(value);
  if (parsed.success) return parsed.data;
  throw fault(
    parsed.error.issues.map(({ path, message }) => `${path.join('.')} ${message}`.trim()).join('; '),
  );
}

export function keyOfDataset({ integration, connection, model, variant }: DatasetRef): string {
  return JSON.stringify([integration, connection, model, variant]);
}

export function datasetOf(key: string): DatasetRef {
  const [integration, connection, model, variant] = JSON.parse(key) as [string, string, string, string];
  return { integration, connection, model, variant };
}

type RecordsImport = {
  db: Db;
  peer: Peer;
  vault: Vault;
  from: ImportRun;
  /** Names of models, if the peer does not give them. */
  models: readonly string[] | undefined;
  positions: ReadonlyMap<string, Position>;
  consumer: string;
};

/** `placed`: the outcome of the consumer; undefined if no position was given for the dataset. */
type DatasetOutcome = DatasetRef &
  Pick<DatasetProgress, 'records' | 'deleted' | 'pruned'> & {
    /** The peer's number of live records; undefined if it is unknown. */
    expected: number | undefined;
    outcome: 'moved' | 'existing' | 'failed';
    reason?: string;
    detail?: string;
    placed: 'made' | 'existing' | undefined;
  };

type ListedDataset = {
  dataset: DatasetRef;
  expected: number | undefined;
  /** Named by the peer or the operator, not only by a position. */
  isNamed: boolean;
};

/** Imports all datasets of a connection that is here. Throws PeerError if the peer does not list them, PeerLostError, and errors of the database. */
export async function importDatasets(settings: RecordsImport, ref: ConnectionRef): Promise<DatasetOutcome[]> {
  const done: DatasetOutcome[] = [];
  for (const listed of await listDatasets(settings, ref)) {
    const { dataset, expected } = listed;
    const base = { ...dataset, expected, records: 0, deleted: 0, pruned: 0, placed: undefined };
    try {
      const imported = await importDataset(settings, listed);
      done.push(imported ?? { ...base, outcome: 'failed', reason: 'unknown_model' });
    } catch (error) {
      const failure = failureOf(error);
      if (failure === undefined) throw error;
      const outcome = failure.reason === 'dataset_has_records' ? 'existing' : 'failed';
      done.push({ ...base, outcome, ...failure });
    }
  }
  return done;
}

/** The datasets of the connection's syncs at the peer, and those that the operator has named. */
async function listDatasets(
  { peer, models, positions }: RecordsImport,
  ref: ConnectionRef,
): Promise<ListedDataset[]> {
  const found = new Map<string, ListedDataset>();
  const add = (dataset: DatasetRef, expected: number | undefined) =>
    found.set(keyOfDataset(dataset), { dataset, expected, isNamed: true });
  for (const [key, dataset] of [...positions.keys()].map((one) => [one, datasetOf(one)] as const))
    if (dataset.integration === ref.integration && dataset.connection === ref.connection)
      found.set(key, { dataset, expected: undefined, isNamed: false });
  for (const model of models ?? []) add({ ...ref, model, variant: 'base' }, undefined);
  if (models === undefined) {
    const query = { syncs: '*', provider_config_key: ref.integration, connection_id: ref.connection };
    const { syncs } = readOptional(peerSyncs, await peer.get('/sync/status', query), '/sync/status');
    const hasVariants = syncs.some(({ variant }) => variant && variant !== 'base');
    for (const { variant, recordCount } of syncs) {
      // The peer's count covers all variants.
      for (const [model, count] of Object.entries(recordCount ?? {}))
        add({ ...ref, model, variant: variant || 'base' }, hasVariants ? undefined : count);
    }
  }
  return [...found.values()];
}

/**
 * Undefined if the peer has no dataset of the name. A dataset that was read to its end is continued with later changes,
 * unless others have saved here.
 */
async function importDataset(
  settings: RecordsImport,
  { dataset, expected, isNamed }: ListedDataset,
): Promise<DatasetOutcome | undefined> {
  const filled = await openDataset({ ...settings, metadataKey }, dataset);
  if (!filled.hasOthers)
    for await (const page of pages(settings, { dataset, cursor: filled.progress.position })) {
      const position = page.end ?? filled.progress.position;
      await filled.add(page.records, { position, pruned: page.pruned });
    }
  const { records, deleted, pruned, isDone } = filled.progress;
  if (records + deleted + pruned === 0 && !isNamed) return undefined;
  if (!isDone) await filled.end();
  const placed = await placeConsumer(settings, { dataset, filled });
  return { ...dataset, expected, records, deleted, pruned, outcome: 'moved', placed };
}

/** Places the consumer before the first record that the peer returns next; a consumer that exists stays. */
async function placeConsumer(
  settings: RecordsImport,
  { dataset, filled }: { dataset: DatasetRef; filled: ImportedDataset },
): Promise<'made' | 'existing' | undefined> {
  const { db, positions, consumer } = settings;
  const { target } = filled;
  const position = positions.get(keyOfDataset(dataset));
  if (position === undefined) return undefined;
  // Records that have changed since it was placed must not get their earlier values from the peer.
  if ((await findConsumer(db, { ...target, name: consumer })) !== undefined) return 'existing';
  let first: number | undefined;
  for await (const { records } of pages(settings, { dataset, ...position })) {
    // Includes records that have changed since they were read.
    await filled.renew(records);
    const seq = await firstPositionOf(db, { target, ids: records.map(({ id }) => id) });
    if (seq !== undefined && (first === undefined || seq < first)) first = seq;
  }
  return (await filled.place(consumer, first && first - 1)) ? 'made' : 'existing';
}

type Page = { records: ImportedRecord[]; pruned: number; end: string | undefined };

async function* pages(
  { peer }: RecordsImport,
  given: { dataset: DatasetRef; cursor?: string | undefined; modified_after?: string | undefined },
): AsyncGenerator<Page> {
  const { integration, connection, model, variant } = given.dataset;
  const headers = { 'provider-config-key': integration, 'connection-id': connection };
  for (let cursor = given.cursor; ; ) {
    const response = await peer.get(
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
    const { records, next_cursor: next } = readOptional(peerRecords, response, '/records');
    const read = records.map(readRecord);
    if (read.length > 0) {
      yield {
        records: read.filter(({ isPruned }) => !isPruned),
        pruned: read.filter(({ isPruned }) => isPruned).length,
        end: read.at(-1)?.cursor ?? next ?? undefined,
      };
    }
    // A page may be short: only a missing cursor marks the last one.
    if (!next) return;
    cursor = next;
  }
}

function readRecord(
  given: Record<string, unknown>,
): ImportedRecord & { isPruned: boolean; cursor: string | undefined } {
  const { [metadataKey]: raw, ...fields } = given;
  const metadata = peerRecordMetadata.safeParse(raw ?? {}).data;
  const isDeleted = metadata?.last_action === 'DELETED' || Boolean(metadata?.deleted_at);
  return {
    id: String(given.id),
    isDeleted,
    // A deletion is imported without a payload, too.
    isPruned: !isDeleted && Boolean(metadata?.pruned_at),
    fields,
    cursor: metadata?.cursor ?? undefined,
  };
}
