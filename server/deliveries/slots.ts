/** What may be under way from this node, so that endpoints do not hold each other up. */
type Slots = {
  /** How many more may be begun. */
  free(): number;
  /** Endpoints in the order in which they get what is free. */
  inOrder(endpoints: readonly number[]): number[];
  /** Takes a slot until `end` of the answer; `during` runs an attempt in it. */
  take(endpoint: number): Slot;
};

export type Slot = {
  during<T>(attempt: () => Promise<T>): Promise<T>;
  end(): void;
};

/**
 * `max` slots. An attempt that takes longer than `slowAfterMs` needs none from then on (`onFree` hears of it), so endpoints that
 * let us wait keep nobody else waiting; and as long as one does, it comes after those that do not, and gets nothing at all
 * while more than `max` attempts are waited for so. With an end to every attempt all that is bounded: by `max` times
 * that end over `slowAfterMs`.
 */
export function createSlots({
  max,
  slowAfterMs,
  onFree,
  random,
}: {
  max: number;
  slowAfterMs: number;
  onFree: () => void;
  random: () => number;
}): Slots {
  let taken = 0;
  let slow = 0;
  const slowAt = new Map<number, number>();

  function count(endpoint: number, change: 1 | -1): void {
    const left = (slowAt.get(endpoint) ?? 0) + change;
    if (left === 0) slowAt.delete(endpoint);
    else slowAt.set(endpoint, left);
    slow += change;
    taken -= change;
  }

  return {
    free: () => Math.max(0, max - taken),
    inOrder(endpoints) {
      const mixed = shuffled(endpoints, random);
      const waitedFor = slow < max ? mixed.filter((endpoint) => slowAt.has(endpoint)) : [];
      return mixed.filter((endpoint) => !slowAt.has(endpoint)).concat(waitedFor);
    },
    take(endpoint) {
      taken += 1;
      return {
        async during(attempt) {
          let isSlow = false;
          const timer = setTimeout(() => {
            isSlow = true;
            count(endpoint, 1);
            onFree();
          }, slowAfterMs);
          try {
            return await attempt();
          } finally {
            clearTimeout(timer);
            if (isSlow) count(endpoint, -1);
          }
        },
        end() {
          taken -= 1;
        },
      };
    },
  };
}

/** So that no endpoint always comes first where a node cannot serve all. */
function shuffled<T>(items: readonly T[], random: () => number): T[] {
  const left = [...items];
  for (let last = left.length - 1; last > 0; last -= 1) {
    const other = Math.floor(random() * (last + 1));
    [left[last], left[other]] = [left[other] as T, left[last] as T];
  }
  return left;
}
