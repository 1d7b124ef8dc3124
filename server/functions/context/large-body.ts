/** Bodies of functions that are buffered whole until they are used. */
import { AppError } from '../../errors.ts';
import { freeBytes, reserve } from '../../large-buffer.ts';
import { ByteGate } from './byte-gate.ts';

/** Shorter bodies are read at once. */
export const smallBytes = 256 * 1024;
/** The time limit of a large body after its admission: others wait for the memory. */
export const turnMs = 60_000;

/** Admits the bodies and states of all runs. */
export const largeBodies = new ByteGate(32 * 1024 * 1024);

type Limits = {
  maxBytes: number;
  signal: AbortSignal;
  tooLarge: () => AppError;
  /** Transforms the body as it arrives. Without a collector `use` gets the body itself. */
  collect?: (maxBytes: number) => Collector;
};

export type Collector = {
  add(bytes: Uint8Array): void | Promise<void>;
  end(): Buffer<ArrayBuffer> | Promise<Buffer<ArrayBuffer>>;
  /** Releases the memory, also before the end. */
  free(): void;
};

/**
 * Reads a body to its end and calls `use` with it. Bodies beyond 256 KB wait for memory, and must then end within a minute, else
 * this throws `unavailable`. The bytes are freed when `use` has ended.
 */
export async function withBody<T>(
  body: AsyncIterable<Uint8Array> | undefined,
  { maxBytes, signal, tooLarge, collect = wholeBody }: Limits,
  use: (bytes: Buffer<ArrayBuffer>) => Promise<T>,
): Promise<T> {
  const parts = body?.[Symbol.asyncIterator]();
  const held = Buffer.allocUnsafeSlow(smallBytes);
  let filled = 0;
  let next = await parts?.next();
  for (; next !== undefined && !next.done; next = await parts?.next()) {
    if (filled + next.value.byteLength > smallBytes) break;
    held.set(next.value, filled);
    filled += next.value.byteLength;
  }
  const readAll = async () => {
    const isWhole = next === undefined || next.done;
    const collector = collect(isWhole ? filled : maxBytes);
    try {
      const overdue = isWhole ? signal : AbortSignal.any([signal, AbortSignal.timeout(turnMs)]);
      await collector.add(held.subarray(0, filled));
      while (next !== undefined && !next.done) {
        filled += next.value.byteLength;
        if (filled > maxBytes) throw tooLarge();
        await collector.add(next.value);
        next = await before(overdue, parts!.next());
      }
      return await use(await collector.end());
    } finally {
      collector.free();
    }
  };
  return next === undefined || next.done ? readAll() : largeBodies.run(maxBytes, readAll, signal);
}

function wholeBody(maxBytes: number): Collector {
  // The operating system provides memory only for the bytes that are written.
  const all = reserve(maxBytes);
  let filled = 0;
  return {
    add(bytes) {
      all.set(bytes, filled);
      filled += bytes.byteLength;
    },
    end: () => all.subarray(0, filled),
    free: () => freeBytes(all),
  };
}

/** Resolves with the promise, unless the signal aborts first. */
async function before<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const abort = () =>
    reject(new AppError('unavailable', 'The body did not arrive completely in time.', { retryAfterS: 1 }));
  signal.addEventListener('abort', abort, { once: true });
  if (signal.aborted) abort();
  try {
    return await Promise.race([promise, late]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
