import { AppError, type FieldError } from '../errors.ts';
import { canonicalJson, type JsonObject, type JsonValue } from './canonical.ts';
import { type CheckedRecord, type CheckedRecords, RecordPacker } from './checked.ts';

/** Records one call may carry. */
export const maxRecords = 10_000;
/** Bytes of JSON one record may have, its id and metadata left aside. */
const maxRecordBytes = 8 * 1024 * 1024;
/** Faults named in one answer. */
const maxFaults = 20;

/**
 * Takes the records of a call one by one and makes each ready to store, in the order sent; of two with one id the last
 * stands. At its end there are faults, by index and path, where any cannot be stored.
 *
 * An id is a string of 1 to 255 characters without NUL and lone surrogates, or a safe integer, which stands for its
 * decimal string.
 */
export class RecordChecker {
  readonly #packer: RecordPacker;
  readonly #metadataKey: string;
  readonly #faults: FieldError[] = [];

  /** `expectedBytes` is about what the records have as JSON. */
  constructor(by: { metadataKey: string; expectedBytes: number }) {
    // Both forms of each record, with a reserve: a text certainly fits if it has three bytes for each character.
    this.#packer = new RecordPacker(by.expectedBytes * 3);
    this.#metadataKey = by.metadataKey;
  }

  /** `index` is its place in the call. */
  add(given: JsonValue, index: number): void {
    if (this.#faults.length === maxFaults) return;
    const record = checkRecord(given, this.#metadataKey);
    if ('fault' in record) this.#faults.push(faultAt(index, record));
    else this.#packer.add(record);
  }

  end(): CheckedRecords | { faults: FieldError[] } {
    return this.#faults.length > 0 ? { faults: this.#faults } : this.#packer.pack();
  }
}

/** Throws `invalid_record` in place of faults. */
export function requireRecords(checked: CheckedRecords | { faults: FieldError[] }): CheckedRecords {
  return 'faults' in checked ? refuse(checked.faults) : checked;
}

/** Fields to lay over a stored record, as JSON text; `index` is its place in the call. */
export type CheckedPart = { id: string; index: number; text: string };

/**
 * Parts of records, as `RecordChecker` checks records: all of them, in the order sent, also where several are of one
 * id. Throws `invalid_record` where any does not fit.
 */
export function checkParts(records: readonly JsonValue[], metadataKey: string): CheckedPart[] {
  if (records.length > maxRecords) refuse([fault(['records'], `At most ${maxRecords} records a call`)]);
  return requireParts(readParts(records, metadataKey));
}

/** Throws `invalid_record` in place of faults. */
export function requireParts(read: CheckedPart[] | { faults: FieldError[] }): CheckedPart[] {
  return 'faults' in read ? refuse(read.faults) : read;
}

/** As `checkParts`, on any thread: faults are answered. */
export function readParts(
  records: readonly JsonValue[],
  metadataKey: string,
): CheckedPart[] | { faults: FieldError[] } {
  const faults: FieldError[] = [];
  const parts: CheckedPart[] = [];
  for (const [index, record] of records.entries()) {
    const read = readFields(record, metadataKey);
    const canonical = 'fault' in read ? read : canonicalJson(read.fields);
    if ('fault' in canonical) faults.push(faultAt(index, canonical));
    else if ('id' in read) parts.push({ id: read.id, index, text: JSON.stringify(read.fields) });
    if (faults.length === maxFaults) break;
  }
  return faults.length > 0 ? { faults } : parts;
}

/** Refuses a call that lays so much over the record at `index` that it outgrows what one may have. */
export function refuseLarge(text: string, index: number): void {
  if (isTooLarge(text)) refuse([fault(['records', String(index)], tooLarge)]);
}

type Fault = { fault: { path: string[]; message: string } };

function faultAt(index: number, { fault: { path, message } }: Fault): FieldError {
  return fault(['records', String(index), ...path], message);
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

function checkRecord(record: JsonValue, metadataKey: string): CheckedRecord | Fault {
  const read = readFields(record, metadataKey);
  if ('fault' in read) return read;
  const { id, fields } = read;
  const canonical = canonicalJson(fields);
  if ('fault' in canonical) return canonical;
  const text = JSON.stringify(fields);
  if (isTooLarge(text)) return { fault: { path: [], message: tooLarge } };
  return { id, text, canonical: canonical.text };
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
