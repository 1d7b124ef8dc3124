import type { Queryable } from '../db/pool.ts';

/**
 * What the database remembers of files of keys: which is older, a file or the data, cannot be seen in either alone.
 * Owns: the table `key_file`.
 */

/** Notes that a file of this moment was written from this database, or given back to it. Remembered for a year. */
export async function noteKeyFile(tx: Queryable, madeAt: Date): Promise<void> {
  await tx.query('insert into key_file (made_at) values ($1) on conflict do nothing', [madeAt]);
  await tx.query(`delete from key_file where made_at < $1::timestamptz - interval '1 year'`, [madeAt]);
}

/**
 * Whether these data went on from the moment of this very file. Then whatever it lacks was deleted in them too, or made
 * after it. A note of another file, however late, says nothing about that.
 */
export async function goesOnFrom(db: Queryable, madeAt: Date): Promise<boolean> {
  const known = await db.query('select from key_file where made_at = $1', [madeAt]);
  return known.length > 0;
}

/** Whether a file is of a later moment than these data, as after a backup was restored, or of another database. */
export async function isNewerThanData(db: Queryable, madeAt: Date): Promise<boolean> {
  const known = await db.query('select from key_file where made_at >= $1 limit 1', [madeAt]);
  return known.length === 0;
}
