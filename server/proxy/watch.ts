import { brotliDecompressSync, constants, gunzipSync, inflateSync } from 'node:zlib';
import type { ObservedAnswer } from '../connections/observe.ts';
import type { Head } from './relay.ts';

const mostWatchedBytes = 16 * 1024;

/** Keeps the first 16 KB of an answer while it streams by. */
export class Sample {
  readonly #head: Head;
  readonly #parts: Buffer[] = [];
  #leftBytes = mostWatchedBytes;

  constructor(head: Head) {
    this.#head = head;
  }

  add(part: Buffer): void {
    if (this.#leftBytes === 0) return;
    // A copy: the part itself belongs to a larger buffer, which must not be kept for it.
    const kept = Buffer.from(part.subarray(0, this.#leftBytes));
    this.#leftBytes -= kept.length;
    this.#parts.push(kept);
  }

  answer(): Omit<ObservedAnswer, 'url'> {
    const { status, rawHeaders } = this.#head;
    const headers: Record<string, string> = {};
    for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
      headers[(rawHeaders[at] as string).toLowerCase()] ??= rawHeaders[at + 1] as string;
    }
    return {
      status,
      headers,
      body: decoded(Buffer.concat(this.#parts), headers['content-encoding']),
    };
  }
}

/** Errors are small, so their encoded form mostly is whole; what cannot be decoded stays as it is. */
function decoded(bytes: Buffer, coding: string | undefined): Buffer {
  const options = { maxOutputLength: 64 * mostWatchedBytes, finishFlush: constants.Z_SYNC_FLUSH };
  try {
    if (coding === 'gzip' || coding === 'x-gzip')
      return gunzipSync(bytes, options).subarray(0, mostWatchedBytes);
    if (coding === 'deflate') return inflateSync(bytes, options).subarray(0, mostWatchedBytes);
    if (coding === 'br') return brotliDecompressSync(bytes).subarray(0, mostWatchedBytes);
  } catch {
    // Cut off or not what it says.
  }
  return bytes;
}
