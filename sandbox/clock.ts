/** The clock of the sandbox. All expiry times use it instead of the machine's clock. */
export type Clock = ReturnType<typeof createClock>;

/** A clock that follows `base` (milliseconds since the epoch) and can be moved ahead of it. */
export function createClock(base: () => number) {
  let offsetMs = 0;
  return {
    /** Milliseconds since the epoch. */
    now: () => base() + offsetMs,
    /** Moves the clock forward. */
    advance: (seconds: number) => {
      offsetMs += seconds * 1000;
    },
    /** The offset to the base in seconds; 0 at each start of the sandbox. */
    offsetSeconds: () => offsetMs / 1000,
  };
}
