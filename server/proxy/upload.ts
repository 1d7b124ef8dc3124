import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';

/** A body up to this size can be sent a second time. */
const replayLimitBytes = 1024 * 1024;

/** Whether the message has a body (RFC 9112 §6.3). */
export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/**
 * A body that is announced to be small enough to be sent again, read to its end; undefined, and nothing read, where it is
 * longer or of unknown length. Throws what the caller's connection ends with.
 */
export async function readWhole(request: IncomingMessage): Promise<Buffer | undefined> {
  const { 'content-length': length } = request.headers;
  if (length === undefined || Number(length) > replayLimitBytes) return undefined;
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
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
  #copy: Buffer[] | undefined = [];
  #sizeBytes = 0;
  #isFlowing = false;

  constructor(source: IncomingMessage) {
    super({ highWaterMark: 64 * 1024 });
    this.#source = source;
  }

  /** What has gone by so far. */
  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** Whether the whole body has gone by and can be sent again. */
  get isKept(): boolean {
    return this.#copy !== undefined && this.#isWhole();
  }

  /** The whole body, once it has all gone by and was small enough. */
  copy(): Buffer | undefined {
    return this.#copy !== undefined && this.#isWhole() ? Buffer.concat(this.#copy) : undefined;
  }

  #isWhole(): boolean {
    return this.#source.complete && this.#source.readableLength === 0;
  }

  override _read(): void {
    if (!this.#isFlowing) this.#listen();
    else this.#source.resume();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#source.off('data', this.#onData).off('end', this.#onEnd).off('error', this.#onError);
    // Whoever still sends is waiting to be read before it reads the answer. An error then means nothing more, but
    // would end the process without a listener.
    this.#source.on('error', () => {}).resume();
    if (!this.#isWhole()) this.#copy = undefined;
    callback(error);
  }

  #listen(): void {
    this.#isFlowing = true;
    this.#source.on('data', this.#onData).on('end', this.#onEnd).on('error', this.#onError);
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#sizeBytes += chunk.length;
    if (this.#sizeBytes > replayLimitBytes) this.#copy = undefined;
    this.#copy?.push(chunk);
    if (!this.push(chunk)) this.#source.pause();
  };

  readonly #onEnd = (): void => {
    this.push(null);
  };

  readonly #onError = (error: Error): void => {
    this.destroy(error);
  };
}
