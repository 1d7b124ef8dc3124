/**
 * Carries one call to the provider and its answer back.
 *
 * Owns: the attempts that a call takes (a replay after a 401, retries, redirects), their time limits, what happens when
 * one side breaks off. Does not own: where a request goes (`attempt.ts`), which headers go along (`headers.ts`), how an
 * answer's bytes are written (`relay.ts`), how an error is told (`error-dialect.ts`). Nothing is buffered but a small
 * body's copy for another attempt (`upload.ts`).
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { AppError } from '../errors.ts';
import type { Outbound, OutboundCall } from '../outbound.ts';
import type { Attempt } from './attempt.ts';
import type { Timeouts } from './call.ts';
import type { CallTrace } from './call-log.ts';
import { decoderOf, withoutEncoding } from './decompress.ts';
import { failureOf, PhaseTimeout } from './failure.ts';
import { firstValue } from './headers.ts';
import { type Head, Relay, type RelayEnds } from './relay.ts';
import { isIdempotent, isRetried, type RetryRules, retryWaitMs } from './retry.ts';
import { hasBody, readWhole, Upload } from './upload.ts';

/** One call: what its caller wants, and what the rooms around know. */
export type Exchange = {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly outbound: Outbound;
  readonly method: string;
  readonly isTest: boolean;
  /** Whether a second request does no more than the first: the only ones that are tried again. */
  readonly isRepeatable: boolean;
  readonly first: Attempt;
  readonly timeouts: Timeouts;
  readonly retry: RetryRules;
  readonly isDecoded: boolean;
  /** Is told how the call goes. */
  readonly trace: Pick<CallTrace, 'queued' | 'sent' | 'answered' | 'ended'>;
  /** Ours, for every answer. */
  readonly ownHeaders: readonly string[];
  /** The provider's headers as the caller gets them. */
  answerHeaders(rawHeaders: readonly string[], from: Attempt): string[];
  /** What to try once more after a 401 from the provider; undefined: the 401 is the answer. */
  renew(): Promise<Attempt | undefined>;
  /** Where a redirect leads; undefined: it is the caller's to follow. */
  follow(location: string, from: Attempt): Attempt | undefined;
  /** The provider's quota for one request there; undefined: nothing limits it. */
  admit(attempt: Attempt): Admission | undefined;
  /** Who wants to see an answer's body, as the provider sent it. Never slows it. */
  watch(head: Head): ((part: Buffer) => void) | undefined;
  /** Called when the response is ours alone from here on. */
  takeOver(): void;
};

/** The right to send one request; see `quota/quota.ts`. */
export type Admission = {
  /** Undefined: at once. Rejects with what the caller is told. */
  readonly ready: Promise<void> | undefined;
  sent(): void;
  /** The request was answered, failed, or will not be made. May be called more than once. */
  end(): void;
  /** The provider refused, and nobody will read why. */
  discarded(head: Head): void;
  /** Seconds to say where a refusal names none. */
  retryAfterS(head: Head): number | undefined;
};

/** How an exchange ended after its first byte; `client_gone` also before it. */
export type Outcome = 'answered' | 'broken_off' | 'client_gone';

const redirects = new Set([301, 302, 303, 307, 308]);
const mostRedirects = 5;

/**
 * Resolves when the answer has been written or can no longer be. Throws only while nothing has been written:
 * `upstream_unreachable`, `upstream_unknown_outcome`, `upstream_timeout`, `address_not_allowed`, or what `renew`
 * throws. A caller who hangs up ends the call to the provider; a provider that breaks off breaks the answer off.
 */
export function forward(exchange: Exchange): Promise<Outcome> {
  return new Promise((resolve, reject) => new Forwarding(exchange, { resolve, reject }).start());
}

type Settle = { resolve: (outcome: Outcome) => void; reject: (error: Error) => void };

class Forwarding implements RelayEnds {
  readonly response: ServerResponse;
  readonly #exchange: Exchange;
  readonly #settle: Settle;
  #attempt: Attempt;
  #body: Buffer | Upload | null = null;
  #relay: Relay | undefined;
  #admission: Admission | undefined;
  #retried = 0;
  #redirected = 0;
  #isRenewed = false;
  #isBrokenOff = false;
  #isOver = false;
  #connectTimer: NodeJS.Timeout | undefined;
  #totalTimer: NodeJS.Timeout | undefined;
  #waitTimer: NodeJS.Timeout | undefined;

