import { z } from 'zod';
import type { Brand } from '../brand.ts';
import { cursorWriter } from './cursor.ts';
import type { RecordPage, StoredRecord } from './list.ts';
import type { SaveResult } from './save.ts';

const metadataWire = z.object({
  first_seen_at: z.string(),
  last_modified_at: z.string(),
  last_action: z.enum(['ADDED', 'UPDATED', 'DELETED']),
  deleted_at: z.string().nullable(),
  pruned_at: z.string().nullable(),
  cursor: z.string(),
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
export function saveToWire(result: SaveResult): z.input<typeof saveWire> {
  const { added, updated, restored, unchangedCount, duplicates, changedFields } = result;
  return {
    counts: {
      added: added.length,
      updated: updated.length,
      unchanged: unchangedCount,
      restored: restored.length,
    },
    keys: { added, updated, restored },
    duplicates,
    ...(changedFields && { changed_fields: Object.fromEntries(changedFields) }),
  };
}

/** Bytes of payloads that are written at a time. */
const chunkBytes = 256 * 1024;

/**
 * The answer to a list call as JSON bytes, `{"records": [...], "next_cursor"}`, in chunks: while one is on its way to a
 * slow reader the next is not written.
 *
 * Written from pieces: a payload is stored as JSON text, and `id` and metadata are spliced in, so that nothing is
 * parsed and written again. Payloads come out as they went in, to the order of their keys.
 */
export function* pageToWire(page: RecordPage, brand: Brand): Generator<Buffer, void, undefined> {
  yield Buffer.from('{"records":[');
  const last = page.records.at(-1);
  let next = 'null';
  if (page.datasetId !== undefined && last !== undefined) {
    const write = recordWriter(page.datasetId, { brand, since: page.since });
    let separator = '';
    for (const records of groupsOf(page.records)) {
      const bytes = Buffer.allocUnsafe(capacityOf(records, brand));
      let at = 0;
      for (const record of records) {
        at += bytes.write(separator, at);
        at += write(record, bytes, at);
        separator = ',';
      }
      yield bytes.subarray(0, at);
    }
    if (page.hasMore) next = `"${cursorWriter(page.datasetId, page.since)(last.seq)}"`;
  }
  yield Buffer.from(`],"next_cursor":${next}}`);
}

/** Neighbours whose payloads make up a chunk. */
function* groupsOf(records: readonly StoredRecord[]): Generator<StoredRecord[], void, undefined> {
  let group: StoredRecord[] = [];
  let bytes = 0;
  for (const record of records) {
    group.push(record);
    bytes += record.fields?.length ?? 100;
    if (bytes < chunkBytes) continue;
    yield group;
    group = [];
    bytes = 0;
  }
  if (group.length > 0) yield group;
}

/** The records of a page as NDJSON bytes: one record a line, each as in a page. */
export function linesToWire(page: RecordPage, brand: Brand): Buffer {
  if (page.datasetId === undefined) return Buffer.alloc(0);
  const write = recordWriter(page.datasetId, { brand, since: page.since });
  const bytes = Buffer.allocUnsafe(capacityOf(page.records, brand));
  let at = 0;
  for (const record of page.records) {
    at += write(record, bytes, at);
    at += bytes.write('\n', at);
  }
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
    const { firstSeenAt, lastModifiedAt, lastAction, deletedAt, prunedAt } = record;
    at += bytes.write(
      `${key}:{"first_seen_at":${time(firstSeenAt)},"last_modified_at":${time(lastModifiedAt)},` +
        `"last_action":"${lastAction}","deleted_at":${time(deletedAt)},"pruned_at":${time(prunedAt)},` +
        `"cursor":"${cursorOf(record.seq)}"}}`,
      at,
    );
    return at - start;
  };
}

/** Bytes that hold the page for certain: an id takes at most 6 bytes a code unit (`\u0000`). */
function capacityOf(records: readonly StoredRecord[], brand: Brand): number {
  let capacity = 200;
  for (const { id, fields } of records) {
    capacity += 422 + brand.metadataKey.length + id.length * 6 + (fields?.length ?? 0);
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
