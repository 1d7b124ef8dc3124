/**
 * The windows of all quotas in PostgreSQL, in the table `quota_book`, and the time that all nodes share.
 *
 * A change is computed from the version that this node read last, and written if that is still the newest: one short
 * statement, and one more for each time that another node was faster. No lock is held between statements.
 */
import type { Db } from '../../db/pool.ts';
import type { Job } from '../../jobs/jobs.ts';
import { cellAt, type Pages, type Rule, SlidingWindow } from './sliding-window.ts';

/** A stored window as this node read it last; undefined: it was never read, or did not exist. */
export type Known = { readonly pages: Pages; readonly version: string } | undefined;

export type WindowStore = {
  /** The estimated time of the database, in ms. */
  now(): number;
  /**
   * Changes a window and resolves when it is written. `change` may be called several times, each time with the newest window
   * and the present time; the result of the last call counts.
   */
  change<T>(given: {
    bucket: string;
    rule: Rule;
    known: Known;
    change: (window: SlidingWindow, now: number) => T;
  }): Promise<{ result: T; known: Known; window: SlidingWindow }>;
};

/** A window that was not written for so long is empty, whatever its length. */
const keptS = 86_400;
/** The maximum drift between the clocks of the database and this machine, larger than that of a clock being adjusted. */
const driftShare = 0.001;

type WrittenWindow = { wrote: boolean; pages: Pages | null; version: string | null; clock: number };

export function createWindowStore(db: Db, { monotonic = () => performance.now() } = {}): WindowStore {
  /** The minimum and maximum of the database's lead over our clock, and when they were computed. */
  let clock: { minMs: number; maxMs: number; at: number } | undefined;

  /**
   * The database reads its clock between request and response, so each statement bounds the lead, and the intersection of
   * all bounds counts: a slow statement does no harm. If it is empty, a clock was set, and only the newest bounds count.
   */
  function updateClock(sentAt: number, databaseMs: number): void {
    const at = monotonic();
    const sample = { minMs: databaseMs - at, maxMs: databaseMs - sentAt, at };
    const driftMs = clock === undefined ? Number.POSITIVE_INFINITY : (at - clock.at) * driftShare;
    const minMs = Math.max(sample.minMs, (clock?.minMs ?? 0) - driftMs);
    const maxMs = Math.min(sample.maxMs, (clock?.maxMs ?? 0) + driftMs);
    clock = minMs <= maxMs ? { minMs, maxMs, at } : sample;
  }

  async function readClock(): Promise<void> {
    const sentAt = monotonic();
    const [row] = await db.query<{ clock: number }>(
      `select extract(epoch from clock_timestamp())::float8 * 1000 as clock`,
    );
    updateClock(sentAt, row?.clock ?? Date.now());
  }

  // The time of this machine, until the first statement.
  const guessMs = Date.now() - monotonic();
  const now = () => monotonic() + (clock === undefined ? guessMs : (clock.minMs + clock.maxMs) / 2);

  return {
    now,
    async change({ bucket, rule, change, ...given }) {
      if (clock === undefined) await readClock();
      for (let known = given.known; ; ) {
        const window = new SlidingWindow(known?.pages);
        const result = change(window, now());
        const pages = window.pages(cellAt(rule, now()));
        const version = crypto.randomUUID();
        const sentAt = monotonic();
        const [row] = await db.query<WrittenWindow>(
          `with written as (
             insert into quota_book (bucket, pages, version)
             values ($1, $2, $3)
             on conflict (bucket) do update
             set pages = excluded.pages, version = excluded.version, written_at = now()
             where quota_book.version = $4
             returning version
           )
           select
             exists (select from written) as wrote,
             quota_book.pages,
             quota_book.version,
             extract(epoch from clock_timestamp())::float8 * 1000 as clock
           from (select) as one
           left join quota_book on quota_book.bucket = $1`,
          [bucket, JSON.stringify(pages), version, known?.version ?? null],
        );
        if (row === undefined) throw new Error('a statement without a row');
        updateClock(sentAt, row.clock);
        if (row.wrote) return { result, known: { pages, version }, window };
        known = row.pages && row.version ? { pages: row.pages, version: row.version } : undefined;
      }
    },
  };
}

/** Removes the windows of unused quotas. */
export function quotaSweepJob(db: Db): Job<Record<string, never>> {
  return {
    name: 'quota.sweep',
    run: async () => {
      await db.query(`delete from quota_book where written_at < now() - make_interval(secs => $1)`, [keptS]);
    },
  };
}
