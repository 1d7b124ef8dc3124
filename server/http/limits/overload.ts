/**
 * Refuses calls before the node falls behind with those that it has accepted.
 *
 * The node is overloaded if a queue persists (the idea of CoDel, RFC 8289 §3.2). Ten times a second, the delay of the event
 * loop and the number of waiters for a database connection are checked. Calls are refused only if checks in a row exceed a
 * limit for a second, so a garbage collection, a burst or a stopped process refuses none. The refused share grows while the
 * queue persists, stays while it shrinks, and falls slowly after it has gone, so that the load does not oscillate.
 */
import { AppError } from '../../errors.ts';
import { metrics } from '../../metrics/metrics.ts';

const lookEveryMs = 100;
/** Checks that exceed a limit for so long are a queue; a single check is a pause. */
const standingMs = 1_000;
const standingLooks = 2;
/** A second of overload refuses half of the calls; a second without reduces the share by a fifth. */
const growPerMs = 0.5 / 1_000;
const fallBy = 0.02;

type Look = {
  /** The delay of the event loop. */
  delayMs: number;
  /** The number of waiters for a database connection. */
  waiting: number;
};

type Settings = {
  /** The limit for a persistent delay of the event loop. */
  maxDelayMs: number;
  /** The limit for persistent waiters for the database. */
  maxWaiting: number;
  random?: () => number;
};

export class Overload {
  readonly #settings: Settings;
  /** The refused shares, 0 to 1, of ordinary calls, and of those that are refused last. */
  #ordinary = 0;
  #last = 0;
  #inRow = 0;
  #tooMuchMs = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  get share(): number {
    return this.#ordinary;
  }

  /** Checks until `stop`. */
  watch(waiting: () => number): void {
    let dueMs = performance.now() + lookEveryMs;
    const look = () => {
      const nowMs = performance.now();
      this.note({ delayMs: nowMs - dueMs, waiting: waiting() });
      dueMs = nowMs + lookEveryMs;
      this.#timer = setTimeout(look, lookEveryMs).unref();
    };
    this.#timer = setTimeout(look, lookEveryMs).unref();
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  note({ delayMs, waiting }: Look): void {
    const { maxDelayMs, maxWaiting } = this.#settings;
    const pressure = Math.max(delayMs / maxDelayMs, waiting / maxWaiting);
    const passedMs = lookEveryMs + Math.max(0, delayMs);
    this.#inRow = pressure > 1 ? this.#inRow + 1 : 0;
    this.#tooMuchMs = pressure > 1 ? this.#tooMuchMs + passedMs : 0;
    if (this.#inRow >= standingLooks && this.#tooMuchMs >= standingMs)
      this.#grow(Math.min(0.5, passedMs * growPerMs));
    else if (pressure < 0.5) this.#fall();
  }

  #grow(by: number): void {
    if (this.#ordinary < 1) this.#ordinary = Math.min(1, this.#ordinary + by);
    else this.#last = Math.min(1, this.#last + by);
  }

  #fall(): void {
    if (this.#last > 0) this.#last = Math.max(0, this.#last - fallBy);
    else this.#ordinary = Math.max(0, this.#ordinary - fallBy);
  }

  /** The error that refuses a request; undefined: it is accepted. */
  refusalOf(url: string): AppError | undefined {
    if (this.#ordinary === 0) return undefined;
    const share = isVital(url) ? 0 : isLast(url) ? this.#last : this.#ordinary;
    const { random = Math.random } = this.#settings;
    if (share === 0 || random() >= share) return undefined;
    metrics.httpRefused.add(['overloaded']);
    // Jitter, so that refused callers do not retry together.
    return new AppError('overloaded', undefined, { retryAfterS: 1 + Math.floor(random() * (1 + 4 * share)) });
  }
}

/** Monitors of the node must reach these. */
const vital = new Set(['/health', '/ready', '/metrics']);

function isVital(url: string): boolean {
  return vital.has(pathOf(url));
}

/** Requests that may not be repeated: a provider's webhook, a browser on its way back. */
function isLast(url: string): boolean {
  return url.startsWith('/webhook/') || pathOf(url) === '/oauth/callback';
}

function pathOf(url: string): string {
  const end = url.indexOf('?');
  return end === -1 ? url : url.slice(0, end);
}
