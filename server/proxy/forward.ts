/**
 * Carries one call to the provider and its answer back.
 *
 * Owns: the attempts that a call takes (a replay after a 401, retries, redirects), their time limits, what happens when
 * one side breaks off. Does not own: where a request goes (`attempt.ts`), which headers go along (`headers.ts`), how an
 * answer's bytes are written (`relay.ts`), how an error is told (`error-dialect.ts`). Nothing is buffered but a small
 * body's copy for another attempt (`upload.ts`).
 */
import type { ServerResponse } from 'node:http';
import { AppError } from '../errors.ts';
import type { OutboundCall } from '../outbound.ts';
import { announcedBytes, headersOf, lengthAlone, reasonOf } from './answer-head.ts';
import type { Attempt } from './attempt.ts';
import { ConnectWait } from './connect-wait.ts';
import { decoderOf } from './decompress.ts';
import type { Admission, Exchange, Outcome } from './exchange.ts';
import { failureOf, PhaseTimeout } from './failure.ts';
import { firstValue, without } from './headers.ts';
import { Hints } from './hints.ts';
import { tooLongForField, withField } from './placed-body.ts';
import { type Head, Relay, type RelayEnds } from './relay.ts';
import { isIdempotent, isRetried, retryWaitMs } from './retry.ts';
import { answerBeyond } from './ticket-limits.ts';
import { faultOfBody, hasBody, isBrokenOff, isShort, readWhole, Upload } from './upload.ts';

const redirects = new Set([301, 302, 303, 307, 308]);
const mostRedirects = 5;

/**
 * Carries it, and tells once how it went: `ended` or `failed`. A caller who hangs up ends the call to the provider; a
 * provider that breaks off breaks the answer off.
 */
export function forward(exchange: Exchange): void {
  new Forwarding(exchange).start();
}

class Forwarding implements RelayEnds {
  readonly response: ServerResponse;
  readonly #exchange: Exchange;
  #attempt: Attempt;
  /** As the caller sends it. */
  #body: Buffer | Upload | null = null;
  /** As the provider is sent it, where that differs. */
  #message: ReturnType<typeof messageWith>;
  #relay: Relay | undefined;
  #admission: Admission | undefined;
  #retried = 0;
  #redirected = 0;
  #isRenewed = false;
  /** Whether the provider has said that it did not do what the last request asked for. */
  #isRefused = false;
  #brokenOff: Outcome | undefined;
  #isOver = false;
  #connectWait: ConnectWait | undefined;
  #totalTimer: NodeJS.Timeout | undefined;
  #waitTimer: NodeJS.Timeout | undefined;
  #endWait: (() => void) | undefined;
  #hints: Hints | undefined;

  constructor(exchange: Exchange) {
    this.response = exchange.response;
    this.#exchange = exchange;
    this.#attempt = exchange.first;
  }

  get mostBytes(): number {
    return this.#exchange.mostBytes;
  }

  get idleMs(): number {
    return this.#exchange.timeouts.bodyIdleMs;
  }

