/** Bodies that functions send and that are held whole until they are used. */
import { AppError } from '../../errors.ts';
import { freeBytes, reserve } from '../../records/large.ts';
import { ByteGate } from './byte-gate.ts';

/** Shorter bodies are read at once. */
export const smallBytes = 256 * 1024;
/** For a large body, once it is its turn: others wait for the memory. */
export const turnMs = 60_000;

/** Of the bodies and states of all runs together. */
export const largeBodies = new ByteGate(64 * 1024 * 1024);

type Limits = { maxBytes: number; signal: AbortSignal; tooLarge: () => AppError };

/**
 * Reads a body to its end and calls `use` with it. Of bodies beyond 256 KB as many are held as there is memory for, and
 * each for at most a minute before it is used: a body that has not ended by then is refused with `unavailable`. The
 * bytes are gone when `use` has ended.
 */
export async function withBody<T>(
  body: AsyncIterable<Uint8Array> | undefined,
  { maxBytes, signal, tooLarge }: Limits,
  use: (bytes: Buffer<ArrayBuffer>) => Promise<T>,
): Promise<T> {
  const parts = body?.[Symbol.asyncIterator]();
  const held = Buffer.allocUnsafeSlow(smallBytes) as Buffer<ArrayBuffer>;
  let filled = 0;
  let next = await parts?.next();
  for (; next !== undefined && !next.done; next = await parts?.next()) {
    if (filled + next.value.byteLength > smallBytes) break;
    held.set(next.value, filled);
    filled += next.value.byteLength;
  }
  if (next === undefined || next.done) return use(held.subarray(0, filled) as Buffer<ArrayBuffer>);
  const readAll = async () => {
    // The system gives memory for what is filled alone.
    const all = reserve(maxBytes);
    try {
      held.copy(all, 0, 0, filled);
      const overdue = AbortSignal.any([signal, AbortSignal.timeout(turnMs)]);
      while (next !== undefined && !next.done) {
        const bytes = next.value;
        if (filled + bytes.byteLength > maxBytes) throw tooLarge();
        all.set(bytes, filled);
        filled += bytes.byteLength;
        next = await before(overdue, parts!.next());
      }
      return await use(all.subarray(0, filled) as Buffer<ArrayBuffer>);
    } finally {
      freeBytes(all);
    }
  };
  return largeBodies.run(maxBytes, readAll, signal);
}

/** What the promise resolves with, unless the signal aborts first. */
async function before<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const abort = () =>
    reject(new AppError('unavailable', 'The body did not come to its end in time.', { retryAfterS: 1 }));
  signal.addEventListener('abort', abort, { once: true });
  if (signal.aborted) abort();
  try {
    return await Promise.race([promise, late]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
