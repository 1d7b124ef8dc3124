import { writeAudit } from '../activity/audit.ts';
import { type Db, first } from '../db/pool.ts';
import type { Logger } from '../log.ts';
import { metrics } from '../metrics/metrics.ts';

/** Somebody can try for ever, so that what is told of it must not grow with how often they do. */
const toldEveryMs = 60_000;

export type RefusedSignIns = {
  /** Returns at once and never throws, so that nobody learns from how long it takes whether there is such a user. */
  note(given: { email: string; address: string }): void;
  /** Resolves when none is being noted any more. */
  settled(): Promise<void>;
};

/**
 * Sign-ins with a wrong password: `user.sign_in_failed` in the audit log, once a minute for each user that there is, over all
 * nodes; and a line in the log of this node, once a minute, with how many there were, of unknown addresses too.
 */
export function createRefusedSignIns({
  db,
  log,
  now,
}: {
  db: Db;
  log: Pick<Logger, 'warn'>;
  now: () => Date;
}): RefusedSignIns {
  const noting = new Set<Promise<unknown>>();
  let refused = 0;
  let toldAt = Number.NEGATIVE_INFINITY;
  return {
    note({ email, address }) {
      const at = now();
      refused += 1;
      metrics.signInsRefused.add([]);
      if (at.getTime() - toldAt >= toldEveryMs) {
        log.warn(
          { refused, address },
          'wrong passwords since the last such line; the address is of the last one',
        );
        refused = 0;
        toldAt = at.getTime();
      }
      const noted: Promise<unknown> = audit(db, { email, address, at })
        .catch((err: unknown) => log.warn({ err }, 'a refused sign-in was not noted'))
        .finally(() => noting.delete(noted));
      noting.add(noted);
    },
    async settled() {
      await Promise.all(noting);
    },
  };
}

/** Of many at once one writes. */
async function audit(
  db: Db,
  { email, address, at }: { email: string; address: string; at: Date },
): Promise<void> {
  await db.transaction(async (tx) => {
    const told = first(
      await tx.query<{ userId: string }>(
        `insert into sign_in_failure (user_id, told_at)
         select id, $2
         from sign_in_user
         where email = $1
         on conflict (user_id) do update
         set told_at = excluded.told_at
         where sign_in_failure.told_at <= $3
         returning user_id as "userId"`,
        [email.toLowerCase(), at, new Date(at.getTime() - toldEveryMs)],
      ),
    );
    if (told === undefined) return;
    await writeAudit(tx, {
      environmentId: undefined,
      // The caller is not proven to be the user.
      actor: 'nobody',
      action: 'user.sign_in_failed',
      target: told.userId,
      details: { address },
    });
  });
}
