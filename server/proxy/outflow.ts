import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Transform } from 'node:stream';
import { answerBeyond } from './ticket-limits.ts';

/** Who is told how an answer's body gets on. */
export type OutflowEnds = {
  /** More may come. */
  onDrain(): void;
  /** The caller has not read on in time. */
  onStall(): void;
  /** It cannot be decoded, or is longer than `maxBytes`: `ticket_bytes_exceeded`. */
  onBodyFailure(error: Error): void;
};

/** The body of an answer on its way to the caller, decoded where that is wanted, as fast as the caller reads. */
export class Outflow {
  readonly #response: ServerResponse;
  readonly #ends: OutflowEnds;
  readonly #makeDecoder: (() => Transform) | undefined;
  readonly #maxBytes: number;
  readonly #idleMs: number;
  #decoder: Transform | undefined;
  #decodedBytes = 0;
  #isBehind = false;

  /** `maxBytes` limits what a decoder makes of the body; `idleMs` is the caller's time to read on. */
  constructor(
    response: ServerResponse,
    given: {
      ends: OutflowEnds;
      makeDecoder: (() => Transform) | undefined;
      maxBytes: number;
      idleMs: number;
    },
  ) {
    this.#response = response;
    this.#ends = given.ends;
    this.#makeDecoder = given.makeDecoder;
    this.#maxBytes = given.maxBytes;
    this.#idleMs = given.idleMs;
  }

  /** Whether more may come at once; if not, `onDrain` says when. */
  write(part: Buffer): boolean {
    if (this.#response.destroyed) return true;
    if (this.#makeDecoder === undefined) return this.#send(part);
    this.#decoder ??= this.#decodeBy(this.#makeDecoder());
    return this.#decoder.destroyed || this.#decoder.write(part);
  }

  /** The body is whole; a decoded one has no trailers, since they speak of other bytes. */
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
    decoder.on('error', (error: Error) => this.#ends.onBodyFailure(error));
    decoder.on('data', (part: Buffer) => {
      this.#decodedBytes += part.length;
      if (this.#decodedBytes > this.#maxBytes) {
        decoder.destroy();
        this.#ends.onBodyFailure(answerBeyond());
      } else if (!response.destroyed && !this.#send(part)) decoder.pause();
    });
    decoder.on('drain', () => this.#ends.onDrain());
    decoder.on('end', () => response.destroyed || this.#finish());
    response.on('close', () => decoder.destroy());
    return decoder;
  }

  #send(part: Buffer): boolean {
    if (this.#response.write(part)) return true;
    if (!this.#isBehind) {
      this.#response.on('drain', () => {
        if (this.#decoder === undefined) this.#ends.onDrain();
        else this.#decoder.resume();
      });
      this.#watchReading();
    }
    return false;
  }

  #watchReading(): void {
    this.#isBehind = true;
    watchReading(this.#response, { idleMs: this.#idleMs, onStall: () => this.#ends.onStall() });
  }
}

const longestLookMs = 1_000;

/**
 * From a moment on when something waits for the caller: calls `onStall` where it takes nothing for so long (ms), or up
 * to a second longer, as often as that is so until the response is closed.
 */
export function watchReading(
  response: ServerResponse,
  { idleMs, onStall }: { idleMs: number; onStall: () => void },
): void {
  const { socket } = response;
  if (socket === null) return;
  let takenBytes = takenFrom(socket);
  let readAt = performance.now();
  const look = () => {
    const nowTakenBytes = takenFrom(socket);
    if (nowTakenBytes !== takenBytes || response.writableLength === 0) {
      takenBytes = nowTakenBytes;
      readAt = performance.now();
    } else if (performance.now() - readAt >= idleMs) onStall();
  };
  const timer = setInterval(look, Math.min(longestLookMs, Math.ceil(idleMs / 4)));
  response.once('close', () => clearInterval(timer));
}

/** What has left us, as far as the kernel has taken it. */
function takenFrom(socket: Socket): number {
  return socket.bytesWritten - socket.writableLength;
}
