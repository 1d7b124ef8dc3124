import type { FastifyRequest } from 'fastify';
import { actorOf } from '../activity/audit.ts';
import type { Operation } from '../activity/operations.ts';
import { redactedTarget } from '../activity/redact.ts';
import { AppError } from '../errors.ts';
import type { Outcome } from './forward.ts';

/** What is noted of one call on its way, for its line in the activity log. Times in ms. */
export class CallTrace {
  readonly #startedAt = performance.now();
  #queuedAt: number | undefined;
  #sentAt = 0;
  #quotaMs = 0;
  #credentialsMs = 0;
  #firstByteMs: number | undefined;
  #status: number | undefined;
  #requests = 0;
  #requestBytes = 0;
  #answerBytes = 0;

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
    this.#sentAt = performance.now();
    this.#requests += 1;
    this.#leaveQueue();
  }

  /** The head of the answer that the caller gets. */
  answered(status: number): void {
    this.#firstByteMs = rounded(performance.now() - this.#sentAt);
    this.#status = status;
  }

  /** Bytes of the bodies: sent in the last request, and received for the caller. */
  ended(requestBytes: number, answerBytes: number): void {
    this.#requestBytes = requestBytes;
    this.#answerBytes = answerBytes;
  }

  /** The line for the log, when nothing more happens. */
  operation(request: FastifyRequest, { outcome, error }: { outcome?: Outcome; error?: unknown }): Operation {
    this.#leaveQueue();
    const status = error === undefined ? this.#status : error instanceof AppError ? error.status : 500;
    const isSuccess = outcome === 'answered' && status !== undefined && status < 400;
    const { headers, caller, originalUrl } = request;
    return {
      environmentId: caller.environmentId,
      type: 'proxy',
      status: isSuccess ? 'success' : 'failed',
      integration: nameIn(headers['provider-config-key']),
      connection: nameIn(headers['connection-id']),
      actor: actorOf(caller),
      requestId: request.id,
      durationMs: rounded(performance.now() - this.#startedAt),
      method: request.method,
      path: redactedTarget(
        originalUrl.startsWith('/proxy/') ? originalUrl.slice('/proxy'.length) : originalUrl,
      ),
      httpStatus: status,
      errorCode: error === undefined ? undefined : codeOf(error),
      messages: error === undefined ? undefined : [{ level: 'error', message: messageOf(error) }],
      requests: this.#requests,
      requestBytes: this.#requestBytes,
      answerBytes: this.#answerBytes,
      credentialsMs: this.#credentialsMs,
      quotaMs: rounded(this.#quotaMs),
      firstByteMs: this.#firstByteMs,
      details: outcome === undefined || outcome === 'answered' ? undefined : { outcome },
    };
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
