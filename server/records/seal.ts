import type { DataKey } from '../vault.ts';
import { type CheckedRecords, countOf } from './checked.ts';
import { hashBytes } from './hash.ts';
import { freeBytes } from './large.ts';
import { sealOnThread } from './save-queue.ts';
import { contextOf, type SealedBatch, type SealFor, sealBatch } from './seal-batch.ts';

/** Fewer records are sealed sooner here than on the thread: 1 ms at 1 KB each. */
const minForThread = 100;

export type SealedRecord = { id: string; hash: Buffer; body: Buffer };

/**
 * Hashes and seals as `sealBatch` does; `records` are used up. A large call holds up neither other requests nor, for
 * long, other calls.
 */
export async function sealRecords(records: CheckedRecords, by: SealFor): Promise<SealedRecord[]> {
  const seal = countOf(records) < minForThread ? sealBatch : sealOnThread;
  const sealed: SealedRecord[][] = [];
  for (const piece of records.pieces) sealed.push(cut(piece.ids, await seal(piece, by)));
  return sealed.flat();
}

/** Frees the memory of the bodies at once. The records must come from one `sealRecords` and be no longer used. */
export function freeSealed(records: readonly SealedRecord[]): void {
  for (const buffer of new Set(records.map(({ body }) => body.buffer)))
    freeBytes(new Uint8Array(buffer as ArrayBuffer));
}

/** The payload's JSON text as UTF-8. Throws where the body is not the one of this record. */
export function openPayload(
  body: Buffer,
  by: { dataKey: DataKey; datasetId: number; recordId: string },
): Buffer {
  return by.dataKey.open(body, contextOf(by.datasetId, by.recordId));
}

function cut(ids: readonly string[], sealed: SealedBatch): SealedRecord[] {
  const hashes = Buffer.from(sealed.hashes.buffer);
  const bodies = Buffer.from(sealed.bodies.buffer);
  let end = 0;
  return ids.map((id, index) => {
    const start = end;
    end += sealed.sizes[index] as number;
    return {
      id,
      hash: hashes.subarray(index * hashBytes, (index + 1) * hashBytes),
      body: bodies.subarray(start, end),
    };
  });
}
