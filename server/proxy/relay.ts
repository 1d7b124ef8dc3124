/**
 * One attempt's answer on its way to the caller: its head, its bytes with back-pressure, its trailers, and how it ends.
 * Whether an answer is the caller's at all is judged in `forward.ts`.
 */
import type { ServerResponse } from 'node:http';
import type { Transform, Writable } from 'node:stream';
import type { AnswerController, AnswerHandler } from '../outbound.ts';
import { noteSpent } from './spent-buffers.ts';
import { answerBeyond } from './ticket-limits.ts';

/** The head of an answer. */
export type Head = { readonly status: number; readonly statusText: string; readonly rawHeaders: string[] };

/** Who is told what becomes of an attempt. */
export type RelayEnds = {
  readonly response: ServerResponse;
  /** A longer body is a failure: `ticket_bytes_exceeded`. */
  readonly mostBytes: number;
  /** How long the caller may take before it reads on, in ms. */
  readonly idleMs: number;
  /** A connection is open and the request on its way. */
  onStart(): void;
  /** Says with `begin`, `hold` or `discard` what happens to the answer. */
  onHead(relay: Relay, head: Head): void;
  onInformation(relay: Relay, information: { status: number; rawHeaders: string[] }): void;
  /** What of them is the caller's. */
  trailersOf(rawTrailers: readonly string[]): [string, string][];
  /** The caller has not read on in time. */
  onStall(): void;
  /** The attempt has failed, before its head or behind it. */
  onFailure(relay: Relay, error: Error): void;
};

/** How an answer is written once it is the caller's and its head has been handed to the response. */
export type Writing = {
  /** Whether the head says how long the body is. */
  readonly isLengthKnown: boolean;
  /** Decodes the body on its way; undefined: it goes as it is. */
  readonly decoder: Transform | undefined;
  /** Is shown the body's parts as the provider sent them. */
  readonly watch: ((part: Buffer) => void) | undefined;
};

/** More of a refused answer is not read just to keep its connection. */
const mostDiscardedBytes = 256 * 1024;
/** What an error has to say stands at its beginning. */
const mostPeekedBytes = 16 * 1024;
/** Up to this size a body is written together with the head, as one piece. */
const mostJoinedBytes = 8 * 1024;

type Stage =
  | 'waits' // for its head
  | 'held' // until it is known whether it is the answer
  | 'begun' // nothing of it has left yet
  | 'flows'
  | 'discarded';

export class Relay implements AnswerHandler {
  /** Whether any byte may have reached the provider. */
  isSent = false;
  /** Of the body that goes to the caller, as the provider sent it. */
  bodyBytes = 0;
  readonly #ends: RelayEnds;
  readonly #response: ServerResponse;
  #stage: Stage = 'waits';
  #controller: AnswerController | undefined;
  #writing: Writing | undefined;
  #out: Writable;
  /** Parts that wait for the head to be written, or for the judgement. */
  #parts: Buffer[] = [];
  #discardedBytes = 0;
  #peek: ((parts: readonly Buffer[]) => void) | undefined;
  #isAbandoned = false;
  #isEnded = false;
  #isListening = false;
  #stallTimer: NodeJS.Timeout | undefined;
  #failure: Error | undefined;

  constructor(ends: RelayEnds) {
    this.#ends = ends;
    this.#response = ends.response;
    this.#out = ends.response;
  }

