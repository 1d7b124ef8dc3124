import type { Queryable } from '../db/pool.ts';

/** Longer than a code of an authenticator is good for: its own 30 seconds, and those before and behind them. */
export const codeMs = 300_000;

/** Whether a code is used for the first time; it is used by that. Of many at once one is told so. */
export async function useCode(
  db: Queryable,
  { userId, code, at }: { userId: string; code: string; at: Date },
): Promise<boolean> {
  const used = await db.query(
    `insert into sign_in_code (user_id, code, used_at)
     values ($1, $2, $3)
     on conflict (user_id, code) do update
     set used_at = excluded.used_at
     where sign_in_code.used_at <= $4
     returning user_id`,
    [userId, code, at, new Date(at.getTime() - codeMs)],
  );
  return used.length > 0;
}
