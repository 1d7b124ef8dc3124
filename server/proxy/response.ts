/**
 * The provider's response on its way to the caller: its head, its body and its trailers as they arrive, decoded if the caller
 * wants that, at the speed of the slower side. `forward.ts` decides whether a response is the caller's at all.
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Transform } from 'node:stream';
import {
  brotliDecompressSync,
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createZstdDecompress,
  gunzipSync,
  inflateSync,
  zstdDecompressSync,
} from 'node:zlib';
import type { ObservedAnswer } from '../connections/health/observe.ts';
import type { Connecting, ResponseController, ResponseHandler } from '../outbound/outbound.ts';
import { countSpent } from './body.ts';
import { responseTooLong } from './errors.ts';
import { firstValue, type Head } from './headers.ts';

/** Receives the events of one attempt. */
export type RelayEvents = {
  readonly response: ServerResponse;
  /** A longer body is a failure: `ticket_bytes_exceeded`. */
  readonly maxBytes: number;
  /** How long the caller may take before it reads on, in ms. */
  readonly idleMs: number;
  /** A connection is open, and the request is on its way. */
  onStart(): void;
  /** Must call `begin`, `hold`, `peek` or `discard`. */
  onHead(relay: Relay, head: Head): void;
  onInformation(relay: Relay, information: { status: number; rawHeaders: string[] }): void;
  /** The trailers as the caller gets them. */
  trailersOf(rawTrailers: readonly string[]): [string, string][];
  /** The caller has not read on in time. */
  onStall(): void;
  /** The attempt has failed, before its head or after it. */
  onFailure(relay: Relay, error: Error): void;
};

/** How a response is written after its head was passed to the caller's response. */
type Writing = {
  /** Whether the head announces the length of the body; never with a decoder. */
  readonly isLengthKnown: boolean;
  /** Makes the decoder of the body; undefined: the body is not decoded. */
  readonly makeDecoder: (() => Transform) | undefined;
  /** Gets the parts of the body as the provider sent them. */
  readonly watch: ResponseWatch | undefined;
};

/** Limits, in bytes and ms, for reading a response that is not used, which keeps its connection. */
const maxDiscardedBytes = 256 * 1024;
const maxDiscardMs = 1_000;
/** An error describes itself at the beginning of its body. */
const maxPeekedBytes = 16 * 1024;
/** A body up to this size is written together with the head, as one piece. */
const maxJoinedBytes = 8 * 1024;

type Stage =
  | 'waits' // for its head
  | 'held' // until it is decided whether the caller gets it
  | 'begun' // the head is not written yet
  | 'flows'
  | 'discarded';

/** The response to one attempt. */
export class Relay implements ResponseHandler, OutflowEvents {
  /** Whether any byte may have reached the provider: the head of a streamed body goes with its first part. */
  isSent = false;
  /** The size of the body for the caller, as the provider sent it. */
  bodyBytes = 0;
  readonly #events: RelayEvents;
  readonly #response: ServerResponse;
  #stage: Stage = 'waits';
  #controller: ResponseController | undefined;
  #connecting: Connecting | undefined;
  #writing: Writing | undefined;
  #outflow: Outflow | undefined;
  /** Parts that wait for the head to be written, or for the decision. */
  #parts: Buffer[] = [];
  #discardedBytes = 0;
  #peek: ((parts: readonly Buffer[]) => void) | undefined;
  #isAbandoned = false;
  #isEnded = false;
  #discardTimer: NodeJS.Timeout | undefined;
  #failure: Error | undefined;

  constructor(events: RelayEvents) {
    this.#events = events;
    this.#response = events.response;
  }

