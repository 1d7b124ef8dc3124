// The thread that reads, checks, hashes and seals large calls; started and fed by `save-queue.ts`.

import { parentPort } from 'node:worker_threads';
import { DataKey } from '../vault.ts';
import type { ThreadAnswer } from '../work-thread.ts';
import { freeBytes } from './large.ts';
import { layParts } from './lay.ts';
import { readPartsBody, readSaveBody } from './save-body.ts';
import type { Done, Order } from './save-queue.ts';
import { sealBatch } from './seal-batch.ts';

parentPort?.on('message', (order: Order) => {
  if ('read' in order) read(order.read);
  else if ('parts' in order) readParts(order.parts);
  else if ('lay' in order) answer({ done: layParts(order.lay.layers, order.lay.ignoreFields) });
  else seal(order.seal);
});

function read({ bytes, metadataKey }: Extract<Order, { read: object }>['read']): void {
  try {
    const done = readSaveBody(Buffer.from(bytes.buffer), metadataKey);
    const pieces = done.records !== undefined && 'pieces' in done.records ? done.records.pieces : [];
    answer(
      { done },
      pieces.flatMap(({ bytes, marks }) => [bytes.buffer, marks.buffer]),
    );
  } catch (error) {
    // The body is to blame: no JSON, or what stands beside its records is nested too deeply to be handed over.
    if (!(error instanceof SyntaxError || error instanceof RangeError)) throw error;
    answer({ refused: error });
  } finally {
    freeBytes(bytes);
  }
}

function readParts({ bytes, metadataKey }: Extract<Order, { parts: object }>['parts']): void {
  try {
    answer({ done: readPartsBody(Buffer.from(bytes.buffer), metadataKey) });
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof RangeError)) throw error;
    answer({ refused: error });
  } finally {
    freeBytes(bytes);
  }
}

function seal({ piece, root, ...by }: Extract<Order, { seal: object }>['seal']): void {
  const done = sealBatch(piece, { ...by, dataKey: new DataKey(root.export()) });
  freeBytes(piece.bytes);
  answer({ done }, [done.bodies.buffer, done.hashes.buffer]);
}

function answer(message: ThreadAnswer<Done>, transfer: ArrayBuffer[] = []): void {
  parentPort?.postMessage(message, transfer);
}
