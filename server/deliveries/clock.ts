/** The database's time, told by this machine's clock and by what that was last seen to be ahead. */
type Clock = {
  /** In milliseconds since the epoch. */
  nowMs(): number;
  /** Runs a statement that answers the database's time beside what it is for. */
  compare<T extends { databaseMs: number }>(ask: () => Promise<T>): Promise<T>;
};

/** What varies from one comparison to the next is the time that they take; what is due at once must not be due a little later. */
const ignoredMs = 1_000;
/** More is a machine whose time is not kept. */
const toldMs = 5_000;

/**
 * So the node whose clock is fastest ends no pause and no open breaker for all the others. `nowMs` is what is corrected, by as much as
 * `machineMs`, this machine's clock, differs from the database's; `onFarOff` is told where that is seconds.
 */
export function createClock({
  nowMs,
  machineMs,
  onFarOff,
}: {
  nowMs: () => number;
  machineMs: () => number;
  onFarOff: (aheadMs: number) => void;
}): Clock {
  let aheadMs = 0;
  return {
    nowMs: () => nowMs() - aheadMs,
    async compare(ask) {
      const startedMs = machineMs();
      const answer = await ask();
      const measuredMs = (startedMs + machineMs()) / 2 - answer.databaseMs;
      if (Math.abs(measuredMs - aheadMs) >= ignoredMs) {
        aheadMs = measuredMs;
        if (Math.abs(aheadMs) >= toldMs) onFarOff(aheadMs);
      }
      return answer;
    },
  };
}
