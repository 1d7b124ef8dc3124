import type { Span } from '../tracing/span.ts';
import { startSpan } from '../tracing/tracing.ts';
import type { Attempt } from './attempt.ts';

/** The requests that one call sends to its provider, each a span below the call's: where it goes, never by which path. */
export class AttemptSpans {
  readonly #of: { method: string; provider: string; parent: Span };
  #open: Span | undefined;
  #sent = 0;

  constructor(of: { method: string; provider: string; parent: Span }) {
    this.#of = of;
  }

  /** A request goes out; the one before it is over. */
  begin({ origin }: Attempt): void {
    this.end();
    const { method, provider, parent } = this.#of;
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

  /** Once its answer is read, or there will be none: `error` says why. */
  end(error?: string): void {
    this.#open?.end(error);
    this.#open = undefined;
  }
}
