import type { IncomingMessage } from 'node:http';
import { actorOf } from '../activity/audit.ts';
import type { Operation } from '../activity/operations.ts';
import { redactedTarget } from '../activity/redact.ts';
import { AppError } from '../errors.ts';
import type { ProxyCaller } from '../http/caller.ts';
import { cellsOf, metrics, statusClass } from '../metrics/metrics.ts';
import type { Outcome } from './exchange.ts';

/** Whose call it is. */
type Logged = { readonly id: string; readonly caller: ProxyCaller; readonly request: IncomingMessage };

/** How a call ended: with an answer of the provider's, or with an error of ours. */
export type Ended = { outcome?: Outcome; error?: unknown };

/** What is noted of one call on its way, for its line in the activity log. Times in ms. */
export class CallTrace {
  readonly #startedAt = performance.now();
  #queuedAt: number | undefined;
  /** When the phase began that the call is in. */
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
  #answerBytes = 0;

  /** How long ago the call came in, in ms. */
  get ageMs(): number {
    return performance.now() - this.#startedAt;
  }

  /** How long the call has been in its present phase, in ms. */
  get phaseMs(): number {
    return performance.now() - this.#phaseAt;
  }

  /** The call can be made as far as its credentials go. */
  credentialed(): void {
    this.#credentialsMs = rounded(performance.now() - this.#startedAt);
  }

  /** It has to wait for the provider's quota. */
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

  /** The call is tried once more. */
  retried(): void {
    this.#retries += 1;
  }

  /** The head of the answer that the caller gets. */
  answered(status: number): void {
    this.#firstByteMs = this.#endPhase();
    this.#status = status;
  }

  /** Bytes of the bodies: sent in the last request, and received for the caller. */
  ended(requestBytes: number, answerBytes: number): void {
    this.#requestBytes = requestBytes;
    this.#answerBytes = answerBytes;
    if (this.#status !== undefined) this.#bodyMs = this.#endPhase();
  }

  /** The line for the log, when nothing more happens. */
  operation({ id, caller, request }: Logged, { outcome, error }: Ended): Operation {
    this.#leaveQueue();
    const endedAt = this.#endedAt();
    const status = this.#statusAfter(error);
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
      answerBytes: this.#answerBytes,
      credentialsMs: this.#credentialsMs,
      quotaMs: rounded(this.#quotaMs),
      connectMs: this.#connectMs,
      firstByteMs: this.#firstByteMs,
      bodyMs: this.#bodyMs,
      details: outcome === undefined || outcome === 'answered' ? undefined : { outcome },
    };
  }

  /** Counts it among the calls of its provider, when nothing more happens; without one it was refused before it was known. */
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
    of.answerBytes.add(this.#answerBytes);
    if (this.#retries > 0) metrics.proxyRetries.add([of.provider], this.#retries);
    if (this.#quotaMs > 0) metrics.proxyQuotaWait.observe([of.provider], this.#quotaMs / 1000);
  }

  /** What ended just now needs no other look at the clock. */
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

/** As the caller sent it, whether there is one of that name or not. */
function nameIn(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' ? header.slice(0, 255) : undefined;
}

function rounded(ms: number): number {
  return Math.round(ms * 100) / 100;
}
