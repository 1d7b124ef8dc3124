import { crc32 } from 'node:zlib';
import { AppError } from '../errors.ts';

/**
 * The cursor: the opaque position of a record in its dataset.
 *
 * It has 21 bytes as 28 base64url characters: version, dataset id, seq, and the CRC-32 of these. If tombstones were
 * removed by age, it also has the position at which its reader began (`since`, 30 bytes, 40 characters): a record that
 * was deleted before was never live for that reader, which misses nothing when its tombstone is removed. 21 and 30 are
 * multiples of 3, so there are no spare bits and each position has exactly one text. A cursor is valid as long as its
 * dataset exists. The CRC detects damage and is not a secret: a caller that may read a dataset may name any position in
 * it.
 */
const plain = { version: 1, bytes: 21 };
const dated = { version: 2, bytes: 30 };
const format = /^[A-Za-z0-9_-]{28}(?:[A-Za-z0-9_-]{12})?$/;

/** The position of a reader, and the dataset's last position when the reader began, or 0 if that no longer matters. */
export type Position = { seq: number; since: number };

/** Returns a function that writes the cursors of one dataset for readers that began at `since`. */
export function cursorWriter(datasetId: number, since = 0): (seq: number) => string {
  const forms = [plain, dated].map((form) => {
    const bytes = Buffer.alloc(form.bytes);
    bytes.writeUInt8(form.version, 0);
    bytes.writeBigUInt64BE(BigInt(datasetId), 1);
    if (form === dated) bytes.writeBigUInt64BE(BigInt(since), 17);
    return { bytes, body: bytes.subarray(0, crcOffset(form)), at: crcOffset(form) };
  });
  return (seq) => {
    const { bytes, body, at } = (seq < since ? forms[1] : forms[0]) as (typeof forms)[number];
    bytes.writeUInt32BE(Math.floor(seq / 0x1_0000_0000), 9);
    bytes.writeUInt32BE(seq % 0x1_0000_0000, 13);
    bytes.writeUInt32BE(crc32(body), at);
    return bytes.toString('base64url');
  };
}

/** The offset of the CRC, which ends both forms. In the dated form, there is a zero byte before it. */
function crcOffset({ bytes }: { bytes: number }): number {
  return bytes - 4;
}

/**
 * Returns the seq of a cursor, from 1 to the dataset's `lastSeq`. Throws `invalid_cursor` for any text that
 * `cursorWriter` does not write for a position of this dataset, and if there is no dataset.
 */
export function readCursor(cursor: string, dataset: { id: number; lastSeq: number } | undefined): number {
  return readPosition(cursor, dataset).seq;
}

/**
 * As `readCursor`, for a reader that continues from there. Throws `cursor_expired` if a policy has removed a tombstone
 * after the cursor and after the reader began, since the reader would miss a deletion.
 */
export function readFollowedCursor(
  cursor: string,
  dataset: { id: number; lastSeq: number; tombstoneFloor: number } | undefined,
): Position {
  const position = readPosition(cursor, dataset);
  const known = Math.max(position.seq, position.since);
  if (dataset !== undefined && known < dataset.tombstoneFloor) throw new AppError('cursor_expired');
  return position;
}

/**
 * As `readFollowedCursor`. Also throws `cursor_expired` for a cursor from before the dataset was emptied, since the
 * records up to it were removed without tombstones. Records that were saved later come after it.
 */
export function readUnemptiedCursor(
  cursor: string,
  dataset: { id: number; lastSeq: number; tombstoneFloor: number; emptiedSeq: number } | undefined,
): Position {
  const position = readFollowedCursor(cursor, dataset);
  if (dataset === undefined || position.seq > dataset.emptiedSeq) return position;
  throw new AppError('cursor_expired', 'The dataset was emptied after this cursor. Start again without one.');
}

/** Returns the dataset and the position that a cursor names, unverified; undefined if the text is not a cursor. */
export function namedBy(cursor: string): { datasetId: number; seq: number } | undefined {
  if (!format.test(cursor)) return undefined;
  const bytes = Buffer.from(cursor, 'base64url');
  const [datasetId, seq] = [Number(bytes.readBigUInt64BE(1)), Number(bytes.readBigUInt64BE(9))];
  return Number.isSafeInteger(datasetId) && Number.isSafeInteger(seq) ? { datasetId, seq } : undefined;
}

function readPosition(cursor: string, dataset: { id: number; lastSeq: number } | undefined): Position {
  if (dataset === undefined || !format.test(cursor)) throw new AppError('invalid_cursor');
  const bytes = Buffer.from(cursor, 'base64url');
  const seq = Number(bytes.readBigUInt64BE(9));
  const since = bytes.length === dated.bytes ? Number(bytes.readBigUInt64BE(17)) : 0;
  const isTaken = seq >= 1 && seq <= dataset.lastSeq && since <= dataset.lastSeq;
  // Each position has one text: the cursor must be exactly what would be written.
  if (!isTaken || (bytes.length === dated.bytes && since <= seq)) throw new AppError('invalid_cursor');
  if (cursorWriter(dataset.id, since)(seq) !== cursor) throw new AppError('invalid_cursor');
  return { seq, since };
}
