/**
 * The books of all nodes in PostgreSQL. Owns the table `quota_book` and the time that nodes agree on.
 *
 * A change is worked out here from the version that this node saw last and written if that is still the newest: one
 * short statement, and one more for each time that another node was faster. No lock is held between statements.
 */
import type { Db } from '../../db/pool.ts';
import type { Job } from '../../jobs/jobs.ts';
import { cellAt, type Pages, type Rule, SlidingWindow } from './sliding-window.ts';

/** A book as this node saw it last; undefined: never, or there was none. */
export type Known = { readonly pages: Pages; readonly version: string } | undefined;

export type WindowStore = {
  /** The database's time in ms, as well as it can be told from here. */
  now(): number;
  /**
   * Changes a book and resolves once that is written. `change` may be called several times, each time with a book and
   * the time to go by; the last call's result counts.
   */
  change<T>(given: {
    bucket: string;
    rule: Rule;
    known: Known;
    change: (window: SlidingWindow, now: number) => T;
  }): Promise<{ result: T; known: Known; window: SlidingWindow }>;
};

/** Without writing for so long a book says nothing any more, whatever its window. */
const keptS = 86_400;
/** By how much the database's clock and this machine's may drift apart: more than those that are being set do. */
const driftShare = 0.001;

type Row = { wrote: boolean; pages: Pages | null; version: string | null; clock: number };

export function createWindowStore(db: Db, { monotonic = () => performance.now() } = {}): WindowStore {
  /** How far the database's clock is ahead of ours at least and at most, and when that was known. */
  let clock: { minMs: number; maxMs: number; at: number } | undefined;

  /**
   * The database read its clock between the two ends of a trip, so each trip bounds it, and a slow one spoils nothing:
   * what agrees with all of them counts. Where nothing does, a clock was set, and only the newest counts.
   */
  function learn(sentAt: number, databaseMs: number): void {
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
    learn(sentAt, row?.clock ?? Date.now());
  }

  // Before the database has told, this machine's own time.
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
        const [row] = await db.query<Row>(
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
        learn(sentAt, row.clock);
        if (row.wrote) return { result, known: { pages, version }, window };
        known = row.pages && row.version ? { pages: row.pages, version: row.version } : undefined;
      }
    },
  };
}

/** Removes the books of quotas that nobody uses any more. */
export function quotaSweepJob(db: Db): Job<Record<string, never>> {
  return {
    name: 'quota.sweep',
    run: async () => {
      await db.query(`delete from quota_book where written_at < now() - make_interval(secs => $1)`, [keptS]);
    },
  };
}
