import { type Transferable, Worker } from 'node:worker_threads';

/** What a thread answers to an order, in the order in which it got them. */
export type ThreadAnswer<Done> = { done: Done } | { refused: Error };

type Waiting<Done> = { resolve(done: Done): void; reject(error: Error): void };
type Running<Done> = { worker: Worker; waiting: Waiting<Done>[]; idle: NodeJS.Timeout | undefined };

/**
 * A thread that computes one order after another. It is started by the first order, ended when it has had none for
 * `idleMs`, and keeps the process alive only while it works.
 */
export class WorkThread<Order, Done> {
  readonly #file: URL;
  readonly #idleMs: number;
  readonly #maxHeapMb: number | undefined;
  #thread: Running<Done> | undefined;

  constructor({ file, idleMs, maxHeapMb }: { file: URL; idleMs: number; maxHeapMb?: number }) {
    this.#file = file;
    this.#idleMs = idleMs;
    this.#maxHeapMb = maxHeapMb;
  }

  /** Rejects with what the thread refuses, and when the thread dies; the next order starts another thread. */
  order(order: Order, transfer: Transferable[]): Promise<Done> {
    this.#thread ??= this.#start();
    const { worker, waiting } = this.#thread;
    const { promise, resolve, reject } = Promise.withResolvers<Done>();
    // Throws for what cannot be sent. Nothing may wait then: the next answer would go to the wrong order.
    worker.postMessage(order, transfer);
    clearTimeout(this.#thread.idle);
    worker.ref();
    waiting.push({ resolve, reject });
    return promise;
  }

  #start(): Running<Done> {
    const resourceLimits = this.#maxHeapMb === undefined ? {} : { maxOldGenerationSizeMb: this.#maxHeapMb };
    const worker = new Worker(this.#file, { resourceLimits });
    const started: Running<Done> = { worker, waiting: [], idle: undefined };
    worker.on('message', (answer: ThreadAnswer<Done>) => {
      const order = started.waiting.shift();
      if ('done' in answer) order?.resolve(answer.done);
      else order?.reject(answer.refused);
      if (started.waiting.length > 0) return;
      worker.unref();
      started.idle = setTimeout(() => {
        if (this.#thread === started) this.#thread = undefined;
        void worker.terminate();
      }, this.#idleMs).unref();
    });
    const fail = (error: Error) => {
      if (this.#thread === started) this.#thread = undefined;
      for (const { reject } of started.waiting.splice(0)) reject(error);
    };
    worker.on('error', fail);
    worker.on('messageerror', fail);
    worker.on('exit', () => fail(new Error('The thread has ended.')));
    return started;
  }
}
