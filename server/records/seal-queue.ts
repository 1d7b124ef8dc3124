import { createSecretKey, type KeyObject } from 'node:crypto';
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { DataKey } from '../vault.ts';
import type { Piece } from './checked.ts';
import type { Batch, SealedBatch } from './seal-batch.ts';

/** What the thread is sent. The root key goes as a handle and is let go of with the batch. */
export type SealOrder = Piece & { root: KeyObject; datasetId: number };

/** How long the thread and its memory are kept without work. */
const idleMs = 60_000;

type Waiting = { resolve(sealed: SealedBatch): void; reject(error: Error): void };
type Thread = { worker: Worker; waiting: Waiting[]; idle: NodeJS.Timeout | undefined };

let thread: Thread | undefined;

/**
 * As `sealBatch`, on a thread of its own, one batch after another in the order of the calls: while it computes, requests
 * are answered here and PostgreSQL is fed. Takes `bytes` away. Rejects where the thread dies; the next call starts another.
 */
export function sealOnThread({ bytes, spans, dataKey, datasetId }: Batch): Promise<SealedBatch> {
  thread ??= startThread();
  const { worker, waiting } = thread;
  clearTimeout(thread.idle);
  const { promise, resolve, reject } = Promise.withResolvers<SealedBatch>();
  waiting.push({ resolve, reject });
  worker.ref();
  const order: SealOrder = { bytes, spans, root: createSecretKey(DataKey.rootOf(dataKey)), datasetId };
  worker.postMessage(order, [bytes.buffer]);
  return promise;
}

/** It keeps the process alive only while it works. */
function startThread(): Thread {
  const worker = new Worker(new URL(`./seal-thread${extname(import.meta.filename)}`, import.meta.url));
  const started: Thread = { worker, waiting: [], idle: undefined };
  worker.on('message', (sealed: SealedBatch) => {
    started.waiting.shift()?.resolve(sealed);
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
  worker.on('exit', () => fail(new Error('The thread that seals records has ended.')));
  return started;
}
