import type { About } from './http.ts';

/** How one account's tokens of one client were refreshed since the start. */
interface RefreshCount {
  sub: string;
  clientId: string;
  asked: number;
  /** How often a new access token was issued, whether or not the answer arrived. */
  accepted: number;
  /** How many requests are under way, and were at the same time at most. */
  underWay: number;
  maxAtOnce: number;
}

/** How many pairs of account and client are remembered; the oldest go first. */
const PAIR_LIMIT = 10_000;

/** Counts refreshes by account and client, so that a test can say "one accepted, never two at once". */
export class Refreshes {
  #entries = new Map<string, RefreshCount>();

  /** Notes that a refresh began. Nothing is counted for a token that was never issued. Call the answer at its end. */
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
    if (this.#entries.size > PAIR_LIMIT) this.#entries.delete(this.#entries.keys().next().value!);
    return entry;
  }
}
