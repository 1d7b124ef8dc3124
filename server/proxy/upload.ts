import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { AppError } from '../errors.ts';
import { isChunked } from './headers.ts';
import { noteSpent } from './spent-buffers.ts';
import { requestBeyond } from './ticket-limits.ts';

/** A body up to this size is kept: it can be sent a second time, or be given the credentials. */
const keptLimitBytes = 1024 * 1024;

const unfinished = 'The body stopped coming before its end. The provider has got a part of it at most.';

/** Whether the message has a body (RFC 9112 §6.3). */
export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/** Why the body cannot go on, as far as its head tells; undefined: it can. */
export function faultOfBody({ headers }: IncomingMessage, mostBytes: number): AppError | undefined {
  const { 'content-length': length = 0, 'transfer-encoding': coding } = headers;
  // Of several codings Node takes off the last alone: the provider would read the rest as the body.
  if (coding !== undefined && !isChunked(coding)) return new AppError('unsupported_transfer_coding');
  return Number(length) > mostBytes ? requestBeyond() : undefined;
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
 * Stands between the two so that whoever sends it may destroy it without closing the caller's connection, which still
 * has to carry the answer. Keeps a copy while the body is small enough to be sent again.
 */
export class Upload extends Readable {
  readonly #source: IncomingMessage;
  readonly #mostBytes: number;
  readonly #idleMs: number;
  #idleTimer: NodeJS.Timeout | undefined;
  #copy: Buffer[] | undefined = [];
  #sizeBytes = 0;
  #isFlowing = false;

  /**
   * A body of more than `mostBytes` fails with `ticket_bytes_exceeded`, and no more of it goes by; one of which nothing
   * comes for `idleMs`, though it is waited for, with `request_timeout`.
   */
  constructor(source: IncomingMessage, { mostBytes, idleMs }: { mostBytes: number; idleMs: number }) {
    super({ highWaterMark: 64 * 1024 });
    this.#source = source;
    this.#mostBytes = mostBytes;
    this.#idleMs = idleMs;
  }

  /** What has gone by so far. */
  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** Whether the whole body has gone by and can be sent again. */
  get isKept(): boolean {
    return this.#copy !== undefined && this.isWhole;
  }

  /** The whole body, once it has all gone by and was small enough. */
  copy(): Buffer | undefined {
    return this.#copy !== undefined && this.isWhole ? Buffer.concat(this.#copy) : undefined;
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
    clearTimeout(this.#idleTimer);
    this.#source.off('data', this.#onData).off('end', this.#onEnd).off('error', this.#onError);
    // Whoever still sends is waiting to be read before it reads the answer. An error then means nothing more, but
    // would end the process without a listener.
    this.#source.on('error', () => {}).resume();
    if (!this.isWhole) this.#copy = undefined;
    callback(error);
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
    if (this.#sizeBytes > this.#mostBytes) {
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
