/**
 * Records as JSON: the schemas of the responses, and the functions that write pages, lines and results of saves.
 *
 * Does not own: how records are read (`records/read/`), the routes (`routes.ts`, `write-routes.ts` beside this file).
 */
import { Readable } from 'node:stream';
import { z } from 'zod';
import type { Brand } from '../../brand.ts';
import { nameSchemas } from '../../http/openapi/schema-names.ts';
import { cursorWriter } from '../cursor.ts';
import { cursorAfter, type Portion, type StoredRecord } from '../read/portion.ts';
import type { SaveResult } from '../write/save.ts';

const metadataWire = z.object({
  first_seen_at: z.string(),
  last_modified_at: z.string(),
  last_action: z.enum(['ADDED', 'UPDATED', 'DELETED']),
  deleted_at: z.string().nullable(),
  pruned_at: z.string().nullable(),
  cursor: z.string(),
  /** Only with `changes=true`. */
  changes: z
    .object({ fields: z.array(z.string()), previous: z.looseObject({}).nullable() })
    .nullable()
    .optional(),
});
nameSchemas({ RecordMetadata: metadataWire });

/** Each record of a page is its payload with `id` and the metadata. A pruned record has only these two. */
export const pageWire = (brand: Brand) =>
  z.object({
    records: z.array(
      z.looseObject({ id: z.string(), [brand.metadataKey]: metadataWire }).meta({ title: 'Record' }),
    ),
    next_cursor: z.string().nullable(),
  });

const ids = z.array(z.string());

/** The `restored` records count as `unchanged` too. */
export const saveWire = z.object({
  counts: z.object({
    added: z.number(),
    updated: z.number(),
    unchanged: z.number(),
    restored: z.number(),
  }),
  keys: z.object({ added: ids, updated: ids, restored: ids }),
  duplicates: ids,
  /** Names of fields by id, only if requested. Not a `z.record`, which drops the id `__proto__`. */
  changed_fields: z
    .unknown()
    .meta({ type: 'object', additionalProperties: { type: 'array', items: { type: 'string' } } })
    .optional(),
});

export function savedCounts({ added, updated, restored, unchangedCount }: SaveResult) {
  return {
    added: added.length,
    updated: updated.length,
    unchanged: unchangedCount,
    restored: restored.length,
  };
}

export function saveToWire(result: SaveResult): z.input<typeof saveWire> {
  const { added, updated, restored, duplicates, changedFields } = result;
  return {
    counts: savedCounts(result),
    keys: { added, updated, restored },
    duplicates,
    ...(changedFields && { changed_fields: Object.fromEntries(changedFields) }),
  };
}

/**
 * Writes a page as JSON bytes, `{"records": [...], "next_cursor"}`, portion by portion: while one is sent to a slow
 * reader, the next one is not written.
 *
 * A payload is stored as JSON text, and `id` and metadata are inserted into it, so that nothing is parsed and written
 * again. Payloads are returned as they were sent, with their keys in the same order.
 */
export async function* pageToWire(
  portions: AsyncIterable<Portion>,
  brand: Brand,
): AsyncGenerator<Buffer, void, undefined> {
  let before = '{"records":[';
  let cursor: string | undefined;
  let hasMore = false;
  for await (const portion of portions) {
    hasMore = portion.hasMore;
    cursor = cursorAfter(portion) ?? cursor;
    if (portion.records.length === 0) continue;
    const bytes = writeRecords(portion, { brand, before, between: ',', after: '' });
    // If the records were referenced here while the bytes are sent, they would not be collected as young garbage.
    portion.records.length = 0;
    yield bytes;
    before = ',';
  }
  const start = before === ',' ? '' : before;
  yield Buffer.from(`${start}],"next_cursor":${hasMore && cursor !== undefined ? `"${cursor}"` : null}}`);
}

/** Writes records as NDJSON bytes: one record a line, in the form of a page. */
export function linesToWire(portion: Portion, brand: Brand): Buffer {
  return writeRecords(portion, { brand, before: '', between: '\n', after: '\n' });
}

