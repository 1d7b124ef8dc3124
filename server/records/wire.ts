import { z } from 'zod';
import type { Brand } from '../brand.ts';
import { cursorWriter } from './cursor.ts';
import type { RecordPage } from './list.ts';
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
});

/** The answer to a save. */
export function saveToWire(result: SaveResult): z.input<typeof saveWire> {
  const { added, updated, restored, unchangedCount, duplicates } = result;
  return {
    counts: {
      added: added.length,
      updated: updated.length,
      unchanged: unchangedCount,
      restored: restored.length,
    },
    keys: { added, updated, restored },
    duplicates,
  };
}

/**
 * The answer to a list call as JSON bytes: `{"records": [...], "next_cursor"}`.
 *
 * Written from pieces: a payload is stored as JSON text, and `id` and metadata are spliced in, so that nothing is
 * parsed and written again. Payloads come out as they went in, to the order of their keys.
 */
export function pageToWire(page: RecordPage, brand: Brand): Buffer {
  if (page.datasetId === undefined) return Buffer.from('{"records":[],"next_cursor":null}');
  const cursorOf = cursorWriter(page.datasetId);
  const key = JSON.stringify(brand.metadataKey);
  const time = timeWriter();
  const bytes = Buffer.allocUnsafe(capacityOf(page, key));
  let at = bytes.write('{"records":[');
  for (const [index, record] of page.records.entries()) {
    at += bytes.write(`${index === 0 ? '' : ','}{"id":${JSON.stringify(record.id)},`, at);
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
  }
  const last = page.records.at(-1);
  const next = page.hasMore && last !== undefined ? `"${cursorOf(last.seq)}"` : 'null';
  at += bytes.write(`],"next_cursor":${next}}`, at);
  return bytes.subarray(0, at);
}

/** Bytes that hold the page for certain: an id takes at most 6 bytes a code unit (`\u0000`). */
function capacityOf(page: RecordPage, key: string): number {
  let capacity = 200;
  for (const { id, fields } of page.records) {
    capacity += 400 + key.length + id.length * 6 + (fields?.length ?? 0);
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
    spelled = `"${utc.slice(0, 10)}T${utc.slice(11, 19)}.${utc.slice(20).padEnd(6, '0')}+00:00"`;
    return spelled;
  };
}
