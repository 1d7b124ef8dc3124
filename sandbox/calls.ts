import type { About } from './http.ts';

/** A request to the provider. */
export interface Call {
  /** Milliseconds of the sandbox's clock. */
  at: number;
  route: string;
  sub?: string | undefined;
  clientId?: string | undefined;
  /** The status; `reset`: connection reset without a response; `cut`: truncated; `gone`: the client disconnected. */
  outcome: number | 'reset' | 'cut' | 'gone';
  /** The faults applied to it. */
  faults: string[];
}

const maxKept = 100;

/** Counts requests by route since the start, so that a test can assert "the provider was called once". */
export class Calls {
  #counts = new Map<string, number>();
  #last: Call[] = [];

  count(route: string): void {
    this.#counts.set(route, (this.#counts.get(route) ?? 0) + 1);
  }

  /** Route (`POST /token`) to number of requests, sorted by route. */
  list(): Record<string, number> {
    return Object.fromEntries([...this.#counts].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** Records the end of a request; the last hundred are kept. */
  record(call: Call): void {
    this.#last = [call, ...this.#last].slice(0, maxKept);
  }

  /** The calls that ended last, newest first. */
  last(): readonly Call[] {
    return this.#last;
  }
}

/** The refreshes of an account's tokens by a client since the start. */
interface RefreshCount {
  sub: string;
  clientId: string;
  asked: number;
  /** The number of access tokens issued, whether or not the response arrived. */
  accepted: number;
  /** The number of concurrent requests, now and at most. */
  underWay: number;
  maxAtOnce: number;
}

/** The limit of stored pairs of account and client; the oldest are dropped first. */
const pairLimit = 10_000;

/** Counts refreshes by account and client, so that a test can assert "one accepted, never two at once". */
export class Refreshes {
  #entries = new Map<string, RefreshCount>();

  /** Counts the start of a refresh. Tokens that were never issued are not counted. The caller calls `end` at the end. */
  begin(about: About): { accept: () => void; end: () => void } {
    const { sub, clientId } = about;
    if (sub === undefined || clientId === undefined) return { accept: () => {}, end: () => {} };
    const entry = this.#entry(sub, clientId);
    entry.asked += 1;
    entry.underWay += 1;
    entry.maxAtOnce = Math.max(entry.maxAtOnce, entry.underWay);
    return {
      accept: () => {
        entry.accepted += 1;
      },
      end: () => {
        entry.underWay -= 1;
      },
    };
  }

  /** Oldest pair first. */
  list(): RefreshCount[] {
    return [...this.#entries.values()];
  }

  #entry(sub: string, clientId: string): RefreshCount {
    const key = `${sub} ${clientId}`;
    const known = this.#entries.get(key);
    if (known !== undefined) return known;
    const entry = { sub, clientId, asked: 0, accepted: 0, underWay: 0, maxAtOnce: 0 };
    this.#entries.set(key, entry);
    if (this.#entries.size > pairLimit) this.#entries.delete(this.#entries.keys().next().value!);
    return entry;
  }
}
