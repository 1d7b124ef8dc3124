/**
 * Streams one request to the provider and its answer back.
 *
 * Owns: bytes on their way, back-pressure in both directions, what happens when one side breaks off, the one replay
 * after a 401. Does not own: where a request goes (`target.ts`), which headers go along (`headers.ts`), how an error
 * is written (`error-dialect.ts`). Nothing is buffered but a small body's copy for the replay (`upload.ts`).
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AnswerController, AnswerHandler, Outbound, OutboundCall } from '../outbound.ts';
import { failureOf } from './failure.ts';
import { hasBody, Upload } from './upload.ts';

export type Exchange = {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly outbound: Outbound;
  readonly call: Omit<OutboundCall, 'body'>;
  /** The provider's headers as the caller gets them, ours included. */
  answerHeaders(rawHeaders: string[]): string[];
  /** What to try once more after a 401 from the provider; undefined: the 401 is the answer. */
  renew(): Promise<Pick<OutboundCall, 'path' | 'headers'> | undefined>;
  /** Called when the response is ours alone from here on. */
  takeOver(): void;
};

/** How an exchange ended after its first byte; `client_gone` also before it. */
export type Outcome = 'answered' | 'broken_off' | 'client_gone';

/** More of a refused answer is not read just to keep its connection. */
const mostDiscardedBytes = 256 * 1024;

/**
 * Resolves when the answer has been written or can no longer be. Throws only while nothing has been written:
 * `upstream_unreachable`, `upstream_unknown_outcome`, `upstream_timeout`, `address_not_allowed`, or what `renew`
 * throws. A caller who hangs up ends the call to the provider; a provider that breaks off breaks the answer off.
 */
export function forward(exchange: Exchange): Promise<Outcome> {
  const { request, response, outbound, call } = exchange;
  return new Promise((resolve, reject) => {
    const upload = hasBody(request) ? new Upload(request) : undefined;
    let isBrokenOff = false;
    let relay: Relay;

    const send = (
      attempt: Pick<OutboundCall, 'path' | 'headers' | 'body'>,
      onUnauthorized: Renewal,
    ): void => {
      relay = new Relay(exchange, {
        onUnauthorized,
        onFailure(error) {
          if (response.headersSent) {
            isBrokenOff = true;
            breakOff(exchange);
          } else if (response.destroyed || isCallersFault(request)) {
            finish();
          } else {
            response.off('close', finish);
            reject(failureOf(error, { isSent: relay.isSent, method: call.method }));
          }
        },
      });
      outbound.dispatch({ ...call, ...attempt }, relay);
    };
    const finish = (): void => {
      response.off('close', finish);
      relay.abandon();
      if (!response.headersSent) exchange.takeOver();
      resolve(isBrokenOff ? 'broken_off' : response.writableFinished ? 'answered' : 'client_gone');
    };

    response.on('close', finish);
    send({ path: call.path, headers: call.headers, body: upload ?? null }, async () => {
      const body = upload === undefined ? null : upload.copy();
      if (body === undefined) return undefined;
      const renewed = await exchange.renew();
      return renewed && (() => send({ ...renewed, body }, undefined));
    });
  });
}

/** Asked once when the provider says 401; answers how to try again, if there is a way. */
type Renewal = (() => Promise<(() => void) | undefined>) | undefined;

type RelayEnds = { onUnauthorized: Renewal; onFailure: (error: Error) => void };

/** A 401 that waits until it is known whether it is the answer. */
type Held = {
  status: number;
  statusText: string;
  rawHeaders: string[];
  chunks: Buffer[];
  /** Whether nothing more comes: the answer is whole, or broke off with this error. */
  isEnded: boolean;
  error?: Error;
};

/** One attempt: takes what the provider sends and hands it to the caller. */
class Relay implements AnswerHandler {
  /** Whether any byte may have reached the provider. */
  isSent = false;
  readonly #exchange: Exchange;
  readonly #ends: RelayEnds;
  #controller: AnswerController | undefined;
  #held: Held | undefined;
  #discardedBytes: number | undefined;
  #isAbandoned = false;
  #isComplete = false;

  constructor(exchange: Exchange, ends: RelayEnds) {
    this.#exchange = exchange;
    this.#ends = ends;
  }

