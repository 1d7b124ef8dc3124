/**
 * Turns calls away before the node falls behind with those it has taken.
 *
 * Owns: when there is too much to do, and which calls are refused then. Does not own: limits of a caller
 * (`rate-limit.ts`), of connections (`server.ts`) and of large bodies (`body-memory.ts`).
 *
 * Too much is a queue that stands: ten times a second it is looked how late the event loop comes and how many wait for a
 * connection to the database, and only where looks in a row find more than allowed for a second are calls refused, a few at first.
 * So a collection of garbage, a burst or a stopped process refuses nobody (the idea of CoDel, RFC 8289 §3.2). The share grows
 * while the queue stands, stays while it shrinks, and falls slowly once it is gone, so that the load does not swing.
 */
import { AppError } from '../errors.ts';
import { metrics } from '../metrics/metrics.ts';

const lookEveryMs = 100;
/** Looks that find too much for so long are a queue; one of them alone is a pause. */
const standingMs = 1_000;
const standingLooks = 2;
/** A second of too much refuses half of the calls, a second without gives a fifth of them back. */
const growPerMs = 0.5 / 1_000;
const fallBy = 0.02;

type Look = {
  /** How late the event loop came. */
  delayMs: number;
  /** Who waits for a connection to the database. */
  waiting: number;
};

type Settings = {
  /** A steady delay of the event loop beyond this is too much. */
  maxDelayMs: number;
  /** So many who wait for the database are too many. */
  maxWaiting: number;
  random?: () => number;
};

export class Overload {
  readonly #settings: Settings;
  /** Of ordinary calls, and of what is refused last, how many are refused: 0 to 1. */
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

  /** Looks by itself from now on, until `stop`. */
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

  /** Why a request is refused; undefined: it is not. */
  refusalOf(url: string): AppError | undefined {
    if (this.#ordinary === 0) return undefined;
    const share = isVital(url) ? 0 : isLast(url) ? this.#last : this.#ordinary;
    const { random = Math.random } = this.#settings;
    if (share === 0 || random() >= share) return undefined;
    metrics.httpRefused.add(['overloaded']);
    // Spread, so that those who are told to come again do not come together.
    return new AppError('overloaded', undefined, { retryAfterS: 1 + Math.floor(random() * (1 + 4 * share)) });
  }
}

/** A monitor of the node must reach these. */
const vital = new Set(['/health', '/ready', '/metrics']);

function isVital(url: string): boolean {
  return vital.has(pathOf(url));
}

/** What comes once, from somebody who may not come again: a provider's webhook, a browser on its way back. */
function isLast(url: string): boolean {
  return url.startsWith('/webhook/') || pathOf(url) === '/oauth/callback';
}

function pathOf(url: string): string {
  const end = url.indexOf('?');
  return end === -1 ? url : url.slice(0, end);
}
