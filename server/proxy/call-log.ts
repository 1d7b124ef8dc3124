/** The log of proxied calls: a line in the activity log, metrics, spans, and the log of failures. */
import type { IncomingMessage } from 'node:http';
import type { Operation } from '../activity/operations.ts';
import { redactedTarget } from '../activity/writer.ts';
import { AppError } from '../errors.ts';
import { actorOf, type ProxyCaller } from '../http/auth/caller.ts';
import type { Logger } from '../log.ts';
import { cellsOf, metrics, statusClass } from '../metrics/metrics.ts';
import { type Span, startSpan } from '../tracing/tracing.ts';

/** The end of a call after the first byte of its response; `client_gone` also before. `client_stalled`: it did not read on. */
export type Outcome = 'answered' | 'broken_off' | 'client_gone' | 'client_stalled';

/** The end of a call: with a response of the provider, or with an error of the service. */
export type Ended = { outcome?: Outcome; error?: unknown };

/** The times (ms) and counts of one call. */
export class CallTrace {
  readonly #startedAt = performance.now();
  #queuedAt: number | undefined;
  /** The start of the present phase. */
  #phaseAt = 0;
  #quotaMs = 0;
  #credentialsMs = 0;
  #connectMs: number | undefined;
  #firstByteMs: number | undefined;
  #bodyMs: number | undefined;
  #status: number | undefined;
  #requests = 0;
  #retries = 0;
  #requestBytes = 0;
  #responseBytes = 0;

  /** The time since the call came in, in ms. */
  get ageMs(): number {
    return performance.now() - this.#startedAt;
  }

  /** The time since the present phase began, in ms. */
  get phaseMs(): number {
    return performance.now() - this.#phaseAt;
  }

  /** The credentials are there. */
  credentialed(): void {
    this.#credentialsMs = rounded(performance.now() - this.#startedAt);
  }

  /** The call waits for the provider's quota. */
  queued(): void {
    this.#queuedAt = performance.now();
  }

  /** A request is on its way. */
  sent(): void {
    this.#phaseAt = performance.now();
    this.#connectMs = undefined;
    this.#requests += 1;
    this.#leaveQueue();
  }

  /** A connection is open, and the request goes out on it. */
  connected(): void {
    this.#connectMs = this.#endPhase();
  }

  /** The call is retried. */
  retried(): void {
    this.#retries += 1;
  }

  /** The head of the response for the caller has arrived. */
  answered(status: number): void {
    this.#firstByteMs = this.#endPhase();
    this.#status = status;
  }