  start(): void {
    const { first, request, timeouts, retry, isRepeatable } = this.#exchange;
    // Who hung up while credentials were fetched is not announced any more.
    if (this.response.destroyed) {
      this.#onClose();
      return;
    }
    this.response.on('close', this.#onClose);
    if (timeouts.totalMs !== undefined && !this.#startTotal(timeouts.totalMs)) return;
    if (!hasBody(request)) {
      this.#send();
      return;
    }
    const fault = faultOfBody(request, this.mostBytes);
    if (fault !== undefined) {
      this.#fail(fault);
    } else if (first.placed.body !== undefined || (retry.times > 0 && isRepeatable && isShort(request))) {
      // What is given the credentials, or may have to be sent again, must be known whole.
      this.#sendWhole();
    } else {
      this.#body = new Upload(request, this);
      this.#send();
    }
  }

  /** What is left of the time for the whole call, which began when it arrived. */
  #startTotal(totalMs: number): boolean {
    const leftMs = totalMs - this.#exchange.trace.ageMs;
    if (leftMs > 0) this.#totalTimer = setTimeout(() => this.#expire(), leftMs);
    else this.#expire();
    return leftMs > 0;
  }

  #sendWhole(): void {
    readWhole(new Upload(this.#exchange.request, this)).then(
      (body) => {
        if (this.#isOver) return;
        if (body === undefined) {
          this.#fail(tooLongForField());
          return;
        }
        this.#body = body;
        this.#send();
      },
      (error: Error) => (error instanceof AppError ? this.#fail(error) : this.#onClose()),
    );
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
    admission.ready.then(() => this.#isOver || this.#dispatch(), this.#fail);
  }

  #dispatch(): void {
    this.#admission?.sent();
    this.#isRefused = false;
    const { outbound, method, isTest, timeouts, trace } = this.#exchange;
    trace.sent();
    const relay = new Relay(this);
    this.#relay = relay;
    this.#connectWait = new ConnectWait(this, timeouts.connectMs);
    const call: OutboundCall = {
      origin: this.#attempt.origin,
      path: this.#attempt.path,
      headers: this.#message?.headers ?? this.#attempt.headers,
      method,
      body: this.#message?.body ?? this.#body,
      isTest,
      headersTimeoutMs: timeouts.headersMs,
      bodyIdleTimeoutMs: timeouts.bodyIdleMs,
    };
    outbound.dispatch(call, relay);
  }

  onStart(): void {
    this.#connectWait?.end();
    this.#exchange.trace.connected();
  }

  onInformation(relay: Relay, { status, rawHeaders }: { status: number; rawHeaders: string[] }): void {
    const { request, response, timeouts, trace } = this.#exchange;
    this.#hints ??= new Hints(timeouts.headersMs - trace.phaseMs, {
      isAwaited: () => !(this.#body instanceof Upload) || this.#body.isWhole,
      expire: () => this.#expireRelay(relay, 'no answer in time'),
    });
    // A caller of HTTP/1.0 knows no interim answers (RFC 9110 §15.2); 100 and 102 are between us and the provider.
    if (status !== 103 || response.headersSent || request.httpVersion === '1.0') return;
    this.#hints.send(response, () =>
      this.#exchange.answerHeaders(without(rawHeaders, lengthAlone), this.#attempt),
    );
  }

  onHead(relay: Relay, head: Head): void {
    this.#admission?.end();
    this.#endHints();
    if (head.status === 401 && !this.#isRenewed && this.#canRepeatBody()) {
      relay.hold();
      this.#renew(relay, head);
      return;
    }
    if (head.status >= 300 && this.#follows(relay, head)) return;
    const judge = this.#canRetry() ? this.#exchange.judge(head) : undefined;
    if (judge === undefined) this.#settleHead(relay, head);
    else relay.peek((parts) => this.#settleHead(relay, { ...head, amountsTo: judge(parts) }));
  }

  /** Whether the answer is the caller's, or another try is made. */
  #settleHead(relay: Relay, head: Head & { amountsTo?: number }): void {
    if (this.#retriesAfter(head, relay)) return;
    if (relay.failure !== undefined) this.onFailure(relay, relay.failure);
    else this.#begin(relay, head);
  }

  onFailure(relay: Relay, error: Error): void {
    if (this.#isOver || relay !== this.#relay) return;
    this.#connectWait?.end();
    this.#admission?.end();
    this.#endHints();
    const { response, request } = this.#exchange;
    if (response.headersSent) this.#breakOff();
    else if (response.destroyed || isBrokenOff(request)) this.#onClose();
    else if (error instanceof AppError || !this.#retriesAfter(undefined, relay)) this.#failWith(error);
  }

  /** Asks once for other credentials, while the 401 waits: it may be the answer after all. */
  #renew(relay: Relay, head: Head): void {
    this.#isRenewed = true;
    this.#isRefused = true;
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
  #retriesAfter(head: (Head & { amountsTo?: number }) | undefined, relay: Relay): boolean {
    const { retry } = this.#exchange;
    if (!this.#canRetry()) return false;
    const status = head?.amountsTo ?? head?.status;
    if (status !== undefined && !isRetried(status, retry)) return false;
    const waitMs = retryWaitMs({
      status,
      retryAfter: head && firstValue(head.rawHeaders, 'retry-after'),
      tried: this.#retried + 1,
      rules: retry,
      now: Date.now(),
      random: Math.random(),
    });
    if (waitMs === undefined) return false;
    this.#retried += 1;
    this.#exchange.trace.retried();
    relay.discard();
    this.#endWait = this.#exchange.waits.begin(this.#fail);
    this.#waitTimer = setTimeout(() => {
      this.#endWait?.();
      this.#again(relay, this.#attempt);
    }, waitMs);
    return true;
  }

  #canRetry(): boolean {
    const { retry, isRepeatable, waits } = this.#exchange;
    return this.#retried < retry.times && isRepeatable && !waits.isStopping && this.#canRepeatBody();
  }

  #canRepeatBody(): boolean {
    return !(this.#body instanceof Upload) || this.#body.isKept;
  }

  #begin(relay: Relay, head: Head): void {
    const { isDecoded, method, mostBytes, ownHeaders, trace } = this.#exchange;
    if (announcedBytes(head, method) > mostBytes) {
      relay.abandon();
      this.#fail(answerBeyond());
      return;
    }
    trace.answered(head.status);
    const decoder = isDecoded ? decoderOf(head, method) : undefined;
    let rawHeaders: string[];
    try {
      rawHeaders = this.#exchange.answerHeaders(headersOf(head, decoder !== undefined), this.#attempt);
      rawHeaders.push(...ownHeaders);
      const retryAfterS = this.#admission?.retryAfterS(head);
      if (retryAfterS !== undefined) rawHeaders.push('retry-after', String(retryAfterS));
      this.response.writeHead(head.status, reasonOf(head), rawHeaders);
    } catch (error) {
      // What may be received but not be sent.
      decoder?.destroy();
      relay.abandon();
      this.#failWith(error as Error);
      return;
    }
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

  trailersOf(rawTrailers: readonly string[]): [string, string][] {
    return this.#exchange.answerTrailers(rawTrailers);
  }

  onStall(): void {
    this.#relay?.abandon();
    this.#breakOff('client_stalled');
  }

  #endHints(): void {
    if (this.#hints === undefined) return;
    this.#hints.end();
    this.#hints = undefined;
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
    this.#exchange.trace.ended(sizeOf(this.#body), this.#relay?.bodyBytes ?? 0);
    this.#connectWait?.end();
    clearTimeout(this.#totalTimer);
    clearTimeout(this.#waitTimer);
    this.#endWait?.();
    this.#endHints();
  }
}

/** The message with the credentials in its body; undefined where they belong elsewhere. */
function messageWith({ headers, placed }: Attempt, body: Buffer | Upload | null) {
  if (placed.body === undefined) return undefined;
  // Whatever body there is has been read whole: see `start`.
  return withField({ headers, body: Buffer.isBuffer(body) ? body : Buffer.alloc(0) }, placed.body);
}

function sizeOf(body: Buffer | Upload | null): number {
  return body === null ? 0 : body instanceof Upload ? body.sizeBytes : body.length;
}
