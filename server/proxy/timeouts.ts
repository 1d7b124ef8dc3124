import type { ServerResponse } from 'node:http';
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

const tickMs = 20;

/** Who waits, and is told once when the time is over. */
type Waiting = { expireConnect(): void };

/**
 * One call's wait for a connection. Nearly every call has its connection within the same turn of the event loop, so all
 * that wait share one timer, in a list from which each takes itself out. A Map of them would not do: the tables that it
 * outgrows keep the calls of which they once told alive until the old generation is collected.
 */
class ConnectWait {
  readonly #deadline: number;
  #call: Waiting | undefined;
  #before: ConnectWait | undefined;
  #behind: ConnectWait | undefined;

  /** Tells the call after so many ms, or up to 20 later, unless `end` is called before. */
  constructor(call: Waiting, limitMs: number) {
    this.#deadline = performance.now() + limitMs;
    this.#call = call;
    this.#behind = first;
    if (first !== undefined) first.#before = this;
    first = this;
    timer ??= setInterval(tick, tickMs);
  }

  /** Harmless once it has ended. */
  end(): void {
    if (this.#call === undefined) return;
    this.#call = undefined;
    if (this.#before === undefined) first = this.#behind;
    else this.#before.#behind = this.#behind;
    if (this.#behind !== undefined) this.#behind.#before = this.#before;
    this.#before = undefined;
    this.#behind = undefined;
  }

  /** Ends all whose time is over. */
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

/** So many interim answers are sent on. */
const maxHints = 16;

/**
 * The interim answers of one request, from the first of them on.
 *
 * undici restarts its limit for the answer's head with each, so a provider could keep a call open for ever. All of them
 * together have `leftMs`, once `isAwaited` says that the provider has the whole request; then `expire` is called, once.
 */
class EarlyHints {
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
