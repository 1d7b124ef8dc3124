import { type Transferable, Worker } from 'node:worker_threads';

/** The response of a thread to an order; responses have the sequence of the orders. */
export type ThreadAnswer<Done> = { done: Done } | { refused: Error };

type Waiting<Done> = { resolve(done: Done): void; reject(error: Error): void };
type Running<Done> = { worker: Worker; waiting: Waiting<Done>[]; idle: NodeJS.Timeout | undefined };

/** V8's default is three times as much, which would hold only garbage of a thread that computes one order at a time. */
const maxYoungGenerationSizeMb = 16;

/**
 * A thread that computes one order after another. The first order starts it; it ends after `idleMs` without an order, and keeps
 * the process alive only while it works.
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

  /** Rejects with the error of the thread, and if the thread dies; the next order starts another thread. */
  order(order: Order, transfer: Transferable[]): Promise<Done> {
    this.#thread ??= this.#start();
    const { worker, waiting } = this.#thread;
    const { promise, resolve, reject } = Promise.withResolvers<Done>();
    // Throws for a value that cannot be sent. So the order is added afterwards: otherwise it would get the next response.
    worker.postMessage(order, transfer);
    clearTimeout(this.#thread.idle);
    worker.ref();
    waiting.push({ resolve, reject });
    return promise;
  }

  #start(): Running<Done> {
    const resourceLimits = {
      maxYoungGenerationSizeMb,
      ...(this.#maxHeapMb !== undefined && { maxOldGenerationSizeMb: this.#maxHeapMb }),
    };
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
