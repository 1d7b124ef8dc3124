import type { ServerResponse } from 'node:http';
import { ConnectWait } from './connect-wait.ts';
import { EarlyHints } from './early-hints.ts';
import type { Waits } from './waits.ts';

/** The times that one call keeps itself, each of them once at a time: undici keeps those of an answer and its body. */
export class CallTimeouts {
  #connect: ConnectWait | undefined;
  #hints: EarlyHints | undefined;
  #total: NodeJS.Timeout | undefined;
  #wait: NodeJS.Timeout | undefined;
  #endWait: (() => void) | undefined;

  /** The whole call may take so much longer (ms). */
  limitCall(leftMs: number, expire: () => void): void {
    this.#total = setTimeout(expire, leftMs);
  }

  /** A connection may take so long (ms), or up to 20 ms longer. */
  limitConnect(waiting: { expireConnect(): void }, limitMs: number): void {
    this.#connect = new ConnectWait(waiting, limitMs);
  }

  connected(): void {
    this.#connect?.end();
  }

  /** From an attempt's first interim answer on all of them together have so long (ms): see `EarlyHints`. */
  limitHints(leftMs: number, ends: ConstructorParameters<typeof EarlyHints>[1]): void {
    this.#hints ??= new EarlyHints(leftMs, ends);
  }

  /** Sends an interim answer on. */
  hint(response: ServerResponse, headers: () => string[]): void {
    this.#hints?.send(response, headers);
  }

  /** The attempt has its answer, or has failed. */
  endAttempt(): void {
    this.#connect?.end();
    this.#hints?.end();
    this.#hints = undefined;
  }

  /** Calls `go` after so long (ms), or `refuse` where the service stops before. */
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
