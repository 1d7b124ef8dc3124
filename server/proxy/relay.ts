/**
 * One attempt's answer: its head, its parts and its trailers as they arrive, and how it ends. Whether an answer is the
 * caller's at all is judged in `forward.ts`; how its body reaches the caller is `outflow.ts`.
 */
import type { ServerResponse } from 'node:http';
import type { Transform } from 'node:stream';
import type { AnswerController, AnswerHandler, Connecting } from '../outbound.ts';
import { Outflow, type OutflowEnds, watchReading } from './outflow.ts';
import type { ResponseWatch } from './response-sample.ts';
import { noteSpent } from './spent-buffers.ts';
import { answerBeyond } from './ticket-limits.ts';

/** The head of an answer. */
export type Head = { readonly status: number; readonly statusText: string; readonly rawHeaders: string[] };

/** Who is told what becomes of an attempt. */
export type RelayEnds = {
  readonly response: ServerResponse;
  /** A longer body is a failure: `ticket_bytes_exceeded`. */
  readonly maxBytes: number;
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
type Writing = {
  /** Whether the head says how long the body is; never with a decoder. */
  readonly isLengthKnown: boolean;
  /** Makes what decodes the body on its way; undefined: it goes as it is. */
  readonly makeDecoder: (() => Transform) | undefined;
  /** Is shown the body's parts as the provider sent them. */
  readonly watch: ResponseWatch | undefined;
};

/** More of a refused answer is not read, and for no longer (ms), just to keep its connection. */
const maxDiscardedBytes = 256 * 1024;
const longestDiscardMs = 1_000;
/** What an error has to say stands at its beginning. */
const maxPeekedBytes = 16 * 1024;
/** Up to this size a body is written together with the head, as one piece. */
const maxJoinedBytes = 8 * 1024;

type Stage =
  | 'waits' // for its head
  | 'held' // until it is known whether it is the answer
  | 'begun' // nothing of it has left yet
  | 'flows'
  | 'discarded';

export class Relay implements AnswerHandler, OutflowEnds {
  /** Whether any byte may have reached the provider: the head of a streamed body goes with its first part. */
  isSent = false;
  /** Of the body that goes to the caller, as the provider sent it. */
  bodyBytes = 0;
  readonly #ends: RelayEnds;
  readonly #response: ServerResponse;
  #stage: Stage = 'waits';
  #controller: AnswerController | undefined;
  #connecting: Connecting | undefined;
  #writing: Writing | undefined;
  #outflow: Outflow | undefined;
  /** Parts that wait for the head to be written, or for the judgement. */
  #parts: Buffer[] = [];
  #discardedBytes = 0;
  #peek: ((parts: readonly Buffer[]) => void) | undefined;
  #isAbandoned = false;
  #isEnded = false;
  #discardTimer: NodeJS.Timeout | undefined;
  #failure: Error | undefined;

  constructor(ends: RelayEnds) {
    this.#ends = ends;
    this.#response = ends.response;
  }

  /** Nobody waits for the answer any more. Harmless once it is complete. */
  abandon(): void {
    this.#isAbandoned = true;
    clearTimeout(this.#discardTimer);
    if (this.#isEnded) return;
    if (this.#controller === undefined) this.#connecting?.giveUp();
    else this.#controller.abort(new Error('nobody waits for the answer'));
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

  /** Reads the rest of an answer that nobody gets, for a moment, so that its connection can be used again. */
  discard(): void {
    const wasHeld = this.#stage === 'held';
    this.#stage = 'discarded';
    this.#parts = [];
    if (this.#isEnded || this.#isAbandoned) return;
    this.#discardTimer = setTimeout(() => this.abandon(), longestDiscardMs);
    if (wasHeld) this.#controller?.resume();
  }

  /** Hands the answer to the caller: what of its body has come already leaves together with its head. */
  begin(writing: Writing): void {
    const wasHeld = this.#stage === 'held';
    this.#stage = 'begun';
    this.#writing = writing;
    if (writing.watch !== undefined) for (const part of this.#parts) writing.watch.add(part);
    if (wasHeld && this.#isEnded) this.#end(latin1(this.#controller?.rawTrailers));
    else if (wasHeld) this.#controller?.resume();
    // Runs after everything that arrived together with the head.
    queueMicrotask(() => {
      if (this.#stage === 'begun' && !this.#isAbandoned) this.#flush();
    });
  }

  onConnecting(connecting: Connecting): void {
    this.#connecting = connecting;
  }

  onRequestStart(controller: AnswerController): void {
    this.#controller = controller;
    if (this.#isAbandoned) controller.abort(new Error('nobody waits for the answer'));
    else this.#ends.onStart();
  }

  onBodySent(): void {
    this.isSent = true;
  }

  onRequestSent(): void {
    this.isSent = true;
  }

  onResponseStart(controller: AnswerController, status: number, _headers: unknown, statusText = ''): void {
    const rawHeaders = latin1(controller.rawHeaders);
    if (status < 200) this.#ends.onInformation(this, { status, rawHeaders });
    else this.#ends.onHead(this, { status, statusText, rawHeaders });
  }

  onResponseData(controller: AnswerController, part: Buffer): void {
    if (this.#stage === 'discarded') {
      this.#discardedBytes += part.length;
      if (this.#discardedBytes > maxDiscardedBytes) controller.abort(new Error('not needed'));
      return;
    }
    this.bodyBytes += part.length;
    if (this.bodyBytes > this.#ends.maxBytes) {
      this.#exceed();
      return;
    }
    this.#writing?.watch?.add(part);
    if (this.#stage === 'held') {
      // What had been read before the pause took hold.
      this.#parts.push(part);
      if (this.#peek !== undefined && this.bodyBytes >= maxPeekedBytes) {
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
    else if (this.#stage === 'discarded') clearTimeout(this.#discardTimer);
    else this.#end(latin1(controller.rawTrailers));
  }

  onResponseError(_controller: AnswerController, error: Error): void {
    clearTimeout(this.#discardTimer);
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

  onDrain(): void {
    this.#controller?.resume();
  }

  onStall(): void {
    this.#ends.onStall();
  }

  onBodyFailure(error: Error): void {
    this.abandon();
    this.#ends.onFailure(this, error);
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

  #exceed(): void {
    this.onBodyFailure(answerBeyond());
  }

  #write(part: Buffer): void {
    if (!this.#out().write(part)) this.#controller?.pause();
  }

  #out(): Outflow {
    const { maxBytes, idleMs } = this.#ends;
    this.#outflow ??= new Outflow(this.#response, {
      ends: this,
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
      this.#out().end(trailers.length === 0 ? [] : this.#ends.trailersOf(trailers));
    }
    this.#writing?.watch?.end();
  }

  #endJoined(part: Buffer): void {
    const response = this.#response;
    this.#stage = 'flows';
    // Head and body as one text are one buffer for one system call; latin1 keeps every byte.
    response.end(part.toString('latin1'), 'latin1');
    const { idleMs } = this.#ends;
    if (response.writableLength > 0) watchReading(response, { idleMs, onStall: () => this.onStall() });
  }

  /** Whether head and body can go out in one piece: it is small, and its end need not be marked. */
  #isJoined(part: Buffer): boolean {
    return part.length <= maxJoinedBytes && this.#writing?.isLengthKnown === true;
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
