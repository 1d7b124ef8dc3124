/**
 * Sends one call to the provider and relays the response: the order of the steps, the choice of the response that the caller
 * gets, and the end when one side breaks off. Nothing is buffered but the copy of a small body for another attempt.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Signer } from '../auth-modes/mode.ts';
import { AppError } from '../errors.ts';
import { hasBody } from '../http/server.ts';
import type { OutboundCall } from '../outbound/outbound.ts';
import { errorCodeOf, within } from '../tracing/tracing.ts';
import type { Attempt } from './attempt.ts';
import { bodyError, isShort, OutgoingBody, withCredentialField } from './body.ts';
import type { Outcome } from './call-log.ts';
import { PhaseTimeout, responseTooLong, unreadableError, upstreamError } from './errors.ts';
import type { Exchange, Waits } from './exchange.ts';
import {
  announcedBytes,
  firstValue,
  type Head,
  headersOf,
  reasonOf,
  withoutLength,
  withSignature,
} from './headers.ts';
import type { Permit } from './quota/quota.ts';
import { decoderOf, Relay, type RelayEvents } from './response.ts';
import { isIdempotent, isRepeatable, type Judged, NextAttempt } from './retry.ts';

/** Receives the end of a call, once. */
type ForwardEvents = {
  /** The response has been written, or cannot be written any more. */
  onEnd(outcome: Outcome): void;
  /**
   * Nothing has been written: `upstream_unreachable`, `upstream_unknown_outcome`, `upstream_timeout`, `upstream_unreadable`,
   * `address_not_allowed`, `ticket_bytes_exceeded`, `request_timeout`, `invalid_body`, `unsupported_transfer_coding`, or an
   * error of `current`, `renew` and `admit` of the exchange.
   */
  onFailure(error: Error): void;
};

/** A caller that hangs up ends the call to the provider; a provider that breaks off breaks the response off. */
export function forward(exchange: Exchange, events: ForwardEvents): void {
  new Forwarding(exchange, events).start();
}

class Forwarding implements RelayEvents {
  readonly response: ServerResponse;
  readonly maxBytes: number;
  readonly idleMs: number;
  readonly #exchange: Exchange;
  readonly #events: ForwardEvents;
  readonly #callTimeouts = new CallTimeouts();
  #madeNext: NextAttempt | undefined;
  #attempt: Attempt;
  /** The body as the caller sends it. */
  #body: OutgoingBody | undefined;
  /** The message with the credentials in its body, or with its signature; undefined: they belong elsewhere. */
  #message: { headers: string[]; body?: Buffer } | undefined;
  #relay: Relay | undefined;
  /** The response to the previous attempt, whose rest is still being read. */
  #discarded: Relay | undefined;
  #permit: Permit | undefined;
  /** Whether the provider refused the last request, so it had no effect. */
  #isRefused = false;
  #brokenOff: Outcome | undefined;
  #isOver = false;

  constructor(exchange: Exchange, events: ForwardEvents) {
    this.response = exchange.response;
    this.maxBytes = exchange.maxBytes;
    this.idleMs = exchange.timeouts.bodyIdleMs;
    this.#exchange = exchange;
    this.#events = events;
    this.#attempt = exchange.first;
  }

