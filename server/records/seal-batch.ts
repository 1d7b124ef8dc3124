import type { DataKey } from '../vault.ts';
import type { Piece } from './checked.ts';
import { hashBytes, hashWriter } from './hash.ts';

/** Records of one dataset to seal. */
export type Batch = Piece & { dataKey: DataKey; datasetId: number };

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
export function sealBatch({ bytes, spans, dataKey, datasetId }: Batch): SealedBatch {
  const part = (start: number, end: number) =>
    Buffer.from(bytes.buffer, bytes.byteOffset + start, end - start);
  const sealed = dataKey.sealMany(
    spans.map(({ id, start, textEnd }) => ({
      plain: part(start, textEnd),
      context: contextOf(datasetId, id),
    })),
  );
  const sizes = sealed.map((body) => body.length);
  const bodies = new Uint8Array(sizes.reduce((sum, size) => sum + size, 0));
  const hashes = new Uint8Array(spans.length * hashBytes);
  const writeHash = hashWriter(dataKey.subkey('record hash'));
  let written = 0;
  for (const [index, { id, textEnd, end }] of spans.entries()) {
    bodies.set(sealed[index] as Buffer, written);
    written += sizes[index] as number;
    const name = `${contextOf(datasetId, JSON.stringify(id))}\n`;
    writeHash({ name, content: part(textEnd, end) }, hashes, index * hashBytes);
  }
  return { hashes, bodies, sizes };
}

export function contextOf(datasetId: number, recordId: string): string {
  return `record ${datasetId} ${recordId}`;
}
