/**
 * The thread that reads, checks, merges, hashes and seals large calls; `worker.ts` is its program. It computes one
 * order after another, in the order sent. Meanwhile this thread serves requests and sends rows to PostgreSQL, and the
 * garbage of the computation is not in the heap of the service. If the thread dies, its orders are rejected, and the
 * next order starts another thread.
 */
import { createSecretKey, type KeyObject } from 'node:crypto';
import { extname } from 'node:path';
import { freeBytes } from '../../large-buffer.ts';
import { DataKey } from '../../vault.ts';
import { WorkThread } from '../../work-thread.ts';
import { type CheckedRecords, countOf, type PartsBody, type RecordBatch, type SaveBody } from './check.ts';
import type { MergedPayload, Merges } from './fields.ts';
import { hashBytes, type SealedBatch, type SealOptions, sealBatch } from './seal.ts';

/** A message to the thread. The root key is sent as a handle, which is released with the batch. */
export type Order =
  | { read: { bytes: Uint8Array<ArrayBuffer>; metadataKey: string } }
  | { readParts: { bytes: Uint8Array<ArrayBuffer>; metadataKey: string } }
  | { merge: { merges: Merges; ignoreFields: readonly string[] } }
  | { seal: { batch: RecordBatch; root: KeyObject } & Omit<SealOptions, 'dataKey'> };

export type Done = SaveBody | SealedBatch | PartsBody | MergedPayload[];

/** The thread and its memory are kept for this time without work. */
const idleMs = 5_000;
/** Fewer records are sealed faster without the thread: in 1 ms at 1 KB each. */
const minRecords = 100;

const thread = new WorkThread<Order, Done>({
  file: new URL(`./worker${extname(import.meta.filename)}`, import.meta.url),
  idleMs,
});

/** Calls `readSaveBody` on the thread. `bytes` is transferred and unusable afterwards. */
export function readOnThread(bytes: Uint8Array<ArrayBuffer>, metadataKey: string): Promise<SaveBody> {
  return thread.order({ read: { bytes, metadataKey } }, [bytes.buffer]) as Promise<SaveBody>;
}

/** Calls `readPartsBody` on the thread. `bytes` is transferred and unusable afterwards. */
export function readPartsOnThread(bytes: Uint8Array<ArrayBuffer>, metadataKey: string): Promise<PartsBody> {
  return thread.order({ readParts: { bytes, metadataKey } }, [bytes.buffer]) as Promise<PartsBody>;
}

/** Calls `mergeAll` on the thread. */
export function mergeOnThread(merges: Merges, ignoreFields: readonly string[]): Promise<MergedPayload[]> {
  return thread.order({ merge: { merges, ignoreFields } }, []) as Promise<MergedPayload[]>;
}

/** Calls `sealBatch` on the thread. The bytes of the batch are transferred and unusable afterwards. */
export function sealOnThread(
  batch: RecordBatch,
  { dataKey, datasetId, ignoreFields }: SealOptions,
): Promise<SealedBatch> {
  const root = createSecretKey(DataKey.rootOf(dataKey));
  const order = { batch, root, datasetId, ignoreFields };
  return thread.order({ seal: order }, [batch.bytes.buffer]) as Promise<SealedBatch>;
}

export type SealedRecord = { id: string; hash: Buffer; body: Buffer };

/** Hashes and seals records, on the thread if there are many. `records` is unusable afterwards. */
export async function sealRecords(records: CheckedRecords, by: SealOptions): Promise<SealedRecord[]> {
  const seal = countOf(records) < minRecords ? sealBatch : sealOnThread;
  const sealed: SealedRecord[][] = [];
  for (const batch of records.batches) sealed.push(cutBatch(batch.ids, await seal(batch, by)));
  return sealed.flat();
}

/** Frees the memory of the bodies at once. The records must come from one `sealRecords` and be no longer used. */
export function freeSealed(records: readonly SealedRecord[]): void {
  for (const buffer of new Set(records.map(({ body }) => body.buffer)))
    freeBytes(new Uint8Array(buffer as ArrayBuffer));
}

function cutBatch(ids: readonly string[], sealed: SealedBatch): SealedRecord[] {
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
