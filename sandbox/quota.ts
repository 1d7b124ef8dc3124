import type { Clock } from './clock.ts';
import { quotaRefusal } from './faults/cases.ts';
import type { Reply } from './http.ts';

/** The limits of the Sheets API in a sliding window. */
interface QuotaLimits {
  readsPerProject: number;
  readsPerAccount: number;
  writesPerProject: number;
  writesPerAccount: number;
  windowS: number;
}

/** Google's, as documented for the Sheets API. */
export const googleLimits: QuotaLimits = {
  readsPerProject: 300,
  readsPerAccount: 60,
  writesPerProject: 300,
  writesPerAccount: 60,
  windowS: 60,
};

const readCall = /^GET |^POST .*(:getByDataFilter|\/values:batchGetByDataFilter|\/developerMetadata:search)$/;

/**
 * Counts calls by project and by account, and refuses calls above the limits. It is off until limits are set, so that other
 * tests can send many calls.
 *
 * The window is the last `windowS` seconds of the sandbox's clock at each call. Refused calls do not count.
 */
export class Quota {
  readonly #clock: Clock;
  readonly #taken = new Map<string, number[]>();
  #limits: QuotaLimits | undefined;
  #refused = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Sets the limits and resets the counts; undefined switches the quota off. */
  set(limits: QuotaLimits | undefined): void {
    this.#limits = limits;
    this.#taken.clear();
    this.#refused = 0;
  }

  get limits(): QuotaLimits | undefined {
    return this.#limits;
  }

  /** Calls refused since the limits were set. */
  get refused(): number {
    return this.#refused;
  }

  /** Counts a call; returns the response of a call above the limits. */
  take(call: { method: string; path: string; sub: string; projectNumber: string }): Reply | undefined {
    // The limits are those of the Sheets API; Drive has its own.
    if (this.#limits === undefined || !call.path.startsWith('/v4/')) return undefined;
    const { readsPerProject, readsPerAccount, writesPerProject, writesPerAccount, windowS } = this.#limits;
    const isRead = readCall.test(`${call.method} ${call.path.replaceAll(/%3a/gi, ':')}`);
    const kind = isRead ? 'Read' : 'Write';
    const budgets = [
      {
        per: 'User',
        key: `${kind} ${call.projectNumber} ${call.sub}`,
        count: isRead ? readsPerAccount : writesPerAccount,
      },
      {
        per: 'Project',
        key: `${kind} ${call.projectNumber}`,
        count: isRead ? readsPerProject : writesPerProject,
      },
    ] as const;
    const since = this.#clock.now() - windowS * 1000;
    for (const { per, key, count } of budgets) {
      const times = (this.#taken.get(key) ?? []).filter((at) => at > since);
      this.#taken.set(key, times);
      if (times.length < count) continue;
      this.#refused += 1;
      return quotaRefusal({ kind, per, count, projectNumber: call.projectNumber });
    }
    for (const { key } of budgets) this.#taken.get(key)?.push(this.#clock.now());
    return undefined;
  }
}
