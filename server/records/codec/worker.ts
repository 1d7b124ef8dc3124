// The program of the thread in `thread.ts`.

import { parentPort } from 'node:worker_threads';
import { freeBytes } from '../../large-buffer.ts';
import { DataKey } from '../../vault.ts';
import type { ThreadAnswer } from '../../work-thread.ts';
import { type PartsBody, readPartsBody, readSaveBody, type SaveBody } from './check.ts';
import { mergeAll } from './fields.ts';
import { sealBatch } from './seal.ts';
import type { Done, Order } from './thread.ts';

parentPort?.on('message', (order: Order) => {
  if ('read' in order) read(order.read, readSaveBody);
  else if ('readParts' in order) read(order.readParts, readPartsBody);
  else if ('merge' in order) answer({ done: mergeAll(order.merge.merges, order.merge.ignoreFields) });
  else seal(order.seal);
});

/** Rejects the order, not the thread, if the body is not JSON or is nested too deeply to be transferred. */
function read(
  { bytes, metadataKey }: { bytes: Uint8Array<ArrayBuffer>; metadataKey: string },
  readBody: (bytes: Buffer, metadataKey: string) => SaveBody | PartsBody,
): void {
  try {
    const done = readBody(Buffer.from(bytes.buffer), metadataKey);
    const packed = 'records' in done && done.records && 'batches' in done.records ? done.records.batches : [];
    answer(
      { done },
      packed.flatMap((batch) => [batch.bytes.buffer, batch.offsets.buffer]),
    );
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof RangeError)) throw error;
    answer({ refused: error });
  } finally {
    freeBytes(bytes);
  }
}

function seal({ batch, root, ...by }: Extract<Order, { seal: object }>['seal']): void {
  const done = sealBatch(batch, { ...by, dataKey: new DataKey(root.export()) });
  freeBytes(batch.bytes);
  answer({ done }, [done.bodies.buffer, done.hashes.buffer]);
}

function answer(message: ThreadAnswer<Done>, transfer: ArrayBuffer[] = []): void {
  parentPort?.postMessage(message, transfer);
}
