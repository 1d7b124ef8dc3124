/**
 * Carries one call to the provider and its answer back.
 *
 * Owns: the order of things, which answer is the caller's, what happens when one side breaks off. Does not own: which
 * attempt follows another (`next-attempt.ts`), time limits (`timeouts.ts`), where a request goes and what goes along
 * (`attempt.ts`), how an answer's bytes are written (`relay.ts`, `outflow.ts`), how an error is told
 * (`error-dialect.ts`). Nothing is buffered but a small body's copy for another attempt (`outgoing-body.ts`).
 */
import type { ServerResponse } from 'node:http';
import { AppError } from '../errors.ts';
import { hasBody } from '../http/bodies.ts';
import { firstValue, without } from '../http/raw-headers.ts';
import type { OutboundCall } from '../outbound.ts';
import { within } from '../tracing/cause.ts';
import { errorCodeOf } from '../tracing/tracing.ts';
import { announcedBytes, headersOf, lengthAlone, reasonOf } from './answer-head.ts';
import type { Attempt } from './attempt.ts';
import { decoderOf } from './decompress.ts';
import type { Admission, Outcome, ProxyExchange } from './exchange.ts';
import { failureOf, PhaseTimeout, unreadable } from './failure.ts';
import { type Judged, NextAttempt } from './next-attempt.ts';
import { messageWith, OutgoingBody } from './outgoing-body.ts';
import { type Head, Relay, type RelayEnds } from './relay.ts';
import { isIdempotent } from './retry.ts';
import { answerBeyond } from './ticket-limits.ts';
import { CallTimeouts } from './timeouts.ts';
import { faultOfBody, isBrokenOff, isShort } from './upload.ts';

/**
 * Carries it, and tells once how it went: `ended` or `failed`. A caller who hangs up ends the call to the provider; a
 * provider that breaks off breaks the answer off.
 */
export function forward(exchange: ProxyExchange): void {
  new Forwarding(exchange).start();
}

class Forwarding implements RelayEnds {
  readonly response: ServerResponse;
  readonly #exchange: ProxyExchange;
  readonly #callTimeouts = new CallTimeouts();
  #madeNext: NextAttempt | undefined;
  #attempt: Attempt;
  /** As the caller sends it. */
  #body: OutgoingBody | undefined;
  /** As the provider is sent it, where that differs. */
  #message: ReturnType<typeof messageWith>;
  #relay: Relay | undefined;
  /** Of the attempt before: what of its answer is still being read. */
  #discarded: Relay | undefined;
  #admission: Admission | undefined;
  /** Whether the provider has said that it did not do what the last request asked for. */
  #isRefused = false;
  #brokenOff: Outcome | undefined;
  #isOver = false;

  constructor(exchange: ProxyExchange) {
    this.response = exchange.response;
    this.#exchange = exchange;
    this.#attempt = exchange.first;
  }

