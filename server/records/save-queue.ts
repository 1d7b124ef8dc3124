import { createSecretKey, type KeyObject } from 'node:crypto';
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { DataKey } from '../vault.ts';
import type { Piece } from './checked.ts';
import type { SaveBody } from './save-body.ts';
import type { SealedBatch, SealFor } from './seal-batch.ts';

/** What the thread is sent. The root key goes as a handle and is let go of with the piece. */
export type Order =
  | { read: { bytes: Uint8Array<ArrayBuffer>; metadataKey: string } }
  | { seal: { piece: Piece; root: KeyObject } & Omit<SealFor, 'dataKey'> };

/** What it answers, in the order of what it was sent. */
export type Answer = { done: SaveBody | SealedBatch } | { refused: Error };

/** How long the thread and its memory are kept without work. */
const idleMs = 5_000;

type Waiting = { resolve(done: SaveBody | SealedBatch): void; reject(error: Error): void };
type Thread = { worker: Worker; waiting: Waiting[]; idle: NodeJS.Timeout | undefined };

let thread: Thread | undefined;

/**
 * As `readSaveBody`, on a thread of its own, one order after another as they come: while it computes, requests are
 * answered here and PostgreSQL is fed, and what it leaves to be collected is not in the heap of the service. Takes
 * `bytes` away. Rejects where the thread dies; the next call starts another.
 */
export function readOnThread(bytes: Uint8Array<ArrayBuffer>, metadataKey: string): Promise<SaveBody> {
  return order({ read: { bytes, metadataKey } }, [bytes.buffer]) as Promise<SaveBody>;
}

/** As `sealBatch`, on the same thread. Takes the piece's bytes away. */
export function sealOnThread(
  piece: Piece,
  { dataKey, datasetId, ignoreFields }: SealFor,
): Promise<SealedBatch> {
  const root = createSecretKey(DataKey.rootOf(dataKey));
  const asked = { piece, root, datasetId, ignoreFields };
  return order({ seal: asked }, [piece.bytes.buffer]) as Promise<SealedBatch>;
}

function order(asked: Order, transfer: ArrayBuffer[]): Promise<SaveBody | SealedBatch> {
  thread ??= startThread();
  const { worker, waiting } = thread;
  const { promise, resolve, reject } = Promise.withResolvers<SaveBody | SealedBatch>();
  // Throws for what cannot be sent. Then nobody must wait: the next answer would go to the wrong one.
  worker.postMessage(asked, transfer);
  clearTimeout(thread.idle);
  worker.ref();
  waiting.push({ resolve, reject });
  return promise;
}

/** It keeps the process alive only while it works. */
function startThread(): Thread {
  const worker = new Worker(new URL(`./save-thread${extname(import.meta.filename)}`, import.meta.url));
  const started: Thread = { worker, waiting: [], idle: undefined };
  worker.on('message', (answer: Answer) => {
    const asked = started.waiting.shift();
    if ('done' in answer) asked?.resolve(answer.done);
    else asked?.reject(answer.refused);
    if (started.waiting.length > 0) return;
    worker.unref();
    started.idle = setTimeout(() => {
      if (thread === started) thread = undefined;
      void worker.terminate();
    }, idleMs).unref();
  });
  const fail = (error: Error) => {
    if (thread === started) thread = undefined;
    for (const { reject } of started.waiting.splice(0)) reject(error);
  };
  worker.on('error', fail);
  worker.on('messageerror', fail);
  worker.on('exit', () => fail(new Error('The thread that reads and seals records has ended.')));
  return started;
}