  /** Created on first use: most calls need one attempt. */
  get #next(): NextAttempt {
    this.#madeNext ??= new NextAttempt(this.#exchange);
    return this.#madeNext;
  }

  start(): void {
    const { request, timeouts } = this.#exchange;
    // No event follows if the caller hung up while credentials were fetched.
    if (this.response.destroyed) {
      this.#onClose();
      return;
    }
    this.response.on('close', this.#onClose);
    if (timeouts.totalMs !== undefined && !this.#limitCall(timeouts.totalMs)) return;
    if (hasBody(request)) this.#startWithBody();
    else this.#send();
  }

  /** Limits the whole call, from its arrival on; false: its time is over. */
  #limitCall(totalMs: number): boolean {
    const leftMs = totalMs - this.#exchange.trace.ageMs;
    if (leftMs > 0) this.#callTimeouts.limitCall(leftMs, () => this.#expire());
    else this.#expire();
    return leftMs > 0;
  }

  #startWithBody(): void {
    const { call, canRenew, first, method, request } = this.#exchange;
    const error = bodyError(request, this.maxBytes);
    const mayRetry = call.retries > 0 && isRepeatable(this.#exchange);
    const isSigned = first.placed.signer?.coversBody(first.headers) === true;
    if (error !== undefined) {
      this.#fail(error);
    } else if (first.placed.body !== undefined || isSigned || (mayRetry && isShort(request))) {
      // A body that gets the credentials or a signature, or may be sent again, must be complete.
      OutgoingBody.whole(request, {
        maxBytes: this.maxBytes,
        idleMs: this.idleMs,
        response: this.response,
        isSigned,
      }).then(
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

  /** If the caller's connection ends, the call ends without an error. */
  #failOfBody(error: Error): void {
    if (error instanceof AppError) this.#fail(error);
    else this.#onClose();
  }

  #send(): void {
    try {
      this.#placeInBody();
      this.#permit = this.#exchange.admit(this.#attempt);
    } catch (error) {
      this.#fail(error as Error);
      return;
    }
    const ready = this.#permit?.ready;
    if (ready === undefined) {
      this.#dispatch();
      return;
    }
    this.#exchange.trace.queued();
    within(this.#exchange.cause, () => this.#sendAdmitted(ready)).catch(this.#fail);
  }

  #placeInBody(): void {
    const { headers, placed } = this.#attempt;
    this.#message = undefined;
    if (placed.body === undefined) return;
    // The body was read whole, if there is one.
    const content = this.#body?.content;
    const body = Buffer.isBuffer(content) ? content : Buffer.alloc(0);
    this.#message = withCredentialField({ headers, body }, placed.body);
  }

  async #sendAdmitted(ready: Promise<void>): Promise<void> {
    await ready;
    if (this.#isOver) return;
    const attempt = await this.#next.asOfNow(this.#attempt);
    if (this.#isOver) return;
    this.#attempt = attempt;
    this.#placeInBody();
    this.#dispatch();
  }

  #dispatch(): void {
    const { signer } = this.#attempt.placed;
    if (signer === undefined) this.#transmit();
    else
      this.#sign(signer)
        .then(() => {
          if (!this.#isOver) this.#transmit();
        })
        .catch(this.#fail);
  }

  /** Signs the attempt as it is sent now: signatures expire after minutes. */
  async #sign(signer: Signer): Promise<void> {
    const { origin, path, headers } = this.#attempt;
    const content = this.#body === undefined ? Buffer.alloc(0) : this.#body.content;
    const body = Buffer.isBuffer(content) ? content : undefined;
    const { method } = this.#exchange;
    this.#message = {
      headers: withSignature(headers, await signer.sign({ method, url: origin + path, headers, body })),
    };
  }

  #transmit(): void {
    this.#permit?.sent();
    this.#isRefused = false;
    const { outbound, method, isTest, timeouts, trace, spans } = this.#exchange;
    trace.sent();
    spans?.begin(this.#attempt.origin);
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
      clientCertificate: this.#attempt.placed.clientCertificate,
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
      expire: () => this.#expireRelay(relay, 'no response in time'),
    });
    // HTTP/1.0 has no interim responses (RFC 9110 §15.2); 100 and 102 are between the proxy and the provider.
    if (status !== 103 || response.headersSent || request.httpVersion === '1.0') return;
    this.#callTimeouts.hint(response, () =>
      this.#exchange.responseHeaders(withoutLength(rawHeaders), this.#attempt),
    );
  }

  onHead(relay: Relay, head: Head): void {
    this.#permit?.end();
    this.#callTimeouts.endAttempt();
    this.#exchange.spans?.answered(head.status);
    if (head.status < 300) this.#begin(relay, head);
    else
      within(this.#exchange.cause, () => {
        if (!this.#isReplaced(relay, head)) this.#begin(relay, head);
      });
  }

  /** Whether the caller does not get this response, or that is not decided yet. */
  #isReplaced(relay: Relay, head: Head): boolean {
    if (head.status === 401 && this.#renewsAfter(relay, head)) return true;
    const isBodyRepeatable = this.#body?.isRepeatable !== false;
    const next = isBodyRepeatable ? this.#next.redirected(head, this.#attempt) : undefined;
    if (next !== undefined) {
      this.#attempt = next;
      this.#discard(relay);
      this.#sendAgain();
      return true;
    }
    const judge = isBodyRepeatable && this.#next.mayRetry ? this.#exchange.judge(head) : undefined;
    if (judge === undefined) return this.#retriesAfter(head, relay);
    const decide = (parts: readonly Buffer[]) => {
      const judged = { ...head, effectiveStatus: judge(parts) };
      if (!this.#retriesAfter(judged, relay)) this.#settle(relay, head);
    };
    relay.peek((parts) => within(this.#exchange.cause, () => decide(parts)));
    return true;
  }

  onFailure(relay: Relay, error: Error): void {
    if (!this.#isOver && relay === this.#relay)
      within(this.#exchange.cause, () => this.#failAttempt(relay, error));
  }

  #failAttempt(relay: Relay, error: Error): void {
    this.#exchange.spans?.end(errorCodeOf(error));
    this.#permit?.end();
    this.#callTimeouts.endAttempt();
    const { response, request } = this.#exchange;
    if (response.headersSent) this.#breakOff();
    else if (response.destroyed || hasHungUp(request)) this.#onClose();
    else if (error instanceof AppError || !this.#retriesAfter(error, relay)) this.#failWith(error);
  }

  /** Whether credentials are being renewed. The 401 is held meanwhile, since the caller may get it after all. */
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
        if (hasHungUp(request)) this.#onClose();
        else this.#fail(error);
      },
    );
    return true;
  }

  /** Passes a held response to the caller, or fails if it has broken off meanwhile. */
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

  /** Sends the request again, if caller, connection and rules still permit it. */
  #sendAgain(): void {
    this.#body?.rewind();
    this.#next.asOfNow(this.#attempt).then((attempt) => {
      if (this.#isOver) return;
      this.#attempt = attempt;
      this.#send();
    }, this.#fail);
  }

  /** Whether the call is retried after this response or error. */
  #retriesAfter(result: Judged | Error, relay: Relay): boolean {
    if (!this.#next.mayRetry || this.#body?.isRepeatable === false) return false;
    const waitMs = this.#next.retryAfter(result);
    if (waitMs === undefined) return false;
    this.#exchange.trace.retried();
    this.#discard(relay);
    const { waits } = this.#exchange;
    this.#callTimeouts.wait(waitMs, { waits, go: () => this.#sendAgain(), refuse: this.#fail });
    return true;
  }

  #begin(relay: Relay, head: Head): void {
    const { call, method, ownHeaders, trace } = this.#exchange;
    this.#body?.forget();
    if (announcedBytes(head, method) > this.maxBytes) {
      relay.abandon();
      this.#fail(responseTooLong());
      return;
    }
    trace.answered(head.status);
    this.#exchange.reportProof(head.status);
    const makeDecoder = call.isDecoded ? decoderOf(head, method) : undefined;
    let rawHeaders: string[];
    try {
      rawHeaders = this.#exchange.responseHeaders(headersOf(head, makeDecoder !== undefined), this.#attempt);
      rawHeaders.push(...ownHeaders);
      const retryAfterS = this.#permit?.retryAfterS(head.status, (name) => firstValue(head.rawHeaders, name));
      if (retryAfterS !== undefined) rawHeaders.push('retry-after', String(retryAfterS));
      this.response.writeHead(head.status, reasonOf(head), rawHeaders);
    } catch (error) {
      // Node can parse the head, but cannot send it.
      relay.abandon();
      this.#fail(unreadableError(error as Error));
      return;
    }
    relay.begin({
      isLengthKnown: makeDecoder === undefined && firstValue(rawHeaders, 'content-length') !== undefined,
      makeDecoder,
      watch: this.#exchange.watch(head),
    });
  }

  /** The time for the whole call is over: the caller gets an error, or is cut off if the response has begun. */
  #expire(): void {
    this.#relay?.abandon();
    if (this.response.headersSent) this.#breakOff();
    else this.#failWith(new PhaseTimeout('the whole call took too long'));
  }

  trailersOf(rawTrailers: readonly string[]): [string, string][] {
    return this.#exchange.responseTrailers(rawTrailers);
  }

  onStall(): void {
    this.#relay?.abandon();
    this.#breakOff('client_stalled');
  }

  /** Called by `CallTimeouts`: there was no connection in time, so nothing was sent. */
  expireConnect(): void {
    this.#expireRelay(this.#relay as Relay, 'no connection in time');
  }

  #expireRelay(relay: Relay, message: string): void {
    relay.abandon();
    this.onFailure(relay, new PhaseTimeout(message));
  }

  /** Ends the response in a way that the caller cannot mistake for its regular end. */
  #breakOff(outcome: Outcome = 'broken_off'): void {
    this.#brokenOff = outcome;
    const { request, response } = this.#exchange;
    // HTTP/1.0 has no chunks: without a length, the end of the connection ends the response, unless it is a reset.
    if (request.httpVersion === '1.0') request.socket.resetAndDestroy();
    response.destroy();
  }

  #failWith(error: Error): void {
    const isSent = this.#relay?.isSent === true;
    const isSafe = this.#isRefused || isIdempotent(this.#exchange.method);
    this.#fail(upstreamError(error, { isSent, isRepeatable: isSafe }));
  }

  readonly #fail = (error: Error): void => {
    if (this.#isOver) return;
    this.#end();
    this.#events.onFailure(error);
  };

  readonly #onClose = (): void => {
    if (this.#isOver) return;
    this.#end();
    this.#relay?.abandon();
    this.#events.onEnd(this.#brokenOff ?? (this.response.writableFinished ? 'answered' : 'client_gone'));
  };

  #end(): void {
    this.#isOver = true;
    this.#permit?.end();
    this.#exchange.spans?.end(this.#brokenOff);
    this.#exchange.trace.ended(this.#body?.sizeBytes ?? 0, this.#relay?.bodyBytes ?? 0);
    this.#callTimeouts.end();
    this.#discarded?.abandon();
  }
}

