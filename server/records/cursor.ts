import { crc32 } from 'node:zlib';
import { AppError } from '../errors.ts';

/**
 * The cursor: the opaque position of a record in its dataset.
 *
 * 21 bytes as 28 base64url characters: version, dataset id, seq, CRC-32 of these. Where tombstones have gone by age it also
 * says since when its reader has been reading (`since`, 30 bytes, 40 characters): a record that was dead by then was
 * never alive for that reader, who misses nothing when its tombstone goes. 21 and 30 are multiples of 3, so no bits
 * are left over and each position has exactly one spelling. Nothing in it rotates: a cursor stays good as long as its
 * dataset. The check finds damage and is not a secret: a caller that may read a dataset may name any position in it.
 */
const plain = { version: 1, bytes: 21 };
const dated = { version: 2, bytes: 30 };
const spelling = /^[A-Za-z0-9_-]{28}(?:[A-Za-z0-9_-]{12})?$/;

/** Where a reader stands, and the dataset's last position when it began; 0 where that does not matter any more. */
export type Position = { seq: number; since: number };

/** Spells the cursors of one dataset for readers that began at `since`. */
export function cursorWriter(datasetId: number, since = 0): (seq: number) => string {
  const forms = [plain, dated].map((form) => {
    const bytes = Buffer.alloc(form.bytes);
    bytes.writeUInt8(form.version, 0);
    bytes.writeBigUInt64BE(BigInt(datasetId), 1);
    if (form === dated) bytes.writeBigUInt64BE(BigInt(since), 17);
    return { bytes, body: bytes.subarray(0, checkAt(form)), at: checkAt(form) };
  });
  return (seq) => {
    const { bytes, body, at } = (seq < since ? forms[1] : forms[0]) as (typeof forms)[number];
    bytes.writeUInt32BE(Math.floor(seq / 0x1_0000_0000), 9);
    bytes.writeUInt32BE(seq % 0x1_0000_0000, 13);
    bytes.writeUInt32BE(crc32(body), at);
    return bytes.toString('base64url');
  };
}

/** Both forms end with their check; in the dated one a zero byte stands between `since` and it. */
function checkAt({ bytes }: { bytes: number }): number {
  return bytes - 4;
}

/**
 * The seq a cursor stands for, from 1 to the dataset's `lastSeq`. Throws `invalid_cursor` for whatever
 * `cursorWriter` did not spell for a position this dataset has given out; no dataset has given out none.
 */
export function readCursor(cursor: string, dataset: { id: number; lastSeq: number } | undefined): number {
  return readPosition(cursor, dataset).seq;
}

/**
 * As `readCursor`, for a reader that continues from there: throws `cursor_expired` if a policy has removed a tombstone
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
 * As `readFollowedCursor`, also where everything that stood up to the cursor was removed without tombstones: throws
 * `cursor_expired` for a cursor from before the dataset was emptied. Records that came since stand behind it.
 */
export function readUnemptiedCursor(
  cursor: string,
  dataset: { id: number; lastSeq: number; tombstoneFloor: number; emptiedSeq: number } | undefined,
): Position {
  const position = readFollowedCursor(cursor, dataset);
  if (dataset === undefined || position.seq > dataset.emptiedSeq) return position;
  throw new AppError('cursor_expired', 'The dataset was emptied after this cursor. Start again without one.');
}

/** The dataset and the position that a cursor names, as yet unproven; undefined for what is none. */
export function namedBy(cursor: string): { datasetId: number; seq: number } | undefined {
  if (!spelling.test(cursor)) return undefined;
  const bytes = Buffer.from(cursor, 'base64url');
  const [datasetId, seq] = [Number(bytes.readBigUInt64BE(1)), Number(bytes.readBigUInt64BE(9))];
  return Number.isSafeInteger(datasetId) && Number.isSafeInteger(seq) ? { datasetId, seq } : undefined;
}

function readPosition(cursor: string, dataset: { id: number; lastSeq: number } | undefined): Position {
  if (dataset === undefined || !spelling.test(cursor)) throw new AppError('invalid_cursor');
  const bytes = Buffer.from(cursor, 'base64url');
  const seq = Number(bytes.readBigUInt64BE(9));
  const since = bytes.length === dated.bytes ? Number(bytes.readBigUInt64BE(17)) : 0;
  const isGivenOut = seq >= 1 && seq <= dataset.lastSeq && since <= dataset.lastSeq;
  // One spelling a position: what is read must be what would be written.
  if (!isGivenOut || (bytes.length === dated.bytes && since <= seq)) throw new AppError('invalid_cursor');
  if (cursorWriter(dataset.id, since)(seq) !== cursor) throw new AppError('invalid_cursor');
  return { seq, since };
}
