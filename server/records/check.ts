import { AppError, type FieldError } from '../errors.ts';
import { canonicalJson, type JsonObject, type JsonValue } from './canonical.ts';
import { type CheckedRecord, CheckedRecords } from './checked.ts';
import type { IgnoredFields } from './ignore.ts';

/** Records one call may carry. */
export const maxRecords = 10_000;
/** Bytes of JSON one record may have, its id and metadata left aside. */
export const maxRecordBytes = 8 * 1024 * 1024;
/** Faults named in one answer. */
const maxFaults = 20;

/**
 * The records of a call, each ready to store, in the order sent; of two with one id the last stands.
 *
 * An id is a string of 1 to 255 characters without NUL and lone surrogates, or a safe integer, which stands for its
 * decimal string. Throws `invalid_record`, naming by index and path what does not fit, when any record does not.
 */
export function checkRecords(
  records: readonly JsonValue[],
  by: { metadataKey: string; ignored: IgnoredFields },
): CheckedRecords {
  const checked = new CheckedRecords(records.length);
  checkEach(records, (given) => {
    const record = checkRecord(given, by);
    if ('fault' in record) return record;
    // Of the strings nothing is kept.
    checked.add(record);
    return checked;
  });
  return checked;
}

/** Fields to lay over a stored record; `index` is its place in the call. */
export type CheckedPart = { id: string; index: number; fields: JsonObject };

/** As `checkRecords`, for parts of records: all of them, in the order sent, also where several are of one id. */
export function checkParts(records: readonly JsonValue[], metadataKey: string): CheckedPart[] {
  return checkEach(records, (record, index) => {
    const read = readFields(record, metadataKey);
    if ('fault' in read) return read;
    const canonical = canonicalJson(read.fields);
    return 'fault' in canonical ? canonical : { ...read, index };
  });
}

/** Refuses a call that lays so much over the record at `index` that it outgrows what one may have. */
export function refuseLarge(text: string, index: number): void {
  if (isTooLarge(text)) refuse([fault(['records', String(index)], tooLarge)]);
}

type Fault = { fault: { path: string[]; message: string } };

function checkEach<T extends object>(
  records: readonly JsonValue[],
  check: (record: JsonValue | undefined, index: number) => T | Fault,
): T[] {
  if (records.length > maxRecords) refuse([fault(['records'], `At most ${maxRecords} records a call`)]);
  const faults: FieldError[] = [];
  const checked: T[] = [];
  for (const [index, record] of records.entries()) {
    const result = check(record, index);
    if (!('fault' in result)) {
      checked.push(result);
      continue;
    }
    faults.push(fault(['records', String(index), ...result.fault.path], result.fault.message));
    if (faults.length === maxFaults) break;
  }
  if (faults.length > 0) refuse(faults);
  return checked;
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
  by: { metadataKey: string; ignored: IgnoredFields },
): CheckedRecord | Fault {
  const read = readFields(record, by.metadataKey);
  if ('fault' in read) return read;
  const { id, fields } = read;
  const canonical = canonicalJson(fields);
  if ('fault' in canonical) return canonical;
  const text = JSON.stringify(fields);
  if (isTooLarge(text)) return { fault: { path: [], message: tooLarge } };
  return { id, text, canonical: by.ignored.isIn(fields) ? by.ignored.canonical(fields) : canonical.text };
}

function readFields(
  record: JsonValue | undefined,
  metadataKey: string,
): { id: string; fields: JsonObject } | Fault {
  if (typeof record !== 'object' || record === null || Array.isArray(record))
    return { fault: { path: [], message: 'A record is an object' } };
  const read = readRecordId(record.id);
  if ('fault' in read) return { fault: { path: ['id'], message: read.fault } };
  const { id: _id, [metadataKey]: _metadata, ...fields } = record;
  return { id: read.id, fields };
}

const tooLarge = 'A record has at most 8 MB';

function isTooLarge(text: string): boolean {
  return text.length > maxRecordBytes / 3 && Buffer.byteLength(text) > maxRecordBytes;
}

function fault(path: string[], message: string): FieldError {
  return { code: 'custom', message, path };
}

function refuse(errors: FieldError[]): never {
  throw new AppError('invalid_record', undefined, { errors });
}