  /** Nobody waits for the answer any more. Harmless once it is complete. */
  abandon(): void {
    this.#isAbandoned = true;
    if (!this.#isComplete) this.#controller?.abort(new Error('the caller hung up'));
  }

  onRequestStart(controller: AnswerController): void {
    this.#controller = controller;
    if (this.#isAbandoned) controller.abort(new Error('the caller hung up'));
    else this.isSent = true;
  }

  onResponseStart(controller: AnswerController, status: number, _headers: unknown, statusText = ''): void {
    if (status < 200) return;
    const rawHeaders = latin1(controller.rawHeaders);
    if (status !== 401 || this.#ends.onUnauthorized === undefined) {
      this.#begin(controller, { status, statusText, rawHeaders });
      return;
    }
    controller.pause();
    this.#held = { status, statusText, rawHeaders, chunks: [], isEnded: false };
    this.#ends.onUnauthorized().then(
      (again) => this.#decide(controller, again),
      (error: Error) => {
        this.#discard(controller);
        this.#ends.onFailure(error);
      },
    );
  }

  onResponseData(controller: AnswerController, chunk: Buffer): void {
    const { response } = this.#exchange;
    if (this.#discardedBytes !== undefined) {
      this.#discardedBytes += chunk.length;
      if (this.#discardedBytes > mostDiscardedBytes) controller.abort(new Error('not needed'));
    } else if (this.#held !== undefined) {
      // What had been read before the pause took hold.
      this.#held.chunks.push(chunk);
    } else if (!response.destroyed && !response.write(chunk)) {
      controller.pause();
    }
  }

  onResponseEnd(controller: AnswerController): void {
    this.#isComplete = true;
    if (this.#discardedBytes !== undefined) return;
    if (this.#held !== undefined) this.#held.isEnded = true;
    else this.#end(latin1(controller.rawTrailers));
  }

  onResponseError(_controller: AnswerController, error: Error): void {
    if (this.#held !== undefined) Object.assign(this.#held, { isEnded: true, error });
    else if (this.#discardedBytes === undefined && !this.#isAbandoned) this.#ends.onFailure(error);
  }

  #decide(controller: AnswerController, again: (() => void) | undefined): void {
    const held = this.#held;
    if (held === undefined || this.#isAbandoned) return;
    if (again !== undefined) {
      this.#discard(controller);
      again();
      return;
    }
    this.#held = undefined;
    if (held.error !== undefined) {
      this.#ends.onFailure(held.error);
      return;
    }
    try {
      this.#begin(controller, held);
    } catch (error) {
      controller.abort(error as Error);
      return;
    }
    for (const chunk of held.chunks) this.#exchange.response.write(chunk);
    if (held.isEnded) this.#end([]);
    else controller.resume();
  }

  /** Reads the rest of an answer that nobody gets, so that its connection can be used again. */
  #discard(controller: AnswerController): void {
    const isEnded = this.#held?.isEnded;
    this.#held = undefined;
    this.#discardedBytes = 0;
    if (!isEnded) controller.resume();
  }

  #begin(
    controller: AnswerController,
    { status, statusText, rawHeaders }: Pick<Held, 'status' | 'statusText' | 'rawHeaders'>,
  ): void {
    const { response, answerHeaders, takeOver } = this.#exchange;
    response.writeHead(status, statusText, answerHeaders(rawHeaders));
    takeOver();
    response.on('drain', () => controller.resume());
    // Headers leave together with the first bytes of the body where both arrived together, else at once.
    queueMicrotask(() => {
      if (!response.writableEnded && !response.destroyed) response.flushHeaders();
    });
  }

  #end(trailers: string[]): void {
    const { response } = this.#exchange;
    if (response.destroyed) return;
    if (trailers.length > 0) response.addTrailers(inPairs(trailers));
    response.end();
  }
}

/** Ends the caller's answer so that it cannot be taken for a whole one. */
function breakOff({ request, response }: Exchange): void {
  // Without chunks or a length the end of the connection is the end of the answer; only a reset says otherwise.
  if (request.httpVersion === '1.0') request.socket.resetAndDestroy();
  response.destroy();
}

/** Whether the body stopped coming before its end. */
function isCallersFault(request: IncomingMessage): boolean {
  return request.destroyed && !request.complete;
}

function latin1(raw: AnswerController['rawHeaders']): string[] {
  return Array.isArray(raw)
    ? raw.map((part) => (typeof part === 'string' ? part : part.toString('latin1')))
    : [];
}

function inPairs(flat: string[]): [string, string][] {
  const pairs: [string, string][] = [];
  for (let at = 0; at + 1 < flat.length; at += 2) pairs.push([flat[at] ?? '', flat[at + 1] ?? '']);
  return pairs;
}