/** Whether the caller ended its connection in the middle of the body. */
function hasHungUp(request: IncomingMessage): boolean {
  return request.destroyed && !request.complete;
}

/** The timers of one call. undici limits the time for the head and for the body of a response. */
class CallTimeouts {
  #connect: ConnectWait | undefined;
  #hints: EarlyHints | undefined;
  #total: NodeJS.Timeout | undefined;
  #wait: NodeJS.Timeout | undefined;
  #endWait: (() => void) | undefined;

  /** Calls `expire` if the call is not over after `leftMs`. */
  limitCall(leftMs: number, expire: () => void): void {
    this.#total = setTimeout(expire, leftMs);
  }

  /** Calls `expireConnect` if there is no connection after `limitMs`, or up to 20 ms later. */
  limitConnect(call: ConnectCall, limitMs: number): void {
    this.#connect = new ConnectWait(call, limitMs);
  }

  connected(): void {
    this.#connect?.end();
  }

  /** To be called at each interim response of an attempt; see `EarlyHints`. */
  limitHints(leftMs: number, ends: ConstructorParameters<typeof EarlyHints>[1]): void {
    this.#hints ??= new EarlyHints(leftMs, ends);
  }

  /** Passes an interim response on to the caller. */
  hint(response: ServerResponse, headers: () => string[]): void {
    this.#hints?.send(response, headers);
  }