  constructor(exchange: Exchange, settle: Settle) {
    this.response = exchange.response;
    this.#exchange = exchange;
    this.#settle = settle;
    this.#attempt = exchange.first;
  }

  start(): void {
    const { request, timeouts, retry, isRepeatable } = this.#exchange;
    this.response.on('close', this.#onClose);
    if (timeouts.totalMs !== undefined) {
      this.#totalTimer = setTimeout(() => this.#expire(), timeouts.totalMs);
    }
    if (!hasBody(request)) {
      this.#send();
    } else if (retry.times > 0 && isRepeatable) {
      // What may have to be sent again must be known whole; a longer body goes by and is sent once.
      readWhole(request).then((body) => {
        this.#body = body ?? new Upload(request);
        if (!this.#isOver) this.#send();
      }, this.#onClose);
    } else {
      this.#body = new Upload(request);
      this.#send();
    }
  }

  #send(): void {
    const admission = this.#exchange.admit(this.#attempt);
    this.#admission = admission;
    if (admission?.ready === undefined) {
      this.#dispatch();
      return;
    }
    this.#exchange.trace.queued();
    admission.ready.then(() => this.#isOver || this.#dispatch(), this.#fail);
  }

  #dispatch(): void {
    this.#admission?.sent();
    const { outbound, method, isTest, timeouts, trace } = this.#exchange;
    trace.sent();
    const relay = new Relay(this);
    this.#relay = relay;
    this.#connectTimer = setTimeout(onConnectTimeout, timeouts.connectMs, this);
    const call: OutboundCall = {
      origin: this.#attempt.origin,
      path: this.#attempt.path,
      headers: this.#attempt.headers,
      method,
      body: this.#body,
      isTest,
      headersTimeoutMs: timeouts.headersMs,
      bodyIdleTimeoutMs: timeouts.bodyIdleMs,
    };
    outbound.dispatch(call, relay);
  }

  onStart(): void {
    clearTimeout(this.#connectTimer);
  }

  onInformation(status: number, rawHeaders: string[]): void {
    const { request, response } = this.#exchange;
    // A caller of HTTP/1.0 knows no interim answers (RFC 9110 §15.2); 100 and 102 are between us and the provider.
    if (status !== 103 || response.headersSent || request.httpVersion === '1.0') return;
    response.writeInformation(status, this.#exchange.answerHeaders(rawHeaders, this.#attempt));
  }

  onHead(relay: Relay, head: Head): void {
    this.#admission?.end();
    if (head.status === 401 && !this.#isRenewed && this.#canRepeatBody()) {
      relay.hold();
      this.#renew(relay, head);
      return;
    }
    if (head.status >= 300 && this.#follows(relay, head)) return;
    if (this.#retriesAfter(head, relay)) return;
    this.#begin(relay, head);
  }

  onFailure(relay: Relay, error: Error): void {
    if (this.#isOver || relay !== this.#relay) return;
    clearTimeout(this.#connectTimer);
    this.#admission?.end();
    const { response, request } = this.#exchange;
    if (response.headersSent) this.#breakOff();
    else if (response.destroyed || isCallersFault(request)) this.#onClose();
    else if (error instanceof AppError || !this.#retriesAfter(undefined, relay)) this.#failWith(error);
  }

  /** Asks once for other credentials, while the 401 waits: it may be the answer after all. */
  #renew(relay: Relay, head: Head): void {
    this.#isRenewed = true;
    this.#exchange.renew().then(
      (renewed) => {
        if (this.#isOver) return;
        if (renewed !== undefined) this.#again(relay, renewed);
        else if (relay.failure !== undefined) this.onFailure(relay, relay.failure);
        else this.#begin(relay, head);
      },
      (error: Error) => {
        relay.discard();
        this.#fail(error);
      },
    );
  }

  #follows(relay: Relay, { status, rawHeaders }: Head): boolean {
    const { method } = this.#exchange;
    if (!redirects.has(status) || (method !== 'GET' && method !== 'HEAD')) return false;
    const location = firstValue(rawHeaders, 'location');
    if (location === undefined || this.#redirected >= mostRedirects || !this.#canRepeatBody()) return false;
    const next = this.#exchange.follow(location, this.#attempt);
    if (next === undefined) return false;
    this.#redirected += 1;
    this.#again(relay, next);
    return true;
  }

  /** Sends what was sent before, to there. */
  #again(relay: Relay, attempt: Attempt): void {
    relay.discard();
    this.#attempt = attempt;
    if (this.#body instanceof Upload) this.#body = this.#body.copy() ?? null;
    this.#send();
  }

  /** Whether the call is tried once more after this answer, or after none. */
  #retriesAfter(head: Head | undefined, relay: Relay): boolean {
    const { retry, isRepeatable } = this.#exchange;
    if (this.#retried >= retry.times || !isRepeatable || !this.#canRepeatBody()) return false;
    if (head !== undefined && !isRetried(head.status, retry)) return false;
    const waitMs = retryWaitMs({
      status: head?.status,
      retryAfter: head && firstValue(head.rawHeaders, 'retry-after'),
      tried: this.#retried + 1,
      rules: retry,
      now: Date.now(),
      random: Math.random(),
    });
    if (waitMs === undefined) return false;
    this.#retried += 1;
    if (head !== undefined) this.#admission?.discarded(head);
    relay.discard();
    this.#waitTimer = setTimeout(() => this.#again(relay, this.#attempt), waitMs);
    return true;
  }

  #canRepeatBody(): boolean {
    return !(this.#body instanceof Upload) || this.#body.isKept;
  }

  #begin(relay: Relay, head: Head): void {
    const { isDecoded, method, ownHeaders, trace } = this.#exchange;
    trace.answered(head.status);
    const decoder = isDecoded ? decoderOf(head, method) : undefined;
    const kept = decoder === undefined ? head.rawHeaders : withoutEncoding(head.rawHeaders);
    const rawHeaders = this.#exchange.answerHeaders(kept, this.#attempt);
    rawHeaders.push(...ownHeaders);
    const retryAfterS = this.#admission?.retryAfterS(head);
    if (retryAfterS !== undefined) rawHeaders.push('retry-after', String(retryAfterS));
    try {
      this.response.writeHead(head.status, head.statusText, rawHeaders);
    } catch (error) {
      // A header that may be received but not be sent.
      relay.abandon();
      this.#failWith(error as Error);
      return;
    }
    this.#exchange.takeOver();
    relay.begin({
      isLengthKnown: decoder === undefined && firstValue(rawHeaders, 'content-length') !== undefined,
      decoder,
      watch: this.#exchange.watch(head),
    });
  }

  /** The time for the whole call is over: the caller is told, or cut off where the answer has begun. */
  #expire(): void {
    this.#relay?.abandon();
    if (this.response.headersSent) this.#breakOff();
    else this.#failWith(new PhaseTimeout('the whole call took too long'));
  }

  /** For `onConnectTimeout`: no connection came about in time, so nothing was sent. */
  expireConnect(): void {
    const relay = this.#relay as Relay;
    relay.abandon();
    this.onFailure(relay, new PhaseTimeout('no connection in time'));
  }

  /** Ends the caller's answer so that it cannot be taken for a whole one. */
  #breakOff(): void {
    this.#isBrokenOff = true;
    const { request, response } = this.#exchange;
    // Without chunks or a length the end of the connection is the end of the answer; only a reset says otherwise.
    if (request.httpVersion === '1.0') request.socket.resetAndDestroy();
    response.destroy();
  }

  #failWith(error: Error): void {
    const isSent = this.#relay?.isSent === true;
    this.#fail(failureOf(error, { isSent, isRepeatable: isIdempotent(this.#exchange.method) }));
  }

  readonly #fail = (error: Error): void => {
    if (this.#isOver) return;
    this.#end();
    this.#settle.reject(error);
  };

  readonly #onClose = (): void => {
    if (this.#isOver) return;
    this.#end();
    this.#relay?.abandon();
    if (!this.response.headersSent) this.#exchange.takeOver();
    this.#settle.resolve(
      this.#isBrokenOff ? 'broken_off' : this.response.writableFinished ? 'answered' : 'client_gone',
    );
  };

  #end(): void {
    this.#isOver = true;
    this.response.off('close', this.#onClose);
    this.#admission?.end();
    this.#exchange.trace.ended(sizeOf(this.#body), this.#relay?.bodyBytes ?? 0);
    clearTimeout(this.#connectTimer);
    clearTimeout(this.#totalTimer);
    clearTimeout(this.#waitTimer);
  }
}

/** One function for all calls, so that a timer costs no closure. */
function onConnectTimeout(forwarding: Forwarding): void {
  forwarding.expireConnect();
}

function sizeOf(body: Buffer | Upload | null): number {
  return body === null ? 0 : body instanceof Upload ? body.sizeBytes : body.length;
}

/** Whether the body stopped coming before its end. */
function isCallersFault(request: IncomingMessage): boolean {
  return request.destroyed && !request.complete;
}
