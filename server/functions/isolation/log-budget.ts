export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

/** The writing side truncates longer lines. */
export const maxLineBytes = 8 * 1024;

const burst = { lines: 5_000, bytes: 4 * 1024 * 1024 };
const perSecond = { lines: 100, bytes: 64 * 1024 };

/**
 * How much a run may write to its log: a burst, and then a constant rate. Both sides count: the process of the code, so that
 * it ends before its queue fills its memory, and the service, which does not trust the process.
 */
export class LogBudget {
  #lines = burst.lines;
  #bytes = burst.bytes;
  #at: number;

  /** Times in milliseconds of any clock that does not go back. */
  constructor(nowMs: number) {
    this.#at = nowMs;
  }

  /** Whether the line is within the budget. */
  take(bytes: number, nowMs: number): boolean {
    const seconds = Math.max(0, nowMs - this.#at) / 1000;
    this.#at = nowMs;
    this.#lines = Math.min(burst.lines, this.#lines + seconds * perSecond.lines) - 1;
    this.#bytes = Math.min(burst.bytes, this.#bytes + seconds * perSecond.bytes) - bytes;
    return this.#lines >= 0 && this.#bytes >= 0;
  }
}
