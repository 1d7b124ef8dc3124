// A database with connections to keep records for, and the few calls that tests of records repeat.

import { randomBytes } from 'node:crypto';
import { brandNames } from '../../server/brand.ts';
import type { Db } from '../../server/db/pool.ts';
import type { JsonValue } from '../../server/records/codec/canonical.ts';
import { checkParts, checkRecords } from '../../server/records/codec/check.ts';
import { cursorWriter } from '../../server/records/cursor.ts';
import { hiddenSeq } from '../../server/records/dataset.ts';
import { type DatasetSettings, setDatasetSettings } from '../../server/records/datasets.ts';
import { type PageRequest, readPage } from '../../server/records/read/page.ts';
import { pruneRecords } from '../../server/records/retention/prune.ts';
import { estimatePrune } from '../../server/records/routes/dataset-routes.ts';
import { pageToWire } from '../../server/records/routes/wire.ts';
import type { RecordOwner } from '../../server/records/rows.ts';
import { deleteRecords, emptyDataset } from '../../server/records/write/delete.ts';
import { type SaveRequest, saveRecords } from '../../server/records/write/save.ts';
import {
  type Beginning,
  dropTracking,
  endTracking,
  startTracking,
} from '../../server/records/write/track-deletes.ts';
import { updateRecords } from '../../server/records/write/update.ts';
import { DataKey } from '../../server/vault.ts';
import { openTestDatabase } from './database.ts';

export const brand = brandNames('trellis');

/** What a reader of the API sees of a record. */
export type WireRecord = {
  id: string;
  _trellis_metadata: {
    first_seen_at: string;
    last_modified_at: string;
    last_action: string;
    deleted_at: string | null;
    pruned_at: string | null;
    cursor: string;
    changes?: { fields: string[]; previous: Record<string, unknown> | null } | null;
  };
  [field: string]: unknown;
};
export type WirePage = { records: WireRecord[]; next_cursor: string | null };

export type RecordBench = Awaited<ReturnType<typeof openRecordBench>>;

/** A database of its own; `end` removes it. */
export async function openRecordBench() {
  const { db, target, copy, drop } = await openTestDatabase();
  const [place] = await db.query<{ environment: number; integration: number }>(
    `with e as (
       insert into environment (name, data_key) values ('records-test', gen_random_uuid()) returning id
     )
     insert into integration (environment_id, key, provider, display_name)
     select id, 'sheets', 'google-sheet', 'Sheets' from e
     returning environment_id as environment, id as integration`,
  );
  return {
    db,
    target,
    copy,
    end: drop,
    /** A connection without anything saved. */
    async connect(): Promise<RecordOwner> {
      const [row] = await db.query<{ id: number }>(
        `insert into connection (environment_id, integration_id, connection_id, data_key)
         values ($1, $2, gen_random_uuid()::text, gen_random_uuid())
         returning id`,
        [place?.environment, place?.integration],
      );
      return { id: (row as { id: number }).id, dataKey: new DataKey(randomBytes(32)) };
    },
  };
}

/** The calls on one dataset. */
export function datasetCalls(
  db: Db,
  connection: RecordOwner,
  { model = 'Row', variant = 'base' }: { model?: string; variant?: string } = {},
) {
  const name = { connection: connection.id, model, variant };
  const metadataKey = brand.metadataKey;
  const checked = (records: JsonValue[]) =>
    checkRecords(records, { metadataKey, expectedBytes: 1000 * records.length });
  const calls = {
    save: async (records: JsonValue[], restore: SaveRequest['restore'] = 'always') =>
      saveRecords(db, { connection, model, variant, records: checked(records), restore }),
    /** A save that says what counts as a change. */
    saveBy: async (
      records: JsonValue[],
      by: Partial<Pick<SaveRequest, 'restore' | 'ignoreFields' | 'withChangedFields'>>,
    ) => saveRecords(db, { connection, model, variant, records: checked(records), restore: 'always', ...by }),
    update: async (records: JsonValue[]) =>
      updateRecords(db, { connection, model, variant, parts: checkParts(records, metadataKey) }),
    delete: (...ids: string[]) => deleteRecords(db, { ...name, ids }),
    /** As a reset with `emptyCache` does it. */
    async empty(): Promise<void> {
      const { id } = await calls.row();
      await db.transaction((tx) => emptyDataset(tx, id));
    },
    set: (settings: DatasetSettings) => setDatasetSettings(db, name, settings),
    startTracking: (of: { beginning?: Beginning } = {}) => startTracking(db, { ...name, ...of }),
    dropTracking: () => dropTracking(db, name),
    endTracking: (override: 'none' | 'mass_delete' = 'none', of: { beginning?: Beginning } = {}) =>
      endTracking(db, { ...name, override, ...of }),
    estimate: (untilCursor: string) => estimatePrune(db, { ...name, untilCursor }),
    async list(request: Partial<PageRequest> = {}): Promise<WirePage> {
      const asked = { connection: async () => connection, model, variant, limit: 100, ...request };
      const chunks = await Array.fromAsync(pageToWire(readPage(db, asked), brand));
      return JSON.parse(Buffer.concat(chunks).toString('utf8'));
    },
    /** Every record, page by page. */
    async listAll(request: Partial<PageRequest> = {}): Promise<WireRecord[]> {
      const all: WireRecord[] = [];
      let cursor = request.cursor;
      do {
        const page = await calls.list({ ...request, cursor });
        all.push(...page.records);
        cursor = page.next_cursor ?? undefined;
      } while (cursor !== undefined);
      return all;
    },
    prune: (untilCursor: string, limit = 1000) =>
      pruneRecords(db, {
        ...name,
        untilCursor,
        limit,
        by: { environmentId: undefined, actor: 'test', target: 'test' },
      }),
    async cursorOf(seq: number): Promise<string> {
      return cursorWriter((await calls.row()).id)(seq);
    },
    /** The dataset's row. */
    async row() {
      const [row] = await db.query<Record<string, number>>(
        `select id, last_seq, prune_floor, records, deleted, pruned, payload_bytes
         from dataset
         where connection = $1 and model = $2 and variant = $3`,
        [connection.id, model, variant],
      );
      return row as Counters & { id: number; last_seq: number; prune_floor: number };
    },
    /** The counters as a recount of the tables gives them. */
    async recount(): Promise<Counters> {
      const { id } = await calls.row();
      const [row] = await db.query<Counters>(
        `select
           count(*) filter (where deleted_at is null) as records,
           count(*) filter (where deleted_at is not null) as deleted,
           count(*) filter (where body is null) as pruned,
           coalesce(sum(octet_length(body) + coalesce(octet_length(previous), 0)), 0)::bigint as payload_bytes
         from record
         left join payload using (dataset_id, seq)
         join dataset on dataset.id = dataset_id
         where dataset_id = $1 and seq > ${hiddenSeq}`,
        [id],
      );
      return row as Counters;
    },
  };
  return calls;
}

/** Empties every dataset of a model. */
export async function emptyModel(db: Db, model: string): Promise<void> {
  const found = await db.query<{ id: number }>('select id from dataset where model = $1', [model]);
  for (const { id } of found) await db.transaction((tx) => emptyDataset(tx, id));
}

export type Counters = { records: number; deleted: number; pruned: number; payload_bytes: number };

/** Records `<from>` to `<to>`, each `{id, n, text}`. */
export function rows(from: number, to: number, text = 'first'): { id: string; n: number; text: string }[] {
  return Array.from({ length: to - from + 1 }, (_, index) => ({
    id: `r${from + index}`,
    n: from + index,
    text,
  }));
}