  /** With the bytes of the bodies: sent in the last request, and received for the caller. */
  ended(requestBytes: number, responseBytes: number): void {
    this.#requestBytes = requestBytes;
    this.#responseBytes = responseBytes;
    if (this.#status !== undefined) this.#bodyMs = this.#endPhase();
  }

  /** The line for the activity log; to be called at the end. */
  operation(
    {
      id,
      caller,
      request,
      run,
    }: { id: string; caller: ProxyCaller; request: IncomingMessage; run?: string | undefined },
    { outcome, error }: Ended,
  ): Operation {
    this.#leaveQueue();
    const endedAt = this.#endedAt();
    const status = this.#statusAfter(error);
    const isCutShort = outcome !== undefined && outcome !== 'answered';
    const isSuccess = outcome === 'answered' && status !== undefined && status < 400;
    const { headers, method, url = '' } = request;
    return {
      environmentId: caller.environmentId,
      type: 'proxy',
      status: isSuccess ? 'success' : 'failed',
      integration: nameIn(headers['provider-config-key']),
      connection: nameIn(headers['connection-id']),
      actor: actorOf(caller),
      requestId: id,
      durationMs: rounded(endedAt - this.#startedAt),
      method,
      path: redactedTarget(url.startsWith('/proxy/') ? url.slice('/proxy'.length) : url),
      httpStatus: status,
      errorCode: error === undefined ? undefined : codeOf(error),
      messages: error === undefined ? undefined : [{ level: 'error', message: messageOf(error) }],
      requests: this.#requests,
      retries: this.#retries,
      requestBytes: this.#requestBytes,
      answerBytes: this.#responseBytes,
      credentialsMs: this.#credentialsMs,
      quotaMs: rounded(this.#quotaMs),
      connectMs: this.#connectMs,
      firstByteMs: this.#firstByteMs,
      bodyMs: this.#bodyMs,
      details:
        isCutShort || run !== undefined
          ? { ...(isCutShort && { outcome }), ...(run !== undefined && { run }) }
          : undefined,
    };
  }

  /** Counts the call in the metrics; to be called at the end. A call without a provider was refused early. */
  count(provider: string | undefined, { outcome, error }: Ended): void {
    this.#leaveQueue();
    const of = cellsOf(provider);
    const status = statusClass(this.#statusAfter(error));
    if (outcome === 'answered' && status === '2xx') of.answered.add();
    else metrics.proxyCalls.add([of.provider, status, outcome ?? 'error']);
    if (error !== undefined) metrics.proxyErrors.add([of.provider, codeOf(error)]);
    of.duration.observe((this.#endedAt() - this.#startedAt) / 1000);
    if (this.#firstByteMs !== undefined) of.firstByte.observe(this.#firstByteMs / 1000);
    of.upstream.add(this.#requests);
    of.requestBytes.add(this.#requestBytes);
    of.answerBytes.add(this.#responseBytes);
    if (this.#retries > 0) metrics.proxyRetries.add([of.provider], this.#retries);
    if (this.#quotaMs > 0) metrics.proxyQuotaWait.observe([of.provider], this.#quotaMs / 1000);
  }

  /** Does not read the clock again if the body has just ended. */
  #endedAt(): number {
    return this.#bodyMs === undefined ? performance.now() : this.#phaseAt;
  }

  #statusAfter(error: unknown): number | undefined {
    if (error === undefined) return this.#status;
    return error instanceof AppError ? error.status : 500;
  }

  #endPhase(): number {
    const began = this.#phaseAt;
    this.#phaseAt = performance.now();
    return rounded(this.#phaseAt - began);
  }

  #leaveQueue(): void {
    if (this.#queuedAt !== undefined) this.#quotaMs += performance.now() - this.#queuedAt;
    this.#queuedAt = undefined;
  }
}

function codeOf(error: unknown): string {
  return error instanceof AppError ? error.code : 'internal';
}

function messageOf(error: unknown): string {
  return error instanceof AppError ? error.message : 'unexpected error';
}

/** The name as the caller sent it, whether it exists or not. */
function nameIn(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' ? header.slice(0, 255) : undefined;
}

function rounded(ms: number): number {
  return Math.round(ms * 100) / 100;
}

/** The spans of the requests of one call, below the span of the call. They name the provider's host, never the path. */
export class AttemptSpans {
  readonly #call: { method: string; provider: string; parent: Span };
  #open: Span | undefined;
  #sent = 0;

  constructor(call: { method: string; provider: string; parent: Span }) {
    this.#call = call;
  }

  /** A request is sent to this origin; the previous one is over. */
  begin(origin: string): void {
    this.end();
    const { method, provider, parent } = this.#call;
    const { hostname, port, protocol } = new URL(origin);
    this.#open = startSpan(method, {
      kind: 'client',
      parent,
      attributes: {
        'http.request.method': method,
        'server.address': hostname,
        'server.port': Number(port) || (protocol === 'http:' ? 80 : 443),
        'trellis.provider': provider,
        ...(this.#sent > 0 && { 'http.request.resend_count': this.#sent }),
      },
    });
    this.#sent += 1;
  }

  answered(status: number): void {
    this.#open?.set({
      'http.response.status_code': status,
      ...(status >= 400 && { 'error.type': String(status) }),
    });
  }

  /** The response was read, or there is none because of `error`. */
  end(error?: string): void {
    this.#open?.end(error);
    this.#open = undefined;
  }
}

/** A failed call, and its origin if that was known. */
type FailedCall = {
  readonly reqId: string;
  readonly origin: string | undefined;
  readonly error: AppError;
};

const gatheredMs = 1_000;

/**
 * Logs failed calls, with their causes, once a second for each origin and code: a write to the log blocks the process, and a
 * provider that is down fails hundreds of calls a second. The outcome of each call is in the activity log.
 */
export class FailureLog {
  readonly #log: Logger;
  /** The number of calls since the last line of their kind, and the last call. */
  readonly #gathered = new Map<string, { count: number; last: FailedCall | undefined }>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Writes the first call of a kind at once, and those of the following second as one line with their count. */
  add(call: FailedCall): void {
    const kind = `${call.error.code} ${call.origin ?? ''}`;
    const known = this.#gathered.get(kind);
    if (known === undefined) {
      this.#write(call, 1);
      this.#gather(kind);
    } else {
      known.count += 1;
      known.last = call;
    }
  }

  #gather(kind: string): void {
    const gathered: { count: number; last: FailedCall | undefined } = { count: 0, last: undefined };
    this.#gathered.set(kind, gathered);
    const flush = () => {
      this.#gathered.delete(kind);
      if (gathered.last === undefined) return;
      this.#write(gathered.last, gathered.count);
      this.#gather(kind);
    };
    setTimeout(flush, gatheredMs).unref();
  }

  #write({ reqId, origin, error }: FailedCall, count: number): void {
    this.#log.warn({ reqId, origin, count, err: error }, 'proxied requests failed');
  }
}