  /** The attempt has its response, or has failed. */
  endAttempt(): void {
    this.#connect?.end();
    this.#hints?.end();
    this.#hints = undefined;
  }

  /** Calls `go` after `ms`, or `refuse` if the service stops before. */
  wait(ms: number, { waits, go, refuse }: { waits: Waits; go(): void; refuse(error: Error): void }): void {
    this.#endWait = waits.begin(refuse);
    this.#wait = setTimeout(() => {
      this.#endWait?.();
      go();
    }, ms);
  }

  end(): void {
    this.endAttempt();
    clearTimeout(this.#total);
    clearTimeout(this.#wait);
    this.#endWait?.();
  }
}

const tickMs = 20;

type ConnectCall = { expireConnect(): void };

/**
 * One call's wait for a connection. Nearly every call gets its connection within the same turn of the event loop, so all
 * waits share one timer, and form a linked list. A Map would keep ended calls in memory: the tables that it outgrows refer to
 * them until the old generation is collected.
 */
class ConnectWait {
  readonly #deadline: number;
  #call: ConnectCall | undefined;
  #before: ConnectWait | undefined;
  #behind: ConnectWait | undefined;

  constructor(call: ConnectCall, limitMs: number) {
    this.#deadline = performance.now() + limitMs;
    this.#call = call;
    this.#behind = first;
    if (first !== undefined) first.#before = this;
    first = this;
    timer ??= setInterval(tick, tickMs);
  }

  /** May be called more than once. */
  end(): void {
    if (this.#call === undefined) return;
    this.#call = undefined;
    if (this.#before === undefined) first = this.#behind;
    else this.#before.#behind = this.#behind;
    if (this.#behind !== undefined) this.#behind.#before = this.#before;
    this.#before = undefined;
    this.#behind = undefined;
  }

  /** Ends all waits whose time is over. */
  static expireBefore(now: number): void {
    let wait = first;
    while (wait !== undefined) {
      const behind: ConnectWait | undefined = wait.#behind;
      if (wait.#deadline <= now) {
        const call = wait.#call;
        wait.end();
        call?.expireConnect();
      }
      wait = behind;
    }
  }
}

let first: ConnectWait | undefined;
let timer: NodeJS.Timeout | undefined;

function tick(): void {
  ConnectWait.expireBefore(performance.now());
  if (first !== undefined) return;
  clearInterval(timer);
  timer = undefined;
}

/** The maximum number of interim responses that the caller gets. */
const maxHints = 16;

/**
 * The interim responses to one request, from the first on.
 *
 * undici restarts its limit for the response's head at each, so a provider could keep a call open for ever. `expire` is called
 * once, after `leftMs`, or as long again and again until `isAwaited` says that the provider has the whole request.
 */
class EarlyHints {
  readonly #timer: NodeJS.Timeout;
  #sent = 0;

  constructor(leftMs: number, { isAwaited, expire }: { isAwaited(): boolean; expire(): void }) {
    this.#timer = setTimeout(() => (isAwaited() ? expire() : this.#timer.refresh()), Math.max(1, leftMs));
  }

  /** Passes one on, unless the caller has got the maximum or does not keep up with reading. */
  send(response: ServerResponse, headers: () => string[]): void {
    if (this.#sent >= maxHints || response.socket?.writableNeedDrain === true) return;
    this.#sent += 1;
    try {
      response.writeInformation(103, headers());
    } catch {
      // Interim responses are optional: one that cannot be sent is dropped.
    }
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}
