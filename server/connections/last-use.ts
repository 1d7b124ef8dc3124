import type { Db } from '../db/pool.ts';
import type { ConnectionHead } from './store.ts';

/** How exact the time of a last use is. */
const notedEveryMs = 60_000;

type LastUse = {
  /** Returns at once and never throws. One that is lost is noted again by the next use. */
  note(connection: Pick<ConnectionHead, 'id' | 'environmentId' | 'lastUsedAt'>, at: Date): void;
  /** Resolves when none is being noted any more. */
  settled(): Promise<void>;
};

/** When connections were last used, as exactly as for a row that is written once a minute at most. */
export function createLastUse(db: Db): LastUse {
  const noting = new Set<Promise<unknown>>();
  return {
    note(connection, at) {
      const { id, environmentId, lastUsedAt: last } = connection;
      if (last !== undefined && at.getTime() - last.getTime() < notedEveryMs) return;
      // Calls that share what was read share the note.
      connection.lastUsedAt = at;
      const noted: Promise<unknown> = store(db, { id, environmentId, at })
        .catch(() => {})
        .finally(() => noting.delete(noted));
      noting.add(noted);
    },
    async settled() {
      await Promise.all(noting);
    },
  };
}

/** Of nodes that note at the same time, one writes. */
async function store(
  db: Db,
  { id, environmentId, at }: { id: number; environmentId: number; at: Date },
): Promise<void> {
  await db.query(
    `update connection
     set last_used_at = $3
     where id = $1
       and environment_id = $2
       and deleted_at is null
       and (last_used_at is null or last_used_at <= $4)`,
    [id, environmentId, at, new Date(at.getTime() - notedEveryMs)],
  );
}