/** Writes records to one buffer, with separators before the first, between two, and after the last record. */
function writeRecords(
  { datasetId, since, records }: Portion,
  by: { brand: Brand; before: string; between: string; after: string },
): Buffer {
  if (datasetId === undefined || records.length === 0) return Buffer.alloc(0);
  const write = recordWriter(datasetId, { brand: by.brand, since });
  const bytes = Buffer.allocUnsafe(capacityOf(records, by.brand));
  let at = 0;
  let separator = by.before;
  for (const record of records) {
    at += bytes.write(separator, at);
    at += write(record, bytes, at);
    separator = by.between;
  }
  at += bytes.write(by.after, at);
  return bytes.subarray(0, at);
}

/** Returns a function that writes one record at an offset of `bytes`, and returns how many bytes it wrote. */
function recordWriter(
  datasetId: number,
  { brand, since }: { brand: Brand; since: number },
): (record: StoredRecord, bytes: Buffer, at: number) => number {
  const cursorOf = cursorWriter(datasetId, since);
  const key = JSON.stringify(brand.metadataKey);
  const time = timeWriter();
  return (record, bytes, start) => {
    let at = start;
    at += bytes.write(`{"id":${JSON.stringify(record.id)},`, at);
    // The payload without its braces.
    if (record.fields !== undefined && record.fields.length > 2) {
      at += record.fields.copy(bytes, at, 1, record.fields.length - 1);
      at += bytes.write(',', at);
    }
    const { firstSeenAt, lastModifiedAt, lastAction, deletedAt, prunedAt, changes } = record;
    at += bytes.write(
      `${key}:{"first_seen_at":${time(firstSeenAt)},"last_modified_at":${time(lastModifiedAt)},` +
        `"last_action":"${lastAction}","deleted_at":${time(deletedAt)},"pruned_at":${time(prunedAt)},` +
        `"cursor":"${cursorOf(record.seq)}"${changes === undefined ? '' : `,"changes":${changes}`}}}`,
      at,
    );
    return at - start;
  };
}

/** Returns enough bytes for the records: an id takes at most 6 bytes a code unit (`\u0000`). */
function capacityOf(records: readonly StoredRecord[], brand: Brand): number {
  let capacity = 200;
  for (const { id, fields, changes } of records) {
    capacity += 422 + brand.metadataKey.length + id.length * 6 + (fields?.length ?? 0);
    if (changes !== undefined) capacity += 11 + changes.length * 3;
  }
  return capacity;
}

/**
 * Returns a function that writes times as JSON to the microsecond: `"2026-11-21T00:51:26.942747+00:00"`, or null.
 * Records saved in one call share their time, so the last two times are cached.
 */
function timeWriter(): (utc: string | null) => string {
  let [last, written, previous, previousWritten] = ['', '', '', ''];
  return (utc) => {
    if (utc === null) return 'null';
    if (utc === last) return written;
    if (utc === previous) return previousWritten;
    [previous, previousWritten] = [last, written];
    last = utc;
    written = `"${isoTime(utc)}"`;
    return written;
  };
}

/** Converts a time in UTC from PostgreSQL's form to ISO 8601 to the microsecond: `2026-11-21T00:51:26.942747+00:00`. */
export function isoTime(utc: string): string {
  return `${utc.slice(0, 10)}T${utc.slice(11, 19)}.${utc.slice(20).padEnd(6, '0')}+00:00`;
}

/**
 * Streams chunks as the body of a response. It resolves with the first chunk available and throws what that throws, so
 * that an error of the request is reported before the response starts. A later error breaks the response off.
 *
 * The next chunk is requested when the one before was written: no other chunk waits for the socket.
 */
export async function streamOf(chunks: AsyncGenerator<Buffer, void, undefined>): Promise<Readable> {
  const opening = await chunks.next();
  return Readable.from(withFirst(opening, chunks), { objectMode: true, highWaterMark: 0 });
}

async function* withFirst(
  opening: IteratorResult<Buffer, void>,
  rest: AsyncGenerator<Buffer, void, undefined>,
): AsyncGenerator<Buffer, void, undefined> {
  if (!opening.done) yield opening.value;
  yield* rest;
}
