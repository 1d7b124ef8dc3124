/**
 * The records of a call: read from the body, checked, and packed for the hashing and sealing.
 *
 * Nothing here uses the state of the process, so it may run on any thread.
 */
import { AppError, type FieldError } from '../../errors.ts';
import { reserve } from '../../large-buffer.ts';
import { canonicalJson, type JsonObject, type JsonValue } from './canonical.ts';
import { readItems, readJson } from './json.ts';

/** The maximum number of records in a call. */
export const maxRecords = 10_000;
/** The maximum size of a record as JSON, without its id and metadata. */
const maxRecordBytes = 8 * 1024 * 1024;
/** The maximum number of field errors in a response. */
const maxFieldErrors = 20;

/** The field errors of a call that is refused. */
type Refused = { faults: FieldError[] };

/**
 * Checks and packs the records of a call one by one, in the order sent. If an id is sent twice, the last record counts.
 * If any record cannot be stored, `end` returns the field errors, by index and path.
 *
 * An id is a string of 1 to 255 characters without NUL and lone surrogates, or a safe integer, which stands for its
 * decimal string.
 */
class RecordChecker {
  readonly #packer: RecordPacker;
  readonly #metadataKey: string;
  readonly #faults: FieldError[] = [];

  /** `expectedBytes` is the approximate size of the records as JSON. */
  constructor(by: { metadataKey: string; expectedBytes: number }) {
    // Both forms of each record, with a reserve: a text certainly fits if it has three bytes for each character.
    this.#packer = new RecordPacker(by.expectedBytes * 3);
    this.#metadataKey = by.metadataKey;
  }

