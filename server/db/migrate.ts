import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Db } from './pool.ts';

const directory = join(import.meta.dirname, '../../migrations');

/** A number that stands for "Trellis migrates"; any nodes that start at once queue up behind it. */
const lockKey = 0x7472656c;

/**
 * Brings the database up to the newest migration: numbered `.sql` files, forward only, all pending ones in one
 * transaction, so that a failure or a kill leaves the schema as it was. Safe when many nodes start at once.
 * Throws when the database knows a migration that this version does not.
 */
export async function migrate(db: Db): Promise<string[]> {
  const files = (await readdir(directory)).filter((file) => /^\d{4}_.*\.sql$/.test(file)).sort();
  const known = await appliedNames(db);
  if (known !== undefined && files.every((file) => known.has(file)) && known.size === files.length) return [];
  return db.transaction(async (tx) => {
    await tx.query('select pg_advisory_xact_lock($1)', [lockKey]);
    await tx.query(`
      create table if not exists migration (
        name text primary key,
        applied_at timestamptz not null default now()
      )`);
    const applied = new Set(
      (await tx.query<{ name: string }>('select name from migration')).map((row) => row.name),
    );
    const unknown = [...applied].filter((name) => !files.includes(name));
    if (unknown.length > 0) {
      throw new Error(
        `The database was migrated by a newer version (it knows ${unknown.join(', ')}). Upgrade this one.`,
      );
    }
    const pending = files.filter((file) => !applied.has(file));
    for (const file of pending) {
      const text = await readFile(join(directory, file), 'utf8');
      try {
        await tx.query(text);
      } catch (error) {
        throw new Error(`migration ${file} failed`, { cause: error });
      }
      await tx.query('insert into migration (name) values ($1)', [file]);
    }
    return pending;
  });
}

async function appliedNames(db: Db): Promise<Set<string> | undefined> {
  const [found] = await db.query<{ exists: boolean }>(
    `select to_regclass('migration') is not null as exists`,
  );
  if (found?.exists !== true) return undefined;
  return new Set((await db.query<{ name: string }>('select name from migration')).map((row) => row.name));
}
