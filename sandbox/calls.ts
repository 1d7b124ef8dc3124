/** One request that was answered, or not. */
export interface Call {
  /** Milliseconds of the sandbox's clock. */
  at: number;
  route: string;
  sub?: string | undefined;
  clientId?: string | undefined;
  /** `reset`: broken without a byte; `cut`: in the middle; `gone`: the caller did not wait. */
  outcome: number | 'reset' | 'cut' | 'gone';
  /** The faults that struck it. */
  faults: string[];
}

/** Counts requests by route since the start, so that a test can say "the provider was asked once". */
export interface Calls {
  count(route: string): void;
  /** Route (`POST /token`) to number of requests, sorted by route. */
  list(): Record<string, number>;
  /** Notes how a request ended; the last hundred are kept. */
  note(call: Call): void;
  /** The calls that ended last, newest first. */
  last(): Call[];
}

const KEPT = 100;

/** An empty count. */
export function createCalls(): Calls {
  const counts = new Map<string, number>();
  let last: Call[] = [];
  return {
    count: (route) => {
      counts.set(route, (counts.get(route) ?? 0) + 1);
    },
    list: () => Object.fromEntries([...counts].sort(([a], [b]) => (a < b ? -1 : 1))),
    note: (call) => {
      last = [call, ...last].slice(0, KEPT);
    },
    last: () => [...last],
  };
}
