/**
 * Request bodies on their way to the provider: streamed at the speed of the slower side, kept while they are small enough to
 * be sent again, and given the credentials if the provider's definition wants them in the body.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { AppError } from '../errors.ts';
import { BodyBudget } from '../http/limits/body-memory.ts';
import { decodedName, pairsOf, plainName } from '../http/query.ts';
import { requestTooLong } from './errors.ts';
import { firstValue, isChunked, withBodyLength } from './headers.ts';

/** A body up to this size is kept: it can be sent again, or get the credentials. */
const maxKeptBytes = 1024 * 1024;

/** A signature needs the whole body first. The largest payload of AWS Lambda has this size. */
const maxSignedBytes = 6 * 1024 * 1024;
/** Of all calls together, until each has its response. */
const signedBodies = new BodyBudget(64 * 1024 * 1024);

function tooLongToSign(): AppError {
  return new AppError('invalid_body', 'The proxy signs the body of this call: send at most 6 MiB.');
}

function tooManyToSign(): AppError {
  const message = 'The proxy signs too many large bodies at the same time.';
  return new AppError('overloaded', message, { retryAfterS: 1 });
}

/** Why the head of the request rules out that its body is sent on; undefined: it can be. */
export function bodyError({ headers }: IncomingMessage, maxBytes: number): AppError | undefined {
  const { 'content-length': length = 0, 'transfer-encoding': coding } = headers;
  // Node decodes only the last of several codings: the provider would read the others as the body.
  if (coding !== undefined && !isChunked(coding)) return new AppError('unsupported_transfer_coding');
  return Number(length) > maxBytes ? requestTooLong() : undefined;
}

/** Whether the announced length is small enough for the body to be kept. */
export function isShort({ headers }: IncomingMessage): boolean {
  return Number(headers['content-length'] ?? Number.POSITIVE_INFINITY) <= maxKeptBytes;
}

type Limits = {
  /** A longer body fails with `ticket_bytes_exceeded`, and no more of it is sent. */
  readonly maxBytes: number;
  /** A caller that sends nothing for so long (ms), while more is wanted, fails with `request_timeout`. */
  readonly idleMs: number;
};

/** A body on its way to the provider: a stream, or kept whole if it may be sent again. */
export class OutgoingBody {
  #content: Buffer | Upload;

  private constructor(content: Buffer | Upload) {
    this.#content = content;
  }

  /** Streams the body. A short one is kept meanwhile, and can be sent again after it has passed. */
  static streamed(request: IncomingMessage, limits: Limits): OutgoingBody {
    return new OutgoingBody(new Upload(request, limits));
  }

  /**
   * Reads the whole body first. Rejects with `invalid_body` if it is longer than 1 MB, or 6 MB if it is to be signed; with
   * `overloaded` if those that are to be signed exceed 64 MB; with the errors of `Limits`, and with the error that ends the
   * caller's connection.
   */
  static async whole(
    request: IncomingMessage,
    {
      isSigned,
      response,
      ...limits
    }: Limits & { readonly isSigned: boolean; readonly response: ServerResponse },
  ): Promise<OutgoingBody> {
    const upload = new Upload(request, limits);
    const chunks: Buffer[] = [];
    let heldBytes = 0;
    if (isSigned) response.once('close', () => signedBodies.add(-heldBytes));
    for await (const chunk of upload) {
      if (isSigned && !response.closed) {
        const { length } = chunk as Buffer;
        if (signedBodies.isFullFor(length, heldBytes)) throw tooManyToSign();
        heldBytes += length;
        signedBodies.add(length);
      }
      if (upload.sizeBytes > (isSigned ? maxSignedBytes : maxKeptBytes))
        throw isSigned ? tooLongToSign() : unsuitableBody('with at most 1 MB');
      chunks.push(chunk as Buffer);
    }
    return new OutgoingBody(Buffer.concat(chunks));
  }

  get content(): Buffer | Upload {
    return this.#content;
  }

