const tickMs = 20;

/** Who waits, and is told once when the time is over. */
type Waiting = { expireConnect(): void };

/**
 * One call's wait for a connection. Nearly every call has its connection within the same turn of the event loop, so all
 * that wait share one timer, in a list from which each takes itself out. A Map of them would not do: the tables that it
 * outgrows keep the calls of which they once told alive until the old generation is collected.
 */
export class ConnectWait {
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
