import type { FieldError } from '../errors.ts';
import type { JsonValue } from './canonical.ts';
import { type CheckedPart, maxRecords, RecordChecker, readParts } from './check.ts';
import type { CheckedRecords } from './checked.ts';
import { readJson } from './json.ts';
import { readItems } from './json-array.ts';

/**
 * The body of a save: in `body` as many nulls stand in place of the records, which are checked and packed, or have
 * faults. Where they are too many or no array they are left out, and `body` tells so.
 */
export type SaveBody = { body: unknown; records: CheckedRecords | { faults: FieldError[] } | undefined };

/** Reads and checks; throws SyntaxError for what is no JSON. It needs nothing of the process, so any thread may do it. */
export function readSaveBody(bytes: Buffer, metadataKey: string): SaveBody {
  // Nothing is as good as an object, as on every other route.
  if (bytes.length === 0) return { body: {}, records: undefined };
  const checker = new RecordChecker({ metadataKey, expectedBytes: bytes.length });
  let count = 0;
  const rest = readItems(bytes, {
    name: 'records',
    max: maxRecords,
    onItem(item, index) {
      checker.add(item as JsonValue, index);
      count += 1;
    },
  });
  if (rest === undefined) return readAtOnce(bytes, metadataKey);
  return { body: { ...rest, records: new Array(count).fill(null) }, records: checker.end() };
}

/** Where the records cannot be told apart from what is around them. */
function readAtOnce(bytes: Buffer, metadataKey: string): SaveBody {
  const body = readJson(bytes);
  const given =
    typeof body === 'object' && body !== null ? (body as { records?: unknown }).records : undefined;
  if (!Array.isArray(given) || Array.isArray(body)) return { body, records: undefined };
  const nulls = new Array(Math.min(given.length, maxRecords + 1)).fill(null);
  const replaced = { ...(body as object), records: nulls };
  if (given.length > maxRecords) return { body: replaced, records: undefined };
  const checker = new RecordChecker({ metadataKey, expectedBytes: bytes.length });
  for (const [index, record] of given.entries()) checker.add(record, index);
  return { body: replaced, records: checker.end() };
}

/** The body of an update, as `SaveBody` is of a save. */
export type PartsBody = { body: unknown; parts: CheckedPart[] | { faults: FieldError[] } | undefined };

/** Reads and checks; throws SyntaxError for what is not JSON. */
export function readPartsBody(bytes: Buffer, metadataKey: string): PartsBody {
  const body = readJson(bytes);
  const given =
    typeof body === 'object' && body !== null ? (body as { records?: unknown }).records : undefined;
  if (!Array.isArray(given) || given.length > maxRecords) return { body, parts: undefined };
  const replaced = { ...(body as object), records: new Array(given.length).fill(null) };
  return { body: replaced, parts: readParts(given, metadataKey) };
}