  get sizeBytes(): number {
    return this.#content instanceof Upload ? this.#content.sizeBytes : this.#content.length;
  }

  /** Whether the provider can have received all of it. */
  get isWhole(): boolean {
    return !(this.#content instanceof Upload) || this.#content.isWhole;
  }

  /** Whether it can be sent again now. */
  get isRepeatable(): boolean {
    return !(this.#content instanceof Upload) || (this.#content.isKept && this.#content.isWhole);
  }

  /** Stops keeping the body: it is not sent again. */
  forget(): void {
    if (this.#content instanceof Upload) this.#content.forget();
  }

  /** Replaces the stream that has passed by its copy, so that the body can be sent again. */
  rewind(): void {
    if (this.#content instanceof Upload) this.#content = this.#content.copy() ?? Buffer.alloc(0);
  }

  /** Reads the rest of a short body for another attempt; see `Upload.rest`. Returns whether the body is whole then. */
  async complete(gapMs: number): Promise<boolean> {
    if (!(this.#content instanceof Upload)) return true;
    const bytes = await this.#content.rest(gapMs);
    if (bytes !== undefined) this.#content = bytes;
    return bytes !== undefined;
  }

  /** Whether `complete` can succeed: the announced length is short, and all of the body so far is kept. */
  mayComplete(request: IncomingMessage): boolean {
    return this.isRepeatable || (this.#content instanceof Upload && this.#content.isKept && isShort(request));
  }
}

/**
 * The caller's body as a stream. It stands between caller and sender so that the sender may destroy it without closing the
 * caller's connection, which still carries the response.
 */
class Upload extends Readable {
  readonly #source: IncomingMessage;
  readonly #maxBytes: number;
  readonly #idleMs: number;
  #idleTimer: NodeJS.Timeout | undefined;
  #copy: Buffer[] | undefined = [];
  #sizeBytes = 0;
  #isFlowing = false;

  constructor(source: IncomingMessage, { maxBytes, idleMs }: Limits) {
    super({ highWaterMark: 64 * 1024 });
    this.#source = source;
    this.#maxBytes = maxBytes;
    this.#idleMs = idleMs;
  }

  /** The number of bytes that have passed. */
  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** Whether there is a copy of all bytes that have passed. */
  get isKept(): boolean {
    return this.#copy !== undefined;
  }

  forget(): void {
    this.#copy = undefined;
  }

  /** The whole body, if it was short enough and all of it has passed. */
  copy(): Buffer | undefined {
    return this.#copy !== undefined && this.isWhole ? Buffer.concat(this.#copy) : undefined;
  }

  /**
   * The whole body, for another attempt: the stream ends here, and the rest is read as fast as the caller sends it.
   * Undefined if the body is not kept, or if nothing arrives for `gapMs`: the caller may want the response before it
   * sends more. Rejects with `ticket_bytes_exceeded`, and with the error that ends the caller's connection.
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
      if (this.#sizeBytes > this.#maxBytes) reject(requestTooLong());
      else if (this.#sizeBytes > maxKeptBytes) resolve(undefined);
    };
    const onEnd = () => resolve(Buffer.concat(parts));
    source.on('data', onData).on('end', onEnd).on('error', reject).resume();
    return promise.finally(() => {
      clearTimeout(timer);
      source.off('data', onData).off('end', onEnd).off('error', reject);
      source.on('error', () => {}).resume();
    });
  }

  /** Whether all of the body has passed. */
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
    // A client that still sends reads the response only after that. The listener keeps an error of the source, which has no
    // effect any more, from ending the process.
    this.#source.on('error', () => {}).resume();
    if (!this.isWhole) this.#copy = undefined;
    callback(error);
  }

  /** Stops reading from the caller. */
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
    // A paused source means that the provider is slow, not the caller.
    if (this.#source.isPaused()) this.#idleTimer?.refresh();
    else {
      const message = 'The body was not completed in time. The provider has received at most a part of it.';
      this.destroy(new AppError('request_timeout', message));
    }
  };

  readonly #onData = (chunk: Buffer): void => {
    this.#sizeBytes += chunk.length;
    this.#idleTimer?.refresh();
    if (this.#sizeBytes > this.#maxBytes) {
      this.destroy(requestTooLong());
      return;
    }
    if (this.#sizeBytes > maxKeptBytes) this.#copy = undefined;
    this.#copy?.push(chunk);
    countSpent(chunk.length);
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

/** A young collection runs after each portion of this size, from all calls together. */
const portionBytes = 16 * 1024 * 1024;
let spentBytes = 0;

/**
 * Counts a part of a body that is on its way out, and collects such garbage portion by portion, if Node was started with
 * `--expose-gc`.
 *
 * Each part is a buffer of up to 64 KB that is garbage a moment later. V8 counts only its small handle, so the young
 * generation fills slowly, and 64 MB of buffers may wait for an old collection: that takes 45 MB of memory, and twice the
 * processor time, since each part then needs pages that are not in the cache. A young collection takes one or two
 * milliseconds and frees them all. See docs/decisions/0014.
 */
export function countSpent(sizeBytes: number): void {
  spentBytes += sizeBytes;
  if (spentBytes < portionBytes) return;
  spentBytes = 0;
  globalThis.gc?.({ type: 'minor', execution: 'sync' });
}

/** Credentials as a field of a body. */
type CredentialField = { readonly name: string; readonly value: string };

const formType = 'application/x-www-form-urlencoded';

/**
 * The message with the credentials in its body. The field is inserted into the bytes as they are: numbers, the order of
 * keys and whitespace do not change. Throws `invalid_body` if the body is neither a form nor a JSON object, is encoded, or
 * has a field of that name: without the field the provider would get an anonymous call.
 */
export function withCredentialField(
  { headers, body }: { headers: readonly string[]; body: Buffer },
  field: CredentialField,
): { headers: string[]; body: Buffer } {
  const type = firstValue(headers, 'content-type')?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  if (firstValue(headers, 'content-encoding') !== undefined)
    throw unsuitableBody('without a Content-Encoding');
  const filled = isJson(type) ? inObject(body, field) : type === formType ? inForm(body, field) : undefined;
  if (filled === undefined) throw unsuitableBody(`as \`${formType}\` or \`application/json\``);
  return { headers: withBodyLength(headers, filled.length), body: filled };
}

function isJson(type: string): boolean {
  return type === 'application/json' || /^application\/[^ ]+\+json$/.test(type);
}

function inForm(body: Buffer, { name, value }: CredentialField): Buffer {
  const names = body.length === 0 ? [] : pairsOf(body.toString('latin1')).map(decodedName);
  requireAbsent(name, names);
  const pair = `${encodeURIComponent(name)}=${encodeURIComponent(value)}`;
  return Buffer.concat([Buffer.from(body.length === 0 ? pair : `${pair}&`), body]);
}

function inObject(body: Buffer, { name, value }: CredentialField): Buffer {
  const names = keysOf(body);
  requireAbsent(name, names);
  const member = `${JSON.stringify(name)}:${JSON.stringify(value)}${names.length === 0 ? '' : ','}`;
  // Only whitespace precedes the brace.
  const start = body.indexOf('{') + 1;
  return Buffer.concat([body.subarray(0, start), Buffer.from(member), body.subarray(start)]);
}

function keysOf(body: Buffer): string[] {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body);
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return Object.keys(value);
  } catch {
    // Not JSON in UTF-8.
  }
  throw unsuitableBody('as a JSON object in UTF-8');
}

/** Servers differ in which of two fields they use, and in which spellings they accept for a name. */
function requireAbsent(name: string, names: readonly string[]): void {
  const wanted = plainName(name);
  if (names.some((given) => plainName(given) === wanted))
    throw unsuitableBody(`without your own field \`${name}\``);
}

function unsuitableBody(how: string): AppError {
  return new AppError(
    'invalid_body',
    `The proxy adds this provider's credentials to the body: send the body ${how}.`,
  );
}