  /** Most calls take one attempt, and never ask. */
  get #next(): NextAttempt {
    this.#madeNext ??= new NextAttempt(this.#exchange);
    return this.#madeNext;
  }

  get maxBytes(): number {
    return this.#exchange.maxBytes;
  }

  get idleMs(): number {
    return this.#exchange.timeouts.bodyIdleMs;
  }

  start(): void {
    const { request, timeouts } = this.#exchange;
    // Who hung up while credentials were fetched is not announced any more.
    if (this.response.destroyed) {
      this.#onClose();
      return;
    }
    this.response.on('close', this.#onClose);
    if (timeouts.totalMs !== undefined && !this.#limitCall(timeouts.totalMs)) return;
    if (hasBody(request)) this.#startWithBody();
    else this.#send();
  }

  /** What is left of the time for the whole call, which began when it arrived. */
  #limitCall(totalMs: number): boolean {
    const leftMs = totalMs - this.#exchange.trace.ageMs;
    if (leftMs > 0) this.#callTimeouts.limitCall(leftMs, () => this.#expire());
    else this.#expire();
    return leftMs > 0;
  }

  #startWithBody(): void {
    const { canRenew, first, isRepeatable, method, request, retry } = this.#exchange;
    const fault = faultOfBody(request, this.maxBytes);
    const mayRetry = retry.times > 0 && isRepeatable;
    if (fault !== undefined) {
      this.#fail(fault);
    } else if (first.placed.body !== undefined || (mayRetry && isShort(request))) {
      // What is given the credentials, or may have to be sent again, must be known whole.
      OutgoingBody.whole(request, this).then(
        (body) => {
          if (this.#isOver) return;
          this.#body = body;
          this.#send();
        },
        (error: Error) => this.#failOfBody(error),
      );
    } else {
      this.#body = OutgoingBody.streamed(request, this);
      const mayFollow = method === 'GET' || method === 'HEAD';
      if (!canRenew && !mayRetry && !mayFollow) this.#body.forget();
      this.#send();
    }
  }

  /** An end of the caller's connection is no failure, but the end of the call. */
  #failOfBody(error: Error): void {
    if (error instanceof AppError) this.#fail(error);
    else this.#onClose();
  }

  #send(): void {
    try {
      this.#message = messageWith(this.#attempt, this.#body);
      this.#admission = this.#exchange.admit(this.#attempt);
    } catch (error) {
      this.#fail(error as Error);
      return;
    }
    const admission = this.#admission;
    if (admission?.ready === undefined) {
      this.#dispatch();
      return;
    }
    this.#exchange.trace.queued();
    const { ready } = admission;
    within(this.#exchange.cause, () => this.#sendAdmitted(ready)).catch(this.#fail);
  }

  async #sendAdmitted(ready: Promise<void>): Promise<void> {
    await ready;
    if (this.#isOver) return;
    const attempt = await this.#next.asOfNow(this.#attempt);
    if (this.#isOver) return;
    this.#attempt = attempt;
    this.#message = messageWith(attempt, this.#body);
    this.#dispatch();
  }

  #dispatch(): void {
    this.#admission?.sent();
    this.#isRefused = false;
    const { outbound, method, isTest, timeouts, trace, spans } = this.#exchange;
    trace.sent();
    spans?.begin(this.#attempt);
    const relay = new Relay(this);
    this.#relay = relay;
    this.#callTimeouts.limitConnect(this, timeouts.connectMs);
    const call: OutboundCall = {
      origin: this.#attempt.origin,
      path: this.#attempt.path,
      headers: this.#message?.headers ?? this.#attempt.headers,
      method,
      body: this.#message?.body ?? this.#body?.content ?? null,
      isTest,
      headersTimeoutMs: timeouts.headersMs,
      bodyIdleTimeoutMs: timeouts.bodyIdleMs,
    };
    outbound.dispatch(call, relay);
  }

  onStart(): void {
    this.#callTimeouts.connected();
    this.#exchange.trace.connected();
  }

  onInformation(relay: Relay, { status, rawHeaders }: { status: number; rawHeaders: string[] }): void {
    const { request, response, timeouts, trace } = this.#exchange;
    this.#callTimeouts.limitHints(timeouts.headersMs - trace.phaseMs, {
      isAwaited: () => this.#body?.isWhole !== false,
      expire: () => this.#expireRelay(relay, 'no answer in time'),
    });
    // A caller of HTTP/1.0 knows no interim answers (RFC 9110 §15.2); 100 and 102 are between us and the provider.
    if (status !== 103 || response.headersSent || request.httpVersion === '1.0') return;
    this.#callTimeouts.hint(response, () =>
      this.#exchange.answerHeaders(without(rawHeaders, lengthAlone), this.#attempt),
    );
  }

  onHead(relay: Relay, head: Head): void {
    this.#admission?.end();
    this.#callTimeouts.endAttempt();
    this.#exchange.spans?.answered(head.status);
    if (head.status < 300) this.#begin(relay, head);
    else
      within(this.#exchange.cause, () => {
        if (!this.#answersOtherwise(relay, head)) this.#begin(relay, head);
      });
  }

  /** Whether the answer is not the caller's, or it is not known yet. */
  #answersOtherwise(relay: Relay, head: Head): boolean {
    if (head.status === 401 && this.#renewsAfter(relay, head)) return true;
    const isRepeatable = this.#body?.isRepeatable !== false;
    const next = isRepeatable ? this.#next.redirected(head, this.#attempt) : undefined;
    if (next !== undefined) {
      this.#attempt = next;
      this.#discard(relay);
      this.#sendAgain();
      return true;
    }
    const judge = isRepeatable && this.#next.mayRetry ? this.#exchange.judge(head) : undefined;
    if (judge === undefined) return this.#retriesAfter(head, relay);
    const answer = (parts: readonly Buffer[]) => {
      const judged = { ...head, amountsTo: judge(parts) };
      if (!this.#retriesAfter(judged, relay)) this.#settle(relay, head);
    };
    relay.peek((parts) => within(this.#exchange.cause, () => answer(parts)));
    return true;
  }

  onFailure(relay: Relay, error: Error): void {
    if (!this.#isOver && relay === this.#relay)
      within(this.#exchange.cause, () => this.#failAttempt(relay, error));
  }

  #failAttempt(relay: Relay, error: Error): void {
    this.#exchange.spans?.end(errorCodeOf(error));
    this.#admission?.end();
    this.#callTimeouts.endAttempt();
    const { response, request } = this.#exchange;
    if (response.headersSent) this.#breakOff();
    else if (response.destroyed || isBrokenOff(request)) this.#onClose();
    else if (error instanceof AppError || !this.#retriesAfter(error, relay)) this.#failWith(error);
  }

  /** Whether other credentials are asked for while the 401 waits: it may be the answer after all. */
  #renewsAfter(relay: Relay, head: Head): boolean {
    const { request } = this.#exchange;
    const renewal = this.#next.renewal(this.#body, request);
    if (renewal === undefined) return false;
    relay.hold();
    this.#isRefused = true;
    renewal.then(
      (attempt) => {
        if (this.#isOver) return;
        if (attempt === undefined) {
          this.#settle(relay, head);
          return;
        }
        this.#discard(relay);
        this.#attempt = attempt;
        this.#send();
      },
      (error: Error) => {
        this.#discard(relay);
        if (isBrokenOff(request)) this.#onClose();
        else this.#fail(error);
      },
    );
    return true;
  }

  /** Hands over an answer that was held back, or tells how it has ended meanwhile. */
  #settle(relay: Relay, head: Head): void {
    if (relay.failure === undefined) this.#begin(relay, head);
    else this.onFailure(relay, relay.failure);
  }

  #discard(relay: Relay): void {
    this.#discarded?.abandon();
    this.#discarded = relay;
    this.#exchange.spans?.end();
    relay.discard();
  }

  /** Sends what was sent before, where caller, connection and rules still let it. */
  #sendAgain(): void {
    this.#body?.rewind();
    this.#next.asOfNow(this.#attempt).then((attempt) => {
      if (this.#isOver) return;
      this.#attempt = attempt;
      this.#send();
    }, this.#fail);
  }

  /** Whether the call is tried once more after this answer, or after none. */
  #retriesAfter(came: Judged | Error, relay: Relay): boolean {
    if (!this.#next.mayRetry || this.#body?.isRepeatable === false) return false;
    const waitMs = this.#next.retryAfter(came);
    if (waitMs === undefined) return false;
    this.#exchange.trace.retried();
    this.#discard(relay);
    const { waits } = this.#exchange;
    this.#callTimeouts.wait(waitMs, { waits, go: () => this.#sendAgain(), refuse: this.#fail });
    return true;
  }

  #begin(relay: Relay, head: Head): void {
    const { isDecoded, method, maxBytes, ownHeaders, trace } = this.#exchange;
    this.#body?.forget();
    if (announcedBytes(head, method) > maxBytes) {
      relay.abandon();
      this.#fail(answerBeyond());
      return;
    }
    trace.answered(head.status);
    const makeDecoder = isDecoded ? decoderOf(head, method) : undefined;
    let rawHeaders: string[];
    try {
      rawHeaders = this.#exchange.answerHeaders(headersOf(head, makeDecoder !== undefined), this.#attempt);
      rawHeaders.push(...ownHeaders);
      const retryAfterS = this.#admission?.retryAfterS(head);
      if (retryAfterS !== undefined) rawHeaders.push('retry-after', String(retryAfterS));
      this.response.writeHead(head.status, reasonOf(head), rawHeaders);
    } catch (error) {
      // What may be received but not be sent.
      relay.abandon();
      this.#fail(unreadable(error as Error));
      return;
    }
    relay.begin({
      isLengthKnown: makeDecoder === undefined && firstValue(rawHeaders, 'content-length') !== undefined,
      makeDecoder,
      watch: this.#exchange.watch(head),
    });
  }

  /** The time for the whole call is over: the caller is told, or cut off where the answer has begun. */
  #expire(): void {
    this.#relay?.abandon();
    if (this.response.headersSent) this.#breakOff();
    else this.#failWith(new PhaseTimeout('the whole call took too long'));
  }

  trailersOf(rawTrailers: readonly string[]): [string, string][] {
    return this.#exchange.answerTrailers(rawTrailers);
  }

  onStall(): void {
    this.#relay?.abandon();
    this.#breakOff('client_stalled');
  }

  /** For `ConnectWait`: no connection came about in time, so nothing was sent. */
  expireConnect(): void {
    this.#expireRelay(this.#relay as Relay, 'no connection in time');
  }

  #expireRelay(relay: Relay, message: string): void {
    relay.abandon();
    this.onFailure(relay, new PhaseTimeout(message));
  }

  /** Ends the caller's answer so that it cannot be taken for a whole one. */
  #breakOff(outcome: Outcome = 'broken_off'): void {
    this.#brokenOff = outcome;
    const { request, response } = this.#exchange;
    // Without chunks or a length the end of the connection is the end of the answer; only a reset says otherwise.
    if (request.httpVersion === '1.0') request.socket.resetAndDestroy();
    response.destroy();
  }

  #failWith(error: Error): void {
    const isSent = this.#relay?.isSent === true;
    const isRepeatable = this.#isRefused || isIdempotent(this.#exchange.method);
    this.#fail(failureOf(error, { isSent, isRepeatable }));
  }

  readonly #fail = (error: Error): void => {
    if (this.#isOver) return;
    this.#end();
    this.#exchange.failed(error);
  };

  readonly #onClose = (): void => {
    if (this.#isOver) return;
    this.#end();
    this.#relay?.abandon();
    this.#exchange.ended(this.#brokenOff ?? (this.response.writableFinished ? 'answered' : 'client_gone'));
  };

  #end(): void {
    this.#isOver = true;
    this.#admission?.end();
    this.#exchange.spans?.end(this.#brokenOff);
    this.#exchange.trace.ended(this.#body?.sizeBytes ?? 0, this.#relay?.bodyBytes ?? 0);
    this.#callTimeouts.end();
    this.#discarded?.abandon();
  }
}
