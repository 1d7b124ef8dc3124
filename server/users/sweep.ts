import type { Db } from '../db/pool.ts';
import type { Job } from '../jobs/jobs.ts';
import { codeMs } from './codes.ts';

/** No limit on tries looks back so far. */
const longestRateWindowMs = 3_600_000;
/** Of each kind at once, so that no statement runs long; the rest goes with the next turn. */
const maxAtOnce = 10_000;

/** Removes what is over: sessions, links, codes that were awaited, counts of tries. Invitations that were used are gone. */
async function sweepSignIn(db: Db, at: Date): Promise<void> {
  for (const [table, over, than] of [
    ['sign_in_session', 'expires_at <= $1', at],
    ['sign_in_verification', 'expires_at <= $1', at],
    ['invitation', 'expires_at <= $1', at],
    ['sign_in_code', 'used_at <= $1', new Date(at.getTime() - codeMs)],
    ['sign_in_rate', 'last_request < $1', at.getTime() - longestRateWindowMs],
  ] as const) {
    await db.query(
      `delete from ${table}
       where ctid = any(array(select ctid from ${table} where ${over} limit ${maxAtOnce}))`,
      [than],
    );
  }
}

/** Each minute on one node. */
export function signInSweepJob({ db, now }: { db: Db; now: () => Date }): Job<Record<string, never>> {
  return { name: 'users.sweep', run: () => sweepSignIn(db, now()) };
}