  /** `index` is the position of the record in the call. */
  add(record: JsonValue, index: number): void {
    if (this.#faults.length === maxFieldErrors) return;
    const checked = checkRecord(record, this.#metadataKey);
    if ('fault' in checked) this.#faults.push(fieldErrorAt(index, checked));
    else this.#packer.add(checked);
  }

  end(): CheckedRecords | Refused {
    return this.#faults.length > 0 ? { faults: this.#faults } : this.#packer.pack();
  }
}

/** Checks and packs records by the rules of `RecordChecker`. Throws `invalid_record` if any of them is not valid. */
export function checkRecords(
  records: readonly JsonValue[],
  by: { metadataKey: string; expectedBytes: number },
): CheckedRecords {
  const checker = new RecordChecker(by);
  for (const [index, record] of records.entries()) checker.add(record, index);
  return requireValid(checker.end());
}

/** Throws `invalid_record` if the records or parts were refused. */
export function requireValid<T extends object>(checked: T | Refused): T {
  return 'faults' in checked ? refuse(checked.faults) : checked;
}

/** Fields to merge into a stored record, as JSON text. `index` is the position of the part in the call. */
export type CheckedPart = { id: string; index: number; text: string };

/**
 * Checks parts of records by the rules of `RecordChecker`. Returns all of them in the order sent, also if several have
 * one id. Throws `invalid_record` if any part is not valid.
 */
export function checkParts(records: readonly JsonValue[], metadataKey: string): CheckedPart[] {
  if (records.length > maxRecords) refuse([fieldError(['records'], `At most ${maxRecords} records a call`)]);
  return requireValid(readParts(records, metadataKey));
}

function readParts(records: readonly JsonValue[], metadataKey: string): CheckedPart[] | Refused {
  const faults: FieldError[] = [];
  const parts: CheckedPart[] = [];
  for (const [index, record] of records.entries()) {
    const read = readFields(record, metadataKey);
    const canonical = 'fault' in read ? read : canonicalJson(read.fields);
    if ('fault' in canonical) faults.push(fieldErrorAt(index, canonical));
    else if ('id' in read) parts.push({ id: read.id, index, text: JSON.stringify(read.fields) });
    if (faults.length === maxFieldErrors) break;
  }
  return faults.length > 0 ? { faults } : parts;
}

/** Throws `invalid_record` if the part at `index` makes its record larger than a record may be. */
export function refuseLarge(text: string, index: number): void {
  if (isTooLarge(text)) refuse([fieldError(['records', String(index)], tooLarge)]);
}

/**
 * The body of a save. `body` has a null in place of each record. If there are too many records, or they are not an
 * array, `records` is undefined and `body` shows why.
 */
export type SaveBody = { body: unknown; records: CheckedRecords | Refused | undefined };

/** Reads and checks the body of a save. Throws SyntaxError for bytes that are not JSON. */
export function readSaveBody(bytes: Buffer, metadataKey: string): SaveBody {
  // On every route, an empty body counts as an empty object.
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
  if (rest !== undefined) return { body: withNulls(rest, count), records: checker.end() };
  const body = readJson(bytes);
  const records = recordsOf(body);
  if (records === undefined) return { body, records: undefined };
  const nulls = withNulls(body, Math.min(records.length, maxRecords + 1));
  if (records.length > maxRecords) return { body: nulls, records: undefined };
  for (const [index, record] of records.entries()) checker.add(record, index);
  return { body: nulls, records: checker.end() };
}

/** The body of an update, in the form of `SaveBody`. */
export type PartsBody = { body: unknown; parts: CheckedPart[] | Refused | undefined };

/** Reads and checks the body of an update. Throws SyntaxError for bytes that are not JSON. */
export function readPartsBody(bytes: Buffer, metadataKey: string): PartsBody {
  const body = readJson(bytes);
  const records = recordsOf(body);
  if (records === undefined || records.length > maxRecords) return { body, parts: undefined };
  return { body: withNulls(body, records.length), parts: readParts(records, metadataKey) };
}

function recordsOf(body: unknown): JsonValue[] | undefined {
  const records = typeof body === 'object' && body !== null && (body as { records?: unknown }).records;
  return Array.isArray(records) ? records : undefined;
}

function withNulls(body: unknown, count: number): object {
  return { ...(body as object), records: new Array(count).fill(null) };
}

/** Returns the string that the id stands for, or the reason why the id is not valid. */
export function readRecordId(id: unknown): { id: string } | { fault: string } {
  if (typeof id === 'number') {
    return Number.isSafeInteger(id) ? { id: String(id) } : { fault: 'A numeric id must be a safe integer' };
  }
  if (typeof id !== 'string') return { fault: 'An id is a string or an integer' };
  if (id === '') return { fault: 'An id has at least 1 character' };
  // Characters are code points. They are counted only if there are more code units than allowed characters.
  if (id.length > 255 && (id.length > 510 || [...id].length > 255))
    return { fault: 'An id has at most 255 characters' };
  if (id.includes('\0')) return { fault: 'An id has no NUL character' };
  return id.isWellFormed() ? { id } : { fault: 'An id has no lone surrogate' };
}

type RecordFault = { fault: { path: string[]; message: string } };

function checkRecord(record: JsonValue, metadataKey: string): CheckedRecord | RecordFault {
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
): { id: string; fields: JsonObject } | RecordFault {
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

function fieldErrorAt(index: number, { fault: { path, message } }: RecordFault): FieldError {
  return fieldError(['records', String(index), ...path], message);
}

function fieldError(path: string[], message: string): FieldError {
  return { code: 'custom', message, path };
}

function refuse(errors: FieldError[]): never {
  throw new AppError('invalid_record', undefined, { errors });
}

/** The size of a batch: sealing it takes about 4 ms. A larger record has a batch of its own. */
const batchBytes = 1024 * 1024;

/**
 * Some records of a call, in its order, as UTF-8: the payload of each, followed by its canonical form. `offsets` has
 * three numbers for each record: the start and the end of the payload, and the end of the canonical form.
 */
export type RecordBatch = {
  bytes: Uint8Array<ArrayBuffer>;
  ids: string[];
  offsets: Uint32Array<ArrayBuffer>;
};

/** The records of a call, ready to seal. */
export type CheckedRecords = {
  batches: RecordBatch[];
  /** The ids that were sent more than once. Only the last record of such an id is in a batch. */
  duplicates: string[];
};

export type CheckedRecord = {
  id: string;
  /** The payload as JSON text, keys in the order they were sent, without `id` and the metadata key. */
  text: string;
  /** The payload with sorted keys and without ignored fields, which shows whether the record changed. */
  canonical: string;
};

/**
 * Packs records into batches, which can be transferred to another thread. If an id is added twice, the last record
 * counts.
 *
 * The garbage collector would copy the strings of a thousand records again and again while the call runs; it does not
 * copy the bytes of a batch.
 */
export class RecordPacker {
  readonly #expectedBytes: number;
  readonly #bytes: Buffer<ArrayBuffer>[] = [];
  readonly #packed = new Map<string, { batch: number; start: number; textEnd: number; end: number }>();
  readonly #duplicates = new Set<string>();
  #end = 0;

  /** `expectedBytes` is the approximate size of both forms of all records. */
  constructor(expectedBytes: number) {
    this.#expectedBytes = expectedBytes;
  }

  add({ id, text, canonical }: CheckedRecord): void {
    const bytes = this.#reserve((text.length + canonical.length) * 3);
    const start = this.#end;
    const textEnd = start + bytes.write(text, start);
    this.#end = textEnd + bytes.write(canonical, textEnd);
    if (this.#packed.delete(id)) this.#duplicates.add(id);
    this.#packed.set(id, { batch: this.#bytes.length - 1, start, textEnd, end: this.#end });
  }

  /** Returns the added records. The packer must not be used afterwards. */
  pack(): CheckedRecords {
    const ids: string[][] = this.#bytes.map(() => []);
    const offsets: number[][] = this.#bytes.map(() => []);
    for (const [id, { batch, start, textEnd, end }] of this.#packed) {
      ids[batch]?.push(id);
      offsets[batch]?.push(start, textEnd, end);
    }
    const batches = this.#bytes.map(
      (bytes, at): RecordBatch => ({
        bytes,
        ids: ids[at] ?? [],
        offsets: new Uint32Array(offsets[at] ?? []),
      }),
    );
    return { batches: batches.filter((batch) => batch.ids.length > 0), duplicates: [...this.#duplicates] };
  }

  /** Returns the batch with free capacity for `max` bytes. */
  #reserve(max: number): Buffer<ArrayBuffer> {
    const last = this.#bytes.at(-1);
    if (last !== undefined && this.#end + max <= last.length) return last;
    const started = reserve(Math.max(max, Math.min(this.#expectedBytes, batchBytes)));
    this.#bytes.push(started);
    this.#end = 0;
    return started;
  }
}

export function countOf({ batches }: CheckedRecords): number {
  return batches.reduce((sum, { ids }) => sum + ids.length, 0);
}
