import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { AppError } from '../errors.ts';
import { isChunked } from '../http/raw-headers.ts';
import { noteSpent } from './spent-buffers.ts';
import { requestBeyond } from './ticket-limits.ts';

/** A body up to this size is kept: it can be sent a second time, or be given the credentials. */
const keptLimitBytes = 1024 * 1024;

const unfinished = 'The body stopped coming before its end. The provider has got a part of it at most.';

/** Why the body cannot go on, as far as its head tells; undefined: it can. */
export function faultOfBody({ headers }: IncomingMessage, maxBytes: number): AppError | undefined {
  const { 'content-length': length = 0, 'transfer-encoding': coding } = headers;
  // Of several codings Node takes off the last alone: the provider would read the rest as the body.
  if (coding !== undefined && !isChunked(coding)) return new AppError('unsupported_transfer_coding');
  return Number(length) > maxBytes ? requestBeyond() : undefined;
}

/** Whether the caller ended its connection in the middle of the body. */
export function isBrokenOff(request: IncomingMessage): boolean {
  return request.destroyed && !request.complete;
}

/** Whether the body is announced to be small enough to be sent again. */
export function isShort({ headers }: IncomingMessage): boolean {
  return Number(headers['content-length'] ?? Number.POSITIVE_INFINITY) <= keptLimitBytes;
}

/**
 * A body read to its end; undefined where it is longer than what is kept. Throws what `Upload` fails with, and what the
 * caller's connection ends with.
 */
export async function readWhole(upload: Upload): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  for await (const chunk of upload) {
    if (upload.sizeBytes > keptLimitBytes) return undefined;
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks);
}

/**
 * The caller's body on its way to the provider, as fast as the slower of both.
 *
 * Stands between the two so that its sender may destroy it without closing the caller's connection, which still has to
 * carry the answer. Keeps a copy while the body is small enough to be sent again.
 */
export class Upload extends Readable {
  readonly #source: IncomingMessage;
  readonly #maxBytes: number;
  readonly #idleMs: number;
  #idleTimer: NodeJS.Timeout | undefined;
  #copy: Buffer[] | undefined = [];
  #sizeBytes = 0;
  #isFlowing = false;

  /**
   * A body of more than `maxBytes` fails with `ticket_bytes_exceeded`, and no more of it goes by; one of which nothing
   * comes for `idleMs`, though it is waited for, with `request_timeout`.
   */
  constructor(source: IncomingMessage, { maxBytes, idleMs }: { maxBytes: number; idleMs: number }) {
    super({ highWaterMark: 64 * 1024 });
    this.#source = source;
    this.#maxBytes = maxBytes;
    this.#idleMs = idleMs;
  }

  /** What has gone by so far. */
  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** Whether what has gone by is kept. */
  get isKept(): boolean {
    return this.#copy !== undefined;
  }

  /** Nobody will ask for the body again. */
  forget(): void {
    this.#copy = undefined;
  }

  /** The whole body, once it has all gone by and was small enough. */
  copy(): Buffer | undefined {
    return this.#copy !== undefined && this.isWhole ? Buffer.concat(this.#copy) : undefined;
  }

  /**
   * The whole body, for another attempt: from now on it goes to nobody else, and comes as fast as the caller sends it.
   * Undefined where it is not kept, or nothing of it comes for `gapMs`: its caller may wait for the answer first.
   * Rejects with `ticket_bytes_exceeded`, and with what the caller's connection ends with.
   */
  rest(gapMs: number): Promise<Buffer | undefined> {
    const parts = this.#copy;
    if (parts === undefined || this.isWhole) return Promise.resolve(this.copy());
    this.#leave();
    this.#isFlowing = true;
    this.#copy = undefined;
    const { promise, resolve, reject } = Promise.withResolvers<Buffer | undefined>();
    const source = this.#source;
    const timer = setTimeout(() => resolve(undefined), gapMs);
    const onData = (chunk: Buffer) => {
      timer.refresh();
      this.#sizeBytes += chunk.length;
      parts.push(chunk);
      if (this.#sizeBytes > this.#maxBytes) reject(requestBeyond());
      else if (this.#sizeBytes > keptLimitBytes) resolve(undefined);
    };
    const onEnd = () => resolve(Buffer.concat(parts));
    source.on('data', onData).on('end', onEnd).on('error', reject).resume();
    return promise.finally(() => {
      clearTimeout(timer);
      source.off('data', onData).off('end', onEnd).off('error', reject);
      source.on('error', () => {}).resume();
    });
  }

  /** Whether all of it has gone by. */
  get isWhole(): boolean {
    return this.#source.complete && this.#source.readableLength === 0;
  }

  override _read(): void {
    if (!this.#isFlowing) {
      this.#listen();
      return;
    }
    this.#idleTimer?.refresh();
    this.#source.resume();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#leave();
    // A client that still sends must be read before it reads the answer. An error then has no consequence, but would end
    // the process without a listener.
    this.#source.on('error', () => {}).resume();
    if (!this.isWhole) this.#copy = undefined;
    callback(error);
  }

  /** Takes nothing more from the caller. */
  #leave(): void {
    clearTimeout(this.#idleTimer);
    this.#source.off('data', this.#onData).off('end', this.#onEnd).off('error', this.#onError);
  }

  #listen(): void {
    this.#isFlowing = true;
    this.#source.on('data', this.#onData).on('end', this.#onEnd).on('error', this.#onError);
    this.#idleTimer = setTimeout(this.#onIdle, this.#idleMs);
  }

  readonly #onIdle = (): void => {
    // Nobody asks for more at the moment: it is the provider that is slow.
    if (this.#source.isPaused()) this.#idleTimer?.refresh();
    else this.destroy(new AppError('request_timeout', unfinished));
  };

  readonly #onData = (chunk: Buffer): void => {
    this.#sizeBytes += chunk.length;
    this.#idleTimer?.refresh();
    if (this.#sizeBytes > this.#maxBytes) {
      this.destroy(requestBeyond());
      return;
    }
    if (this.#sizeBytes > keptLimitBytes) this.#copy = undefined;
    this.#copy?.push(chunk);
    noteSpent(chunk.length);
    if (!this.push(chunk)) this.#source.pause();
  };

  readonly #onEnd = (): void => {
    clearTimeout(this.#idleTimer);
    this.push(null);
  };

  readonly #onError = (error: Error): void => {
    this.destroy(error);
  };
}
