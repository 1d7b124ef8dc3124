import type { Db, Queryable } from '../db/pool.ts';

/**
 * The days of the activity log: one partition of each of its tables a day (UTC).
 *
 * The first writer of a day makes its partitions, unless the job of the day before has; they are dropped whole.
 */
const parents = ['operation', 'operation_message'] as const;
const dayMs = 86_400_000;
/** The maximum wait of a drop for its lock: writers wait behind it. */
const dropWaitS = 1;

/** `20260131`. */
export function dayOf(epochMs: number): string {
  return new Date(epochMs).toISOString().slice(0, 10).replaceAll('-', '');
}

/** The days there are, oldest first: `20260131`. */
export async function listDays(
  db: Queryable,
  parent: (typeof parents)[number] = 'operation',
): Promise<string[]> {
  const partitions = await db.query<{ day: string }>(
    `select right(relname, 8) as day
     from pg_inherits
     join pg_class on pg_class.oid = inhrelid
     where inhparent = $1::regclass and relname ~ '_\\d{8}$'
     order by relname`,
    [parent],
  );
  return partitions.map(({ day }) => day);
}

/** When a day begins and ends, in ms. */
export function timesOf(day: string): { from: number; to: number } {
  const from = Date.parse(`${day.slice(0, 4)}-${day.slice(4, 6)}-${day.slice(6)}T00:00:00Z`);
  return { from, to: from + dayMs };
}

/** Makes the partitions that hold this time, unless they are there. Nodes that do so at once wait for each other. */
export async function ensureDay(db: Db, epochMs: number): Promise<void> {
  const day = dayOf(epochMs);
  const from = new Date(epochMs - (epochMs % dayMs));
  const to = new Date(from.getTime() + dayMs);
  await db.transaction(async (tx) => {
    await tx.query(`select pg_advisory_xact_lock(hashtextextended('activity partitions', 0))`);
    for (const parent of parents) {
      const partition = `${parent}_${day}`;
      const [found] = await tx.query<{ isThere: boolean }>(
        `select to_regclass($1) is not null as "isThere"`,
        [partition],
      );
      if (found?.isThere) continue;
      // Made first and attached then: `create table ... partition of` would lock out all writers of all days.
      await tx.query(`create table ${partition} (like ${parent} including defaults including constraints)`);
      await tx.query(
        `alter table ${parent} attach partition ${partition} for values from ('${from.toISOString()}') to ('${to.toISOString()}')`,
      );
    }
  });
}

/**
 * What is due each minute: today's and tomorrow's partitions are there, and days that ended more than `keptDays` ago are
 * gone. Resolves with the days that were dropped now. A drop that cannot have its lock at once is left to the next run.
 */
export async function keepDays(
  db: Db,
  { now, keptDays }: { now: Date; keptDays: number },
): Promise<string[]> {
  await ensureDay(db, now.getTime());
  await ensureDay(db, now.getTime() + dayMs);
  const oldest = dayOf(now.getTime() - keptDays * dayMs);
  const dropped = new Set<string>();
  for (const parent of parents) {
    for (const day of await listDays(db, parent)) {
      if (day >= oldest) break;
      await db.transaction(async (tx) => {
        await tx.query(`set local lock_timeout = '${dropWaitS}s'`);
        await tx.query(`drop table if exists ${parent}_${day}`);
      });
      dropped.add(day);
    }
  }
  return [...dropped];
}
