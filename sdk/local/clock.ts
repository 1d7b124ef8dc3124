/** A time that only timers move, so that two runs that do the same see the same. */
export type Clock = Readonly<Record<'Date' | 'setTimeout', unknown>>;

/**
 * `Date` and `setTimeout` for a function: it is `startMs` until a timer fires, and then as much later as it was set to.
 * `wait` says how a timer waits: for its time, or not at all.
 */
export function steadyClock(startMs: number, wait: (ms: number, fire: () => void) => NodeJS.Timeout): Clock {
  let nowMs = startMs;
  class SteadyDate extends Date {
    constructor(...given: [] | [number | string | Date]) {
      super(...((given.length === 0 ? [nowMs] : given) as [number]));
    }
    static override now(): number {
      return nowMs;
    }
    // A date that comes from outside is one, too.
    static override [Symbol.hasInstance](value: unknown): boolean {
      return Object.prototype.toString.call(value) === '[object Date]';
    }
  }
  const setTimeout = (fire: (...args: unknown[]) => void, ms = 0, ...args: unknown[]) => {
    const at = nowMs + Math.max(0, Number(ms) || 0);
    return wait(ms, () => {
      nowMs = Math.max(nowMs, at);
      fire(...args);
    });
  };
  return { Date: SteadyDate, setTimeout };
}

/** Runs it in the time zone UTC, so that a day is the same day on every machine. One at a time. */
export async function inUtc<T>(run: () => Promise<T>): Promise<T> {
  const { TZ } = process.env;
  process.env.TZ = 'UTC';
  try {
    return await run();
  } finally {
    if (TZ === undefined) delete process.env.TZ;
    else process.env.TZ = TZ;
  }
}
