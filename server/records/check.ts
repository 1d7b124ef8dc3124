import { AppError, type FieldError } from '../errors.ts';
import { canonicalJson, type JsonObject, type JsonValue } from './canonical.ts';

/** Records one call may carry. */
export const maxRecords = 10_000;
/** Bytes of JSON one record may have, its id and metadata left aside. */
export const maxRecordBytes = 8 * 1024 * 1024;
/** Faults named in one answer. */
const maxFaults = 20;

/** A record that can be stored. */
export type CheckedRecord = {
  id: string;
  /** The payload as JSON text, keys in the order they were sent, without `id` and the metadata key. */
  text: string;
  /** The same with sorted keys: what tells whether it changed. */
  canonical: string;
};

/**
 * The records of a call, each ready to store, in the order sent; of two with one id the last stands, and the id is
 * named once in `duplicates`.
 *
 * An id is a string of 1 to 255 characters without NUL and lone surrogates, or a safe integer, which stands for its
 * decimal string. Throws `invalid_record`, naming by index and path what does not fit, when any record does not.
 */
export function checkRecords(
  records: readonly JsonValue[],
  metadataKey: string,
): { records: CheckedRecord[]; duplicates: string[] } {
  if (records.length > maxRecords) refuse([fault(['records'], `At most ${maxRecords} records a call`)]);
  const faults: FieldError[] = [];
  const checked = new Map<string, CheckedRecord>();
  const duplicates = new Set<string>();
  for (const [index, record] of records.entries()) {
    const result = checkRecord(record, metadataKey);
    if ('fault' in result) {
      faults.push(fault(['records', String(index), ...result.fault.path], result.fault.message));
      if (faults.length === maxFaults) break;
      continue;
    }
    if (checked.delete(result.id)) duplicates.add(result.id);
    checked.set(result.id, result);
  }
  if (faults.length > 0) refuse(faults);
  return { records: [...checked.values()], duplicates: [...duplicates] };
}

/** The text an id stands for, or why it is none. */
export function readRecordId(id: unknown): { id: string } | { fault: string } {
  if (typeof id === 'number') {
    return Number.isSafeInteger(id) ? { id: String(id) } : { fault: 'A numeric id must be a safe integer' };
  }
  if (typeof id !== 'string') return { fault: 'An id is a string or an integer' };
  if (id === '') return { fault: 'An id has at least 1 character' };
  // Characters are code points: only where there are more code units than allowed need they be counted.
  if (id.length > 255 && (id.length > 510 || [...id].length > 255))
    return { fault: 'An id has at most 255 characters' };
  if (id.includes('\0')) return { fault: 'An id has no NUL character' };
  return id.isWellFormed() ? { id } : { fault: 'An id has no lone surrogate' };
}

function checkRecord(
  record: JsonValue | undefined,
  metadataKey: string,
): CheckedRecord | { fault: { path: string[]; message: string } } {
  if (typeof record !== 'object' || record === null || Array.isArray(record))
    return { fault: { path: [], message: 'A record is an object' } };
  const read = readRecordId(record.id);
  if ('fault' in read) return { fault: { path: ['id'], message: read.fault } };
  const { id: _id, [metadataKey]: _metadata, ...fields } = record;
  const canonical = canonicalJson(fields);
  if ('fault' in canonical) return canonical;
  const text = JSON.stringify(fields satisfies JsonObject);
  if (text.length > maxRecordBytes / 3 && Buffer.byteLength(text) > maxRecordBytes)
    return { fault: { path: [], message: 'A record has at most 8 MB' } };
  return { id: read.id, text, canonical: canonical.text };
}

function fault(path: string[], message: string): FieldError {
  return { code: 'custom', message, path };
}

function refuse(errors: FieldError[]): never {
  throw new AppError('invalid_record', undefined, { errors });
}
