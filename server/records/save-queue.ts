import { createSecretKey, type KeyObject } from 'node:crypto';
import { extname } from 'node:path';
import { DataKey } from '../vault.ts';
import { WorkThread } from '../work-thread.ts';
import type { Piece } from './checked.ts';
import type { Laid, Layers } from './lay.ts';
import type { PartsBody, SaveBody } from './save-body.ts';
import type { SealedBatch, SealFor } from './seal-batch.ts';

/** A message to the thread. The root key is sent as a handle, which is released with the piece. */
export type Order =
  | { read: { bytes: Uint8Array<ArrayBuffer>; metadataKey: string } }
  | { parts: { bytes: Uint8Array<ArrayBuffer>; metadataKey: string } }
  | { lay: { layers: Layers; ignoreFields: readonly string[] } }
  | { seal: { piece: Piece; root: KeyObject } & Omit<SealFor, 'dataKey'> };

export type Done = SaveBody | SealedBatch | PartsBody | Laid[];

/** How long the thread and its memory are kept without work. */
const idleMs = 5_000;

const thread = new WorkThread<Order, Done>({
  file: new URL(`./save-thread${extname(import.meta.filename)}`, import.meta.url),
  idleMs,
});

/**
 * As `readSaveBody`, on a thread of its own, one order after another as they come: while it computes, requests are
 * answered here and PostgreSQL is fed, and what it leaves to be collected is not in the heap of the service. Takes
 * `bytes` away. Rejects where the thread dies; the next call starts another.
 */
export function readOnThread(bytes: Uint8Array<ArrayBuffer>, metadataKey: string): Promise<SaveBody> {
  return thread.order({ read: { bytes, metadataKey } }, [bytes.buffer]) as Promise<SaveBody>;
}

/** As `readPartsBody`, on the same thread. Takes `bytes` away. */
export function readPartsOnThread(bytes: Uint8Array<ArrayBuffer>, metadataKey: string): Promise<PartsBody> {
  return thread.order({ parts: { bytes, metadataKey } }, [bytes.buffer]) as Promise<PartsBody>;
}

/** As `layParts`, on the same thread. */
export function layOnThread(layers: Layers, ignoreFields: readonly string[]): Promise<Laid[]> {
  return thread.order({ lay: { layers, ignoreFields } }, []) as Promise<Laid[]>;
}

/** As `sealBatch`, on the same thread. Takes the piece's bytes away. */
export function sealOnThread(
  piece: Piece,
  { dataKey, datasetId, ignoreFields }: SealFor,
): Promise<SealedBatch> {
  const root = createSecretKey(DataKey.rootOf(dataKey));
  const asked = { piece, root, datasetId, ignoreFields };
  return thread.order({ seal: asked }, [piece.bytes.buffer]) as Promise<SealedBatch>;
}
