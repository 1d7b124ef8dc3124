type Waiter = { bytes: number; start: () => void };

/**
 * Admits work by the bytes that it holds in memory, in order of arrival: up to a maximum, or one item of any size. The runs of
 * all environments share it.
 */
export class ByteGate {
  readonly #maxBytes: number;
  #heldBytes = 0;
  #waiting: Waiter[] = [];

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Rejects with the signal's reason if it aborts the wait. */
  async run<T>(bytes: number, work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const leave = await this.enter(bytes, signal);
    try {
      return await work();
    } finally {
      leave();
    }
  }

  /** Returns the function that releases the bytes. Rejects as `run`. */
  async enter(bytes: number, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    await this.#wait(bytes, signal);
    let isHeld = true;
    return () => {
      if (isHeld) this.#heldBytes -= bytes;
      isHeld = false;
      this.#admit();
    };
  }

  #wait(bytes: number, signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter = { bytes, start: resolve };
    const leave = () => {
      this.#waiting = this.#waiting.filter((other) => other !== waiter);
      reject(signal.reason);
      this.#admit();
    };
    signal.addEventListener('abort', leave, { once: true });
    this.#waiting.push(waiter);
    this.#admit();
    return promise.finally(() => signal.removeEventListener('abort', leave));
  }

  #admit(): void {
    for (;;) {
      const [next] = this.#waiting;
      if (next === undefined) return;
      if (this.#heldBytes > 0 && this.#heldBytes + next.bytes > this.#maxBytes) return;
      this.#waiting.shift();
      this.#heldBytes += next.bytes;
      next.start();
    }
  }
}

/** Large saves and updates: each takes several times its bytes while it is processed. */
export const largeWork = new ByteGate(16 * 1024 * 1024);