  /** Nobody waits for the answer any more. Harmless once it is complete. */
  abandon(): void {
    this.#isAbandoned = true;
    clearTimeout(this.#stallTimer);
    if (!this.#isEnded) this.#controller?.abort(new Error('nobody waits for the answer'));
  }

  /** What an answer that is held back has ended with, where it broke off meanwhile. */
  get failure(): Error | undefined {
    return this.#failure;
  }

  /** Keeps the answer back until `begin` or `discard`. */
  hold(): void {
    this.#stage = 'held';
    this.#controller?.pause();
  }

  /** As `hold`, and tells once the first 16 KB of the body, or what comes of it where it is shorter or breaks off. */
  peek(tell: (parts: readonly Buffer[]) => void): void {
    this.#stage = 'held';
    this.#peek = tell;
  }

  /** Reads the rest of an answer that nobody gets, so that its connection can be used again. */
  discard(): void {
    const wasHeld = this.#stage === 'held';
    this.#stage = 'discarded';
    this.#parts = [];
    if (wasHeld && !this.#isEnded) this.#controller?.resume();
  }

  /** Hands the answer to the caller: what of its body has come already leaves together with its head. */
  begin(writing: Writing): void {
    const wasHeld = this.#stage === 'held';
    this.#stage = 'begun';
    this.#writing = writing;
    if (writing.decoder !== undefined) this.#decodeBy(writing.decoder);
    if (writing.watch !== undefined) for (const part of this.#parts) writing.watch(part);
    if (wasHeld && this.#isEnded) this.#end(latin1(this.#controller?.rawTrailers));
    else if (wasHeld) this.#controller?.resume();
    // Runs after everything that arrived together with the head.
    queueMicrotask(() => {
      if (this.#stage === 'begun' && !this.#isAbandoned) this.#flush();
    });
  }

  onRequestStart(controller: AnswerController): void {
    this.#controller = controller;
    if (this.#isAbandoned) {
      controller.abort(new Error('nobody waits for the answer'));
      return;
    }
    this.isSent = true;
    this.#ends.onStart();
  }

  onResponseStart(controller: AnswerController, status: number, _headers: unknown, statusText = ''): void {
    const rawHeaders = latin1(controller.rawHeaders);
    if (status < 200) this.#ends.onInformation(this, { status, rawHeaders });
    else this.#ends.onHead(this, { status, statusText, rawHeaders });
  }

  onResponseData(controller: AnswerController, part: Buffer): void {
    if (this.#stage === 'discarded') {
      this.#discardedBytes += part.length;
      if (this.#discardedBytes > mostDiscardedBytes) controller.abort(new Error('not needed'));
      return;
    }
    this.bodyBytes += part.length;
    if (this.bodyBytes > this.#ends.mostBytes) {
      this.#exceed();
      return;
    }
    this.#writing?.watch?.(part);
    if (this.#stage === 'held') {
      // What had been read before the pause took hold.
      this.#parts.push(part);
      if (this.#peek !== undefined && this.bodyBytes >= mostPeekedBytes) {
        controller.pause();
        this.#tellPeek();
      }
    } else if (this.#stage === 'begun' && this.#parts.length === 0) {
      this.#parts.push(part);
    } else {
      if (this.#stage === 'begun') this.#flush();
      noteSpent(part.length);
      this.#write(part);
    }
  }

  onResponseEnd(controller: AnswerController): void {
    this.#isEnded = true;
    if (this.#stage === 'held') this.#tellPeek();
    else if (this.#stage !== 'discarded') this.#end(latin1(controller.rawTrailers));
  }

  onResponseError(_controller: AnswerController, error: Error): void {
    if (this.#isEnded || this.#isAbandoned || this.#stage === 'discarded') return;
    this.#isEnded = true;
    if (this.#stage === 'held') {
      this.#failure = error;
      this.#tellPeek();
    } else this.#ends.onFailure(this, error);
  }

  #tellPeek(): void {
    const tell = this.#peek;
    this.#peek = undefined;
    tell?.(this.#parts);
  }

  /** Lets the head go, and what has come of the body. */
  #flush(): void {
    this.#stage = 'flows';
    const parts = this.#parts;
    this.#parts = [];
    if (this.#response.destroyed) return;
    if (parts.length === 0) this.#response.flushHeaders();
    for (const part of parts) this.#write(part);
  }

  #decodeBy(decoder: Transform): void {
    this.#out = decoder;
    decoder.on('error', (error: Error) => {
      this.abandon();
      this.#ends.onFailure(this, error);
    });
    this.#limitDecoded(decoder);
    decoder.pipe(this.#response);
    this.#response.on('close', () => decoder.destroy());
  }

  /** A body that is small as it comes may be large decoded. */
  #limitDecoded(decoder: Transform): void {
    const { mostBytes } = this.#ends;
    if (mostBytes === Number.POSITIVE_INFINITY) return;
    let decodedBytes = 0;
    decoder.on('data', (part: Buffer) => {
      decodedBytes += part.length;
      if (decodedBytes > mostBytes) this.#exceed();
    });
  }

  #exceed(): void {
    this.abandon();
    this.#ends.onFailure(this, answerBeyond());
  }

  #write(part: Buffer): void {
    const out = this.#out;
    if (out.destroyed || out.write(part)) return;
    this.#controller?.pause();
    this.#stallTimer ??= setTimeout(() => this.#ends.onStall(), this.#ends.idleMs);
    if (this.#isListening) return;
    this.#isListening = true;
    out.on('drain', () => {
      clearTimeout(this.#stallTimer);
      this.#stallTimer = undefined;
      this.#controller?.resume();
    });
  }

  #end(trailers: string[]): void {
    const response = this.#response;
    if (this.#stage === 'begun') {
      const [only] = this.#parts;
      this.#stage = 'flows';
      if (this.#parts.length === 1 && only !== undefined && this.#isJoined(only)) {
        // Head and body as one text are one buffer for one system call; latin1 keeps every byte.
        response.end(only.toString('latin1'), 'latin1');
        return;
      }
      if (this.#parts.length > 0) this.#flush();
    }
    if (this.#out.destroyed) return;
    if (trailers.length > 0 && this.#out === response) response.addTrailers(this.#ends.trailersOf(trailers));
    this.#out.end();
  }

  /** Whether head and body can go out in one piece: it is small, and its end need not be marked. */
  #isJoined(part: Buffer): boolean {
    return (
      this.#out === this.#response && part.length <= mostJoinedBytes && this.#writing?.isLengthKnown === true
    );
  }
}

function latin1(raw: AnswerController['rawHeaders']): string[] {
  if (!Array.isArray(raw)) return [];
  const texts: string[] = new Array(raw.length);
  for (let at = 0; at < raw.length; at++) {
    const part = raw[at] as Buffer | string;
    texts[at] = typeof part === 'string' ? part : part.toString('latin1');
  }
  return texts;
}
