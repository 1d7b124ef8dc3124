/**
 * Hashes and sealed payloads. Both are bound to the dataset and the id: equal payloads have different hashes and
 * different bodies, and a body that was moved to another row does not open.
 */
import { hash, type KeyObject } from 'node:crypto';
import { reserve } from '../../large-buffer.ts';
import type { DataKey } from '../../vault.ts';
import type { JsonObject } from './canonical.ts';
import type { RecordBatch } from './check.ts';
import { ignoredFields } from './fields.ts';

/** Half an HMAC-SHA-256: the hashes of two different payloads are equal by a chance of 2^-128. */
export const hashBytes = 16;

const blockBytes = 64;
const digestBytes = 32;

export type SealOptions = {
  dataKey: DataKey;
  datasetId: number;
  /** The fields that a hash ignores. */
  ignoreFields: readonly string[];
};

/** The hashes and the sealed payloads of a batch, in its order. `sizes` are the sizes of the bodies. */
export type SealedBatch = {
  hashes: Uint8Array<ArrayBuffer>;
  bodies: Uint8Array<ArrayBuffer>;
  sizes: number[];
};

export function sealBatch({ bytes, ids, offsets }: RecordBatch, by: SealOptions): SealedBatch {
  const { dataKey, datasetId } = by;
  const part = (start = 0, end = 0) => Buffer.from(bytes.buffer, bytes.byteOffset + start, end - start);
  const sealed = dataKey.sealMany(
    ids.map((id, index) => ({
      plain: part(offsets[index * 3], offsets[index * 3 + 1]),
      context: sealContext(datasetId, id),
    })),
  );
  const sizes = sealed.map((body) => body.length);
  const bodies = reserve(sizes.reduce((sum, size) => sum + size, 0));
  const hashes = new Uint8Array(ids.length * hashBytes);
  const writeHash = hashWriter(dataKey.subkey('record hash'));
  const canonicalOf = canonicalWithout(by.ignoreFields);
  let written = 0;
  for (const [index, id] of ids.entries()) {
    bodies.set(sealed[index] as Buffer, written);
    written += sizes[index] as number;
    const name = `${sealContext(datasetId, JSON.stringify(id))}\n`;
    const [start, textEnd, end] = offsets.subarray(index * 3, index * 3 + 3);
    const content = canonicalOf?.(part(start, textEnd)) ?? part(textEnd, end);
    writeHash({ name, content }, hashes, index * hashBytes);
  }
  return { hashes, bodies, sizes };
}

/** Returns a function that makes the canonical form of a payload with ignored fields; undefined for other payloads. */
function canonicalWithout(names: readonly string[]): ((text: Buffer) => Buffer | undefined) | undefined {
  if (names.length === 0) return undefined;
  const ignored = ignoredFields(names);
  return (text) => {
    const fields = JSON.parse(text.toString('utf8')) as JsonObject;
    return ignored.isIn(fields) ? Buffer.from(ignored.canonical(fields)) : undefined;
  };
}

/** Returns the JSON text of the payload as UTF-8. Throws if the body was not sealed for this record. */
export function openPayload(
  body: Buffer,
  by: { dataKey: DataKey; datasetId: number; recordId: string },
): Buffer {
  return by.dataKey.open(body, sealContext(by.datasetId, by.recordId));
}

export function sealContext(datasetId: number, recordId: string): string {
  return `record ${datasetId} ${recordId}`;
}

/**
 * Returns a function that writes the first half of the HMAC-SHA-256 (RFC 2104) of `name` and `content` to `into`, at
 * the offset `at`. The key has at most 64 bytes. Two calls of `hash` take half the time of `createHmac`, whose object
 * costs more than the hashing of 1 KB.
 */
export function hashWriter(
  key: KeyObject,
): (of: { name: string; content: Uint8Array }, into: Uint8Array, at: number) => void {
  const bytes = key.export();
  if (bytes.length > blockBytes) throw new RangeError(`an HMAC key has at most ${blockBytes} bytes`);
  const outer = Buffer.concat([paddedKey(bytes, 0x5c), Buffer.alloc(digestBytes)]);
  let inner = paddedKey(bytes, 0x36);
  return ({ name, content }, into, at) => {
    const max = blockBytes + name.length * 3 + content.length;
    if (inner.length < max) inner = Buffer.concat([inner.subarray(0, blockBytes)], max * 2);
    const nameEnd = blockBytes + inner.write(name, blockBytes);
    inner.set(content, nameEnd);
    const digest = hash('sha256', inner.subarray(0, nameEnd + content.length), 'latin1');
    outer.write(digest, blockBytes, 'latin1');
    outer.write(hash('sha256', outer, 'latin1'), blockBytes, 'latin1');
    into.set(outer.subarray(blockBytes, blockBytes + hashBytes), at);
  };
}

/** The key, filled with zeros to a block, with each byte combined with `pad`. */
function paddedKey(key: Buffer, pad: number): Buffer {
  return Buffer.concat([key], blockBytes).map((byte) => byte ^ pad) as Buffer;
}
