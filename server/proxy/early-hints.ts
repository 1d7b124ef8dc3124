import type { ServerResponse } from 'node:http';

/** So many interim answers are sent on. */
const maxHints = 16;

/**
 * The interim answers of one request, from the first of them on.
 *
 * undici restarts its limit for the answer's head with each, so a provider could keep a call open for ever. All of them
 * together have `leftMs`, once `isAwaited` says that the provider has the whole request; then `expire` is called, once.
 */
export class EarlyHints {
  readonly #timer: NodeJS.Timeout;
  #sent = 0;

  constructor(leftMs: number, { isAwaited, expire }: { isAwaited(): boolean; expire(): void }) {
    this.#timer = setTimeout(() => (isAwaited() ? expire() : this.#timer.refresh()), Math.max(1, leftMs));
  }

  /** Sends one on, unless the caller has had enough of them or is behind with reading. */
  send(response: ServerResponse, headers: () => string[]): void {
    if (this.#sent >= maxHints || response.socket?.writableNeedDrain === true) return;
    this.#sent += 1;
    try {
      response.writeInformation(103, headers());
    } catch {
      // One that cannot be sent on is as good as none.
    }
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}
