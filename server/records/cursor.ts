import { crc32 } from 'node:zlib';
import { AppError } from '../errors.ts';

/**
 * The cursor: the opaque position of a record in its dataset.
 *
 * 21 bytes as 28 base64url characters: version, dataset id, seq, CRC-32 of these. 21 is a multiple of 3, so no
 * bits are left over and each position has exactly one spelling. Nothing in it rotates: a cursor stays good as long
 * as its dataset. The check finds damage, it is no secret: whoever may read a dataset may name any position in it.
 */
const version = 1;
const bodyBytes = 17;
const spelling = /^[A-Za-z0-9_-]{28}$/;

/** Spells the cursors of one dataset. */
export function cursorWriter(datasetId: number): (seq: number) => string {
  const bytes = Buffer.alloc(bodyBytes + 4);
  const body = bytes.subarray(0, bodyBytes);
  bytes.writeUInt8(version, 0);
  bytes.writeBigUInt64BE(BigInt(datasetId), 1);
  return (seq) => {
    bytes.writeUInt32BE(Math.floor(seq / 0x1_0000_0000), 9);
    bytes.writeUInt32BE(seq % 0x1_0000_0000, 13);
    bytes.writeUInt32BE(crc32(body), bodyBytes);
    return bytes.toString('base64url');
  };
}

/**
 * The seq a cursor stands for, from 1 to the dataset's `lastSeq`. Throws `invalid_cursor` for whatever
 * `cursorWriter` did not spell for a position this dataset has given out; no dataset has given out none.
 */
export function readCursor(cursor: string, dataset: { id: number; lastSeq: number } | undefined): number {
  if (dataset === undefined || !spelling.test(cursor)) throw new AppError('invalid_cursor');
  const bytes = Buffer.from(cursor, 'base64url');
  const isWhole =
    bytes[0] === version && bytes.readUInt32BE(bodyBytes) === crc32(bytes.subarray(0, bodyBytes));
  const seq = bytes.readBigUInt64BE(9);
  const isOfDataset = bytes.readBigUInt64BE(1) === BigInt(dataset.id);
  if (!isWhole || !isOfDataset || seq < 1n || seq > BigInt(dataset.lastSeq))
    throw new AppError('invalid_cursor');
  return Number(seq);
}

/**
 * As `readCursor`, for whoever goes on from there: throws `cursor_expired` where a policy has removed a tombstone that
 * lies after the cursor, since a deletion would go unseen.
 */
export function readFollowedCursor(
  cursor: string,
  dataset: { id: number; lastSeq: number; tombstoneFloor: number } | undefined,
): number {
  const seq = readCursor(cursor, dataset);
  if (dataset !== undefined && seq < dataset.tombstoneFloor) throw new AppError('cursor_expired');
  return seq;
}
