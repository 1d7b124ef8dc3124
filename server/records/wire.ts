import { z } from 'zod';
import type { Brand } from '../brand.ts';
import { cursorWriter } from './cursor.ts';
import type { Portion, StoredRecord } from './list.ts';
import { cursorAfter } from './page.ts';
import type { SaveResult } from './save.ts';

const metadataWire = z.object({
  first_seen_at: z.string(),
  last_modified_at: z.string(),
  last_action: z.enum(['ADDED', 'UPDATED', 'DELETED']),
  deleted_at: z.string().nullable(),
  pruned_at: z.string().nullable(),
  cursor: z.string(),
  /** Only where asked for. */
  changes: z
    .object({ fields: z.array(z.string()), previous: z.looseObject({}).nullable() })
    .nullable()
    .optional(),
});

/** The shape of a page: each record is its payload with `id` and the metadata; a pruned one is these two alone. */
export const pageWire = (brand: Brand) =>
  z.object({
    records: z.array(z.looseObject({ id: z.string(), [brand.metadataKey]: metadataWire })),
    next_cursor: z.string().nullable(),
  });

const ids = z.array(z.string());

/** `restored` are counted among `unchanged` too. */
export const saveWire = z.object({
  counts: z.object({
    added: z.number(),
    updated: z.number(),
    unchanged: z.number(),
    restored: z.number(),
  }),
  keys: z.object({ added: ids, updated: ids, restored: ids }),
  duplicates: ids,
  /** Names of fields by id; only where asked for. Not a `z.record`, which drops the id `__proto__`. */
  changed_fields: z
    .unknown()
    .meta({ type: 'object', additionalProperties: { type: 'array', items: { type: 'string' } } })
    .optional(),
});

/** The answer to a save. */
/** How many records came to what. */
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
 * The answer to a list call as JSON bytes, `{"records": [...], "next_cursor"}`, portion by portion: while one is on its
 * way to a slow reader the next is not written.
 *
 * Written from pieces: a payload is stored as JSON text, and `id` and metadata are spliced in, so that nothing is
 * parsed and written again. Payloads come out as they went in, to the order of their keys.
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
    // Held here while the bytes go out, they would not be collected with what is young.
    portion.records.length = 0;
    yield bytes;
    before = ',';
  }
  const start = before === ',' ? '' : before;
  yield Buffer.from(`${start}],"next_cursor":${hasMore && cursor !== undefined ? `"${cursor}"` : null}}`);
}

/** Records as NDJSON bytes: one record a line, each as in a page. */
export function linesToWire(portion: Portion, brand: Brand): Buffer {
  return writeRecords(portion, { brand, before: '', between: '\n', after: '\n' });
}

/** Records in one buffer, with what stands before the first, between two and after the last. */
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

/** Writes one record of a dataset at a place in `bytes`; answers how many bytes it took. */
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
    // What stands between the braces of the payload.
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

/** Bytes that hold the records for certain: an id takes at most 6 bytes a code unit (`\u0000`). */
function capacityOf(records: readonly StoredRecord[], brand: Brand): number {
  let capacity = 200;
  for (const { id, fields, changes } of records) {
    capacity += 422 + brand.metadataKey.length + id.length * 6 + (fields?.length ?? 0);
    if (changes !== undefined) capacity += 11 + changes.length * 3;
  }
  return capacity;
}

/**
 * Spells times as JSON to the microsecond: `"2026-11-21T00:51:26.942747+00:00"`, or null. Records saved in one call
 * share their time, so the last two are kept.
 */
function timeWriter(): (utc: string | null) => string {
  let [known, spelled, olderKnown, olderSpelled] = ['', '', '', ''];
  return (utc) => {
    if (utc === null) return 'null';
    if (utc === known) return spelled;
    if (utc === olderKnown) return olderSpelled;
    [olderKnown, olderSpelled] = [known, spelled];
    known = utc;
    spelled = `"${spellTime(utc)}"`;
    return spelled;
  };
}

/** A time as PostgreSQL writes it in UTC, in ISO 8601 to the microsecond: `2026-11-21T00:51:26.942747+00:00`. */
export function spellTime(utc: string): string {
  return `${utc.slice(0, 10)}T${utc.slice(11, 19)}.${utc.slice(20).padEnd(6, '0')}+00:00`;
}
