/** Counts requests by route since the start, so that a test can say "the provider was asked once". */
export interface Calls {
  count(route: string): void;
  /** Route (`POST /token`) to number of requests, sorted by route. */
  list(): Record<string, number>;
}

/** An empty count. */
export function createCalls(): Calls {
  const counts = new Map<string, number>();
  return {
    count: (route) => {
      counts.set(route, (counts.get(route) ?? 0) + 1);
    },
    list: () => Object.fromEntries([...counts].sort(([a], [b]) => (a < b ? -1 : 1))),
  };
}