  /** Aborts the request to the provider. Has no effect on a complete response. */
  abandon(): void {
    this.#isAbandoned = true;
    clearTimeout(this.#discardTimer);
    if (this.#isEnded) return;
    if (this.#controller === undefined) this.#connecting?.giveUp();
    else this.#controller.abort(new Error('the response is not needed'));
  }

  /** The error that has ended a held response. */
  get failure(): Error | undefined {
    return this.#failure;
  }

  /** Holds the response until `begin` or `discard`. */
  hold(): void {
    this.#stage = 'held';
    this.#controller?.pause();
  }

  /** As `hold`, and calls `onPeek` with the first 16 KB of the body, or with all of it if it ends or breaks off before. */
  peek(onPeek: (parts: readonly Buffer[]) => void): void {
    this.#stage = 'held';
    this.#peek = onPeek;
  }

  /** Drops the response, but reads the rest of it for a moment, so that its connection can be used again. */
  discard(): void {
    const wasHeld = this.#stage === 'held';
    this.#stage = 'discarded';
    this.#parts = [];
    if (this.#isEnded || this.#isAbandoned) return;
    this.#discardTimer = setTimeout(() => this.abandon(), maxDiscardMs);
    if (wasHeld) this.#controller?.resume();
  }

  /** Passes the response to the caller. The parts of the body that are there already leave together with the head. */
  begin(writing: Writing): void {
    const wasHeld = this.#stage === 'held';
    this.#stage = 'begun';
    this.#writing = writing;
    if (writing.watch !== undefined) for (const part of this.#parts) writing.watch.add(part);
    if (wasHeld && this.#isEnded) this.#end(latin1(this.#controller?.rawTrailers));
    else if (wasHeld) this.#controller?.resume();
    // Runs after all events of the data that arrived together with the head.
    queueMicrotask(() => {
      if (this.#stage === 'begun' && !this.#isAbandoned) this.#flush();
    });
  }

  onConnecting(connecting: Connecting): void {
    this.#connecting = connecting;
  }

  onRequestStart(controller: ResponseController): void {
    this.#controller = controller;
    if (this.#isAbandoned) controller.abort(new Error('the response is not needed'));
    else this.#events.onStart();
  }

  onBodySent(): void {
    this.isSent = true;
  }

  onRequestSent(): void {
    this.isSent = true;
  }

  onResponseStart(controller: ResponseController, status: number, _headers: unknown, statusText = ''): void {
    const rawHeaders = latin1(controller.rawHeaders);
    if (status < 200) this.#events.onInformation(this, { status, rawHeaders });
    else this.#events.onHead(this, { status, statusText, rawHeaders });
  }

  onResponseData(controller: ResponseController, part: Buffer): void {
    if (this.#stage === 'discarded') {
      this.#discardedBytes += part.length;
      if (this.#discardedBytes > maxDiscardedBytes) controller.abort(new Error('not needed'));
      return;
    }
    this.bodyBytes += part.length;
    if (this.bodyBytes > this.#events.maxBytes) {
      this.onBodyFailure(responseTooLong());
      return;
    }
    this.#writing?.watch?.add(part);
    if (this.#stage === 'held') {
      // undici had read this part before the pause took effect.
      this.#parts.push(part);
      if (this.#peek !== undefined && this.bodyBytes >= maxPeekedBytes) {
        controller.pause();
        this.#endPeek();
      }
    } else if (this.#stage === 'begun' && this.#parts.length === 0) {
      this.#parts.push(part);
    } else {
      if (this.#stage === 'begun') this.#flush();
      countSpent(part.length);
      this.#write(part);
    }
  }

  onResponseEnd(controller: ResponseController): void {
    this.#isEnded = true;
    if (this.#stage === 'held') this.#endPeek();
    else if (this.#stage === 'discarded') clearTimeout(this.#discardTimer);
    else this.#end(latin1(controller.rawTrailers));
  }

  onResponseError(_controller: ResponseController, error: Error): void {
    clearTimeout(this.#discardTimer);
    if (this.#isEnded || this.#isAbandoned || this.#stage === 'discarded') return;
    this.#isEnded = true;
    if (this.#stage === 'held') {
      this.#failure = error;
      this.#endPeek();
    } else this.#events.onFailure(this, error);
  }

  #endPeek(): void {
    const onPeek = this.#peek;
    this.#peek = undefined;
    onPeek?.(this.#parts);
  }

  onDrain(): void {
    this.#controller?.resume();
  }

  onStall(): void {
    this.#events.onStall();
  }

  onBodyFailure(error: Error): void {
    this.abandon();
    this.#events.onFailure(this, error);
  }

  /** Writes the head, and the parts of the body that have arrived. */
  #flush(): void {
    this.#stage = 'flows';
    const parts = this.#parts;
    this.#parts = [];
    if (this.#response.destroyed) return;
    if (parts.length === 0) this.#response.flushHeaders();
    for (const part of parts) this.#write(part);
  }

  #write(part: Buffer): void {
    if (!this.#out().write(part)) this.#controller?.pause();
  }

  #out(): Outflow {
    const { maxBytes, idleMs } = this.#events;
    this.#outflow ??= new Outflow(this.#response, {
      events: this,
      makeDecoder: this.#writing?.makeDecoder,
      maxBytes,
      idleMs,
    });
    return this.#outflow;
  }

  #end(trailers: string[]): void {
    const [only] = this.#parts;
    if (this.#stage === 'begun' && this.#parts.length === 1 && only !== undefined && this.#isJoined(only)) {
      this.#endJoined(only);
    } else {
      if (this.#stage === 'begun' && this.#parts.length > 0) this.#flush();
      this.#stage = 'flows';
      this.#out().end(trailers.length === 0 ? [] : this.#events.trailersOf(trailers));
    }
    this.#writing?.watch?.end();
  }

  #endJoined(part: Buffer): void {
    const response = this.#response;
    this.#stage = 'flows';
    // Node joins head and body into one buffer, for one system call, if both are text; latin1 keeps every byte.
    response.end(part.toString('latin1'), 'latin1');
    const { idleMs } = this.#events;
    if (response.writableLength > 0) watchReading(response, { idleMs, onStall: () => this.onStall() });
  }

  /** Whether head and body can be written in one piece: the body is small, and its end needs no mark. */
  #isJoined(part: Buffer): boolean {
    return part.length <= maxJoinedBytes && this.#writing?.isLengthKnown === true;
  }
}

function latin1(raw: ResponseController['rawHeaders']): string[] {
  if (!Array.isArray(raw)) return [];
  const texts: string[] = new Array(raw.length);
  for (let at = 0; at < raw.length; at++) {
    const part = raw[at] as Buffer | string;
    texts[at] = typeof part === 'string' ? part : part.toString('latin1');
  }
  return texts;
}

/** Receives the events of a body that is being written. */
type OutflowEvents = {
  /** More can be written. */
  onDrain(): void;
  /** The caller has not read on in time. */
  onStall(): void;
  /** The body cannot be decoded, or is longer than `maxBytes` when decoded: `ticket_bytes_exceeded`. */
  onBodyFailure(error: Error): void;
};

/** Writes the body of a response at the speed of the caller, decoded if there is a decoder. */
export class Outflow {
  readonly #response: ServerResponse;
  readonly #events: OutflowEvents;
  readonly #makeDecoder: (() => Transform) | undefined;
  readonly #maxBytes: number;
  readonly #idleMs: number;
  #decoder: Transform | undefined;
  #decodedBytes = 0;
  #isBehind = false;

  /** `maxBytes` limits the decoded body; `idleMs` is the caller's time to read on. */
  constructor(
    response: ServerResponse,
    settings: {
      events: OutflowEvents;
      makeDecoder: (() => Transform) | undefined;
      maxBytes: number;
      idleMs: number;
    },
  ) {
    this.#response = response;
    this.#events = settings.events;
    this.#makeDecoder = settings.makeDecoder;
    this.#maxBytes = settings.maxBytes;
    this.#idleMs = settings.idleMs;
  }

  /** Returns whether more can be written at once; if not, `onDrain` is called when it can. */
  write(part: Buffer): boolean {
    if (this.#response.destroyed) return true;
    if (this.#makeDecoder === undefined) return this.#send(part);
    this.#decoder ??= this.#decodeBy(this.#makeDecoder());
    return this.#decoder.destroyed || this.#decoder.write(part);
  }

  /** Ends the body. A decoded body gets no trailers, since they describe the encoded bytes. */
  end(trailers: [string, string][]): void {
    if (this.#response.destroyed) return;
    if (this.#decoder !== undefined) {
      if (!this.#decoder.destroyed) this.#decoder.end();
      return;
    }
    if (trailers.length > 0 && this.#makeDecoder === undefined) this.#response.addTrailers(trailers);
    this.#finish();
  }

  #finish(): void {
    this.#response.end();
    if (!this.#isBehind && this.#response.writableLength > 0) this.#watchReading();
  }

  #decodeBy(decoder: Transform): Transform {
    const response = this.#response;
    decoder.on('error', (error: Error) => this.#events.onBodyFailure(error));
    decoder.on('data', (part: Buffer) => {
      this.#decodedBytes += part.length;
      if (this.#decodedBytes > this.#maxBytes) {
        decoder.destroy();
        this.#events.onBodyFailure(responseTooLong());
      } else if (!response.destroyed && !this.#send(part)) decoder.pause();
    });
    decoder.on('drain', () => this.#events.onDrain());
    decoder.on('end', () => response.destroyed || this.#finish());
    response.on('close', () => decoder.destroy());
    return decoder;
  }

  #send(part: Buffer): boolean {
    if (this.#response.write(part)) return true;
    if (!this.#isBehind) {
      this.#response.on('drain', () => {
        if (this.#decoder === undefined) this.#events.onDrain();
        else this.#decoder.resume();
      });
      this.#watchReading();
    }
    return false;
  }

  #watchReading(): void {
    this.#isBehind = true;
    watchReading(this.#response, { idleMs: this.#idleMs, onStall: () => this.#events.onStall() });
  }
}

const maxCheckMs = 1_000;

/**
 * To be called when data waits for the caller. Calls `onStall` when the caller has read nothing for `idleMs`, or up to a
 * second longer, and at each further check until the response is closed.
 */
export function watchReading(
  response: ServerResponse,
  { idleMs, onStall }: { idleMs: number; onStall: () => void },
): void {
  const { socket } = response;
  if (socket === null) return;
  let sentBytes = bytesSent(socket);
  let readAt = performance.now();
  const check = () => {
    const nowSentBytes = bytesSent(socket);
    if (nowSentBytes !== sentBytes || response.writableLength === 0) {
      sentBytes = nowSentBytes;
      readAt = performance.now();
    } else if (performance.now() - readAt >= idleMs) onStall();
  };
  const timer = setInterval(check, Math.min(maxCheckMs, Math.ceil(idleMs / 4)));
  response.once('close', () => clearInterval(timer));
}

/** The number of bytes that the kernel has accepted. */
function bytesSent(socket: Socket): number {
  return socket.bytesWritten - socket.writableLength;
}

type Coding = {
  stream(): Transform;
  /** Decodes bytes that may be cut off. Throws if they are invalid, or longer than `maxOutputLength` when decoded. */
  decode(bytes: Buffer, options: { maxOutputLength: number }): Buffer;
};

// A frame may request a window of 128 MB. Over HTTP none may be larger than 8 MB (RFC 9659 §3).
const zstd = { params: { [constants.ZSTD_d_windowLogMax]: 23 } };

const gzip: Coding = {
  stream: () => createGunzip(),
  decode: (bytes, options) => gunzipSync(bytes, { ...options, finishFlush: constants.Z_SYNC_FLUSH }),
};
/**
 * The content codings that can be decoded, by their names in Content-Encoding (RFC 9110 §8.4.1, RFC 7932, RFC 9659). Each
 * uses a few MB of memory at most, for any input.
 */
const codings: Readonly<Record<string, Coding>> = {
  gzip,
  'x-gzip': gzip,
  deflate: {
    stream: () => createInflate(),
    decode: (bytes, options) => inflateSync(bytes, { ...options, finishFlush: constants.Z_SYNC_FLUSH }),
  },
  br: {
    stream: () => createBrotliDecompress(),
    decode: (bytes, options) =>
      brotliDecompressSync(bytes, { ...options, finishFlush: constants.BROTLI_OPERATION_FLUSH }),
  },
  zstd: {
    stream: () => createZstdDecompress(zstd),
    decode: (bytes, options) =>
      zstdDecompressSync(bytes, { ...options, ...zstd, finishFlush: constants.ZSTD_e_flush }),
  },
};

/** The coding of a body; undefined: none, several, or an unknown one. */
export function codingOf(rawHeaders: readonly string[]): Coding | undefined {
  let named: string | undefined;
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    if (rawHeaders[at]?.toLowerCase() !== 'content-encoding') continue;
    if (named !== undefined) return undefined;
    named = rawHeaders[at + 1]?.trim().toLowerCase();
  }
  return named !== undefined && Object.hasOwn(codings, named) ? codings[named] : undefined;
}

/**
 * Makes the decoder of a response's body, to be called at the first byte: an empty body is not valid encoded data.
 * Undefined if there is nothing to decode: no body, no coding, several or unknown ones, or a part of a body (206), which
 * cannot be decoded alone.
 */
export function decoderOf({ status, rawHeaders }: Head, method: string): (() => Transform) | undefined {
  if (method === 'HEAD' || status === 204 || status === 206 || status === 304) return undefined;
  if (Number(firstValue(rawHeaders, 'content-length') ?? Number.NaN) === 0) return undefined;
  return codingOf(rawHeaders)?.stream;
}

const maxSampledBytes = 16 * 1024;
/** Error bodies do not compress better than this. */
const maxDecodedBytes = 64 * maxSampledBytes;

/** The part of a response that is reported. */
type Sampled = Omit<ObservedAnswer, 'url'>;

/** A response and the first 16 KB of its body; below status 400 only its head. */
export class ResponseSample {
  readonly #head: Head;
  readonly #parts: Buffer[] = [];
  #leftBytes: number;

  constructor(head: Head) {
    this.#head = head;
    this.#leftBytes = head.status < 400 ? 0 : maxSampledBytes;
  }

  /** Whether no more bytes are kept. */
  get isFull(): boolean {
    return this.#leftBytes === 0;
  }

  add(part: Buffer): void {
    if (this.#leftBytes === 0) return;
    // A copy: the part itself belongs to a larger buffer, which would stay in memory with it.
    const kept = Buffer.from(part.subarray(0, this.#leftBytes));
    this.#leftBytes -= kept.length;
    this.#parts.push(kept);
  }

  sampled(): Sampled {
    const { status, rawHeaders } = this.#head;
    const headers: Record<string, string> = {};
    for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
      headers[(rawHeaders[at] as string).toLowerCase()] ??= rawHeaders[at + 1] as string;
    }
    return { status, headers, body: this.#decoded() };
  }

  /** Error bodies are small, so their encoded form is usually complete. A body that cannot be decoded stays encoded. */
  #decoded(): Buffer {
    const bytes = Buffer.concat(this.#parts);
    const coding = bytes.length === 0 ? undefined : codingOf(this.#head.rawHeaders);
    try {
      const text = coding?.decode(bytes, { maxOutputLength: maxDecodedBytes }) ?? bytes;
      return text.subarray(0, maxSampledBytes);
    } catch {
      return bytes;
    }
  }
}

/**
 * Reports a response to `onSample`, once: when the sample is full, when the response ends, or when its call is over. A
 * slow reader therefore does not delay the report of a refusal.
 */
export class ResponseWatch {
  readonly #sample: ResponseSample;
  #onSample: ((sampled: Sampled) => void) | undefined;

  constructor(head: Head, onSample: (sampled: Sampled) => void) {
    this.#sample = new ResponseSample(head);
    this.#onSample = onSample;
  }

  add(part: Buffer): void {
    this.#sample.add(part);
    if (this.#sample.isFull) this.end();
  }

  /** Reports the sample as it is. Later calls have no effect. */
  end(): void {
    const onSample = this.#onSample;
    this.#onSample = undefined;
    onSample?.(this.#sample.sampled());
  }
}
