/** The sandbox's own time: everything that expires here asks this clock, never the machine's. */
export interface Clock {
  /** Milliseconds since the epoch, as the sandbox sees it. */
  now(): number;
  /** Moves the clock forward by this many seconds; what expires in between is expired at once. */
  advance(seconds: number): void;
  /** How far ahead of its base the clock stands, in seconds. Starts at 0 with each start of the sandbox. */
  offsetSeconds(): number;
}

/** A clock that runs with `base` (milliseconds since the epoch) and can be moved ahead of it. */
export function createClock(base: () => number): Clock {
  let offsetMs = 0;
  return {
    now: () => base() + offsetMs,
    advance: (seconds) => {
      offsetMs += seconds * 1000;
    },
    offsetSeconds: () => offsetMs / 1000,
  };
}
