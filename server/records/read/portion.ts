/**
 * A portion of a list: its request, its result, and the parts that the two ways to read it (`list.ts`, `range.ts`)
 * share.
 */
import type { DataKey } from '../../vault.ts';
import { openPayload } from '../codec/seal.ts';
import { cursorWriter, type Position, readFollowedCursor, readUnemptiedCursor } from '../cursor.ts';
import type { Dataset } from '../dataset.ts';
import { describeChange, type RecordOwner } from '../rows.ts';

export type RecordAction = 'ADDED' | 'UPDATED' | 'DELETED';

/** A record in its latest state. Times are in UTC as PostgreSQL writes them: `2026-11-21 00:51:26.942747`. */
export type StoredRecord = {
  id: string;
  seq: number;
  /** Sealed bytes of the payload as last written. */
  size: number;
  firstSeenAt: string;
  lastModifiedAt: string;
  lastAction: RecordAction;
  deletedAt: string | null;
  prunedAt: string | null;
  /** The payload as JSON text without `id`; undefined if it is pruned. */
  fields: Buffer | undefined;
  /** The last change, from `describeChange`, or `null` if nothing is known of it. Only with `withChanges`. */
  changes?: string;
};

export type ListRequest = {
  connection: RecordOwner;
  model: string;
  variant: string;
  /** Records after this cursor; by default from the first one. */
  cursor?: string | undefined;
  /** Whether a cursor from before the dataset was emptied is refused; by default it is accepted. */
  unlessEmptied?: boolean | undefined;
  /** The maximum number of records, at least 1. */
  limit: number;
  /** The portion ends with the record that brings the sealed payloads to this size. Pruned payloads do not count. */
  maxBytes: number;
  /** The last position of the portion; `hasMore` counts later records too. By default there is no limit. */
  until?: number | undefined;
  /** Records whose last action is one of these; by default all. */
  actions?: readonly RecordAction[] | undefined;
  /** Records changed at or after this time; ISO 8601 as PostgreSQL reads it. */
  modifiedAfter?: string | undefined;
  /** Records with one of these ids; by default all. */
  ids?: readonly string[] | undefined;
  /** Whether the records have `changes`. Then what is kept of former payloads counts towards `maxBytes` too. */
  withChanges?: boolean | undefined;
  /** The memory for the payloads. It overwrites the payloads of the portion that used it before. */
  scratch: ScratchBuffer;
};

/** Memory that many portions use one after another. Without it, each portion would leave garbage of that size. */
type ScratchBuffer = { bytes: Buffer };

export function createScratchBuffer(): ScratchBuffer {
  return { bytes: Buffer.alloc(0) };
}

export type Portion = {
  /** Undefined if nothing was ever saved. Then there are no records. */
  datasetId: number | undefined;
  /** The dataset's last position when the portion was read. */
  lastSeq: number;
  /** The dataset's last position when the reader began, for the cursors of these records. */
  since: number;
  records: StoredRecord[];
  /** Sealed bytes of their payloads. */
  bytes: number;
  hasMore: boolean;
};

/** The cursor of a portion's last record; undefined if it has none. */
export function cursorAfter({ datasetId, since, records }: Portion): string | undefined {
  const last = records.at(-1);
  if (datasetId === undefined || last === undefined) return undefined;
  return cursorWriter(datasetId, since)(last.seq);
}

/** The state of a dataset that decides whether a cursor is valid. */
export type CursorBounds = Pick<Dataset, 'id' | 'lastSeq' | 'tombstoneFloor' | 'emptiedSeq'>;

/** Returns the position after which a read begins. Throws what `listRecords` throws. */
export function startOf(
  { cursor, unlessEmptied }: Pick<ListRequest, 'cursor' | 'unlessEmptied'>,
  dataset: CursorBounds | undefined,
): Position {
  if (cursor !== undefined)
    return unlessEmptied ? readUnemptiedCursor(cursor, dataset) : readFollowedCursor(cursor, dataset);
  // When the reader began matters only after tombstones were removed. Until then, the cursor of a record is the same
  // text for every reader.
  const hasLostTombstones = dataset !== undefined && dataset.tombstoneFloor > 0;
  return { seq: 0, since: hasLostTombstones ? dataset.lastSeq : 0 };
}

export type RecordRow = Omit<StoredRecord, 'fields'>;

/** Whether a portion has every record of its range, so that its payloads can be read as a range too. */
export function isWholeRange(request: ListRequest): boolean {
  return request.actions === undefined && request.ids === undefined;
}

const columnsWith = (size: string) => `
  external_id as id,
  seq,
  ${size} as size,
  (first_seen_at at time zone 'UTC')::text as "firstSeenAt",
  (last_modified_at at time zone 'UTC')::text as "lastModifiedAt",
  case
    when deleted_at is not null then 'DELETED'
    when first_seen_at = last_modified_at then 'ADDED'
    else 'UPDATED'
  end as "lastAction",
  (deleted_at at time zone 'UTC')::text as "deletedAt",
  (pruned_at at time zone 'UTC')::text as "prunedAt"`;

export const recordColumns = columnsWith('size');

/** The columns for `withChanges`, of dataset $1: the size includes what is kept of the former payload. */
export const recordColumnsWithChanges = columnsWith(`
  size + coalesce(
    (select octet_length(previous)
     from payload
     where payload.dataset_id = $1 and payload.seq = record.seq),
    0
  )`);

/** Cuts rows to the limits of a portion. The rows become its records, without payloads yet. */
export function cutPortion(
  rows: readonly RecordRow[],
  by: Pick<ListRequest, 'limit' | 'maxBytes' | 'until'> & { pruned: ReadonlySet<number> },
): { records: StoredRecord[]; bytes: number } {
  const records: StoredRecord[] = [];
  let bytes = 0;
  for (const row of rows) {
    if (records.length === by.limit || bytes >= by.maxBytes || row.seq > (by.until ?? row.seq)) break;
    records.push(Object.assign(row, { fields: undefined }));
    if (!by.pruned.has(row.seq)) bytes += row.size;
  }
  return { records, bytes };
}

/** Returns the scratch buffer, grown for payloads of this many sealed bytes. Opened payloads are smaller. */
export function scratchFor(bytes: number, scratch: ScratchBuffer): Buffer {
  if (scratch.bytes.length < bytes) scratch.bytes = Buffer.allocUnsafeSlow(bytes);
  return scratch.bytes;
}

/**
 * Returns a function that takes rows of `select seq, body from payload`, in the order of seq, and sets the payloads of
 * the records; with the column `previous` also their changes.
 */
export function payloadOpener(by: {
  datasetId: number;
  records: readonly StoredRecord[];
  scratch: Buffer;
  dataKey: DataKey;
}): (fields: (Buffer | undefined)[]) => void {
  const { datasetId, records, scratch, dataKey } = by;
  let next = 0;
  let end = 0;
  return ([seqBytes, body, previous]) => {
    const seq = Number(seqBytes?.readBigInt64BE());
    while ((records[next]?.seq ?? seq) < seq) next += 1;
    const record = records[next];
    if (record?.seq !== seq || body === undefined) return;
    const start = end;
    const sealedFor = { dataKey, datasetId, recordId: record.id };
    end += openPayload(body, sealedFor).copy(scratch, start);
    record.fields = scratch.subarray(start, end);
    if (previous !== undefined)
      record.changes = describeChange(openPayload(previous, sealedFor), record.fields);
  };
}
