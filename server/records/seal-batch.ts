import type { DataKey } from '../vault.ts';
import type { JsonObject } from './canonical.ts';
import type { Piece } from './checked.ts';
import { hashBytes, hashWriter } from './hash.ts';
import { ignoredFields } from './ignore.ts';
import { reserve } from './large.ts';

/** What records are sealed for; a hash leaves out the fields of these names. */
export type SealFor = { dataKey: DataKey; datasetId: number; ignoreFields: readonly string[] };

/** Hashes and sealed payloads in the order of the records, each kind in one piece: `sizes` cuts the bodies apart. */
export type SealedBatch = {
  hashes: Uint8Array<ArrayBuffer>;
  bodies: Uint8Array<ArrayBuffer>;
  sizes: number[];
};

/**
 * Hashes and seals. Both are bound to dataset and id: equal payloads have neither equal hashes nor equal bodies, and a
 * body that was moved to another row does not open.
 */
export function sealBatch({ bytes, ids, marks }: Piece, by: SealFor): SealedBatch {
  const { dataKey, datasetId } = by;
  const part = (start = 0, end = 0) => Buffer.from(bytes.buffer, bytes.byteOffset + start, end - start);
  const sealed = dataKey.sealMany(
    ids.map((id, index) => ({
      plain: part(marks[index * 3], marks[index * 3 + 1]),
      context: contextOf(datasetId, id),
    })),
  );
  const sizes = sealed.map((body) => body.length);
  const bodies = reserve(sizes.reduce((sum, size) => sum + size, 0));
  const hashes = new Uint8Array(ids.length * hashBytes);
  const writeHash = hashWriter(dataKey.subkey('record hash'));
  const ignore = ignorer(by.ignoreFields);
  let written = 0;
  for (const [index, id] of ids.entries()) {
    bodies.set(sealed[index] as Buffer, written);
    written += sizes[index] as number;
    const name = `${contextOf(datasetId, JSON.stringify(id))}\n`;
    const [start, textEnd, end] = marks.subarray(index * 3, index * 3 + 3);
    const content = ignore?.(part(start, textEnd)) ?? part(textEnd, end);
    writeHash({ name, content }, hashes, index * hashBytes);
  }
  return { hashes, bodies, sizes };
}

/** Makes the canonical form again for payloads with ignored fields; undefined for the others. */
function ignorer(names: readonly string[]): ((text: Buffer) => Buffer | undefined) | undefined {
  if (names.length === 0) return undefined;
  const ignored = ignoredFields(names);
  return (text) => {
    const fields = JSON.parse(text.toString('utf8')) as JsonObject;
    return ignored.isIn(fields) ? Buffer.from(ignored.canonical(fields)) : undefined;
  };
}

export function contextOf(datasetId: number, recordId: string): string {
  return `record ${datasetId} ${recordId}`;
}
