import { setTimeout as pause } from 'node:timers/promises';
import { HeldUp, runApart } from './migrate-apart.ts';
import {
  listMigrations,
  type Migration,
  migrationsDirectory,
  numberOf,
  readMigration,
} from './migration-files.ts';
import type { Db, Queryable, Tx } from './pool.ts';

/** A number that stands for "Trellis migrates"; nodes that start at the same time wait for the holder of this lock. */
const lockKey = 0x7472656c;
/** How often those who wait ask for it. Who waited inside a statement would hold up an index that is built concurrently. */
const askAgainMs = 100;
/** Whatever needs a table that a migration waits for waits behind it: longer than this the migration does not wait. */
const lockTimeoutMs = 2_000;
/** Then the server ends the transaction of a node that is frozen or cut off, and with it the lock. */
const idleTimeoutMs = 60_000;
/** Between one attempt and the next, so that those who waited behind it get on. */
const restMs = 1_000;
/** Two minutes or so. */
const maxAttempts = 40;

type MigrateOptions = {
  directory?: string;
  /**
   * Told each time when somebody holds a table for so long that the migrations are tried again later, and each minute
   * while an index is not ready because of transactions that are open.
   */
  onHeldUp?: (error: unknown) => void;
};

/**
 * Brings the database up to the newest migration, forward only; answers the names of those that were applied. All pending
 * ones are one transaction, so that a failure or a kill leaves the schema as it was; one that is run outside a transaction
 * parts those before it from those behind it. Safe when many nodes start at once, and while others run.
 *
 * Throws when the database knows a migration of a newer version that this one does not run with, and where the tables are
 * held by others for minutes.
 */
export async function migrate(
  db: Db,
  { directory = migrationsDirectory, onHeldUp = () => {} }: MigrateOptions = {},
): Promise<string[]> {
  const names = await listMigrations(directory);
  const applied: string[] = [];
  let attempts = 0;
  for (;;) {
    const known = await findApplied(db);
    requireRunnable(known, names);
    if (names.every((name) => known.has(name))) return applied;
    try {
      const step = await db.transaction((tx) => takeStep(tx, { db, names, directory, onHeldUp }));
      if (step === undefined) await pause(askAgainMs);
      else applied.push(...step);
      // Who has the lock may take as long as it needs.
      attempts = 0;
    } catch (error) {
      attempts += 1;
      if (!isHeldUp(error) || attempts === maxAttempts) throw error;
      onHeldUp(error);
      await pause(restMs * (0.75 + Math.random() / 2));
    }
  }
}

/** Undefined where another node migrates just now. */
async function takeStep(
  tx: Tx,
  { db, names, directory, onHeldUp }: { db: Db; names: string[] } & Required<MigrateOptions>,
): Promise<string[] | undefined> {
  const [lock] = await tx.query<{ isMine: boolean }>('select pg_try_advisory_xact_lock($1) as "isMine"', [
    lockKey,
  ]);
  if (lock?.isMine !== true) return undefined;
  await tx.query(
    `select set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true)`,
    [String(lockTimeoutMs), String(idleTimeoutMs)],
  );
  const known = await findApplied(tx);
  requireRunnable(known, names);
  const pending = await Promise.all(
    names.filter((name) => !known.has(name)).map((name) => readMigration(name, directory)),
  );
  const [next] = pending;
  if (next === undefined) return [];
  const isMade = await makeTable(tx);
  if (Array.isArray(next.text)) {
    // Who looks for what was applied would wait for this transaction, and an index that is built concurrently for them.
    if (isMade) return [];
    const { name, text: statements } = next;
    const watched = { name, lockTimeoutMs, onWaiting: onHeldUp };
    await naming(name, () => beside(tx, () => runApart(db, statements, watched)));
    await note(tx, next);
    return [next.name];
  }
  const apart = pending.findIndex(({ text }) => Array.isArray(text));
  const together = apart < 0 ? pending : pending.slice(0, apart);
  for (const migration of together) {
    await naming(migration.name, () => tx.query(String(migration.text)));
    await note(tx, migration);
  }
  return together.map(({ name }) => name);
}

/** The table that says what was applied, as it is now; answers whether anything was lacking. */
async function makeTable(tx: Tx): Promise<boolean> {
  const [column] = await tx.query(
    `select from pg_attribute where attrelid = to_regclass('migration') and attname = 'runs_with'`,
  );
  if (column !== undefined) return false;
  await tx.query(`
    create table if not exists migration (
      name text primary key,
      applied_at timestamptz not null default now()
    )`);
  await tx.query('alter table migration add column if not exists runs_with integer');
  return true;
}

/**
 * While this transaction, which has the lock and no snapshot, waits; it says something so that it is not ended as frozen.
 * What it says takes no snapshot either, for which an index that is built concurrently would wait for ever.
 */
async function beside(tx: Tx, work: () => Promise<void>): Promise<void> {
  const timer = setInterval(() => void tx.query('show server_version').catch(() => {}), idleTimeoutMs / 4);
  try {
    await work();
  } finally {
    clearInterval(timer);
  }
}

async function naming(name: string, work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (isHeldUp(error)) throw error;
    throw new Error(`migration ${name} failed`, { cause: error });
  }
}

async function note(tx: Tx, { name, runsWith }: Migration): Promise<void> {
  await tx.query('insert into migration (name, runs_with) values ($1, $2)', [name, runsWith ?? null]);
}

/** Each with the number of the oldest migration whose services run with it; null: none. */
async function findApplied(q: Queryable): Promise<Map<string, number | null>> {
  const [found] = await q.query<{ exists: boolean }>(`select to_regclass('migration') is not null as exists`);
  if (found?.exists !== true) return new Map();
  // Services of before did not note it.
  const rows = await q.query<{ name: string; runsWith: number | null }>(
    `select name, (to_jsonb(migration) ->> 'runs_with')::integer as "runsWith" from migration`,
  );
  return new Map(rows.map(({ name, runsWith }) => [name, runsWith]));
}

type MigrationState = {
  /** Brought by this version and not applied. */
  pending: string[];
  /** Applied by a newer version, which this one does not run with. */
  refused: string[];
};

/** How the database stands to this version. Reads, and waits for no lock. */
export async function readMigrationState(
  db: Queryable,
  directory = migrationsDirectory,
): Promise<MigrationState> {
  const [known, names] = [await findApplied(db), await listMigrations(directory)];
  return { pending: names.filter((name) => !known.has(name)), refused: refusedOf(known, names) };
}

function refusedOf(known: Map<string, number | null>, names: string[]): string[] {
  const newest = numberOf(names.at(-1) ?? '0000');
  return [...known]
    .filter(([name, runsWith]) => !names.includes(name) && (runsWith === null || runsWith > newest))
    .map(([name]) => name);
}

function requireRunnable(known: Map<string, number | null>, names: string[]): void {
  const refused = refusedOf(known, names);
  if (refused.length === 0) return;
  const named = refused.join(', ');
  throw new Error(`The database was migrated by a newer version (it knows ${named}). Upgrade this one.`);
}

/** Somebody held a lock for too long, or waited in a circle with us. */
function isHeldUp(error: unknown): boolean {
  if (error instanceof HeldUp) return true;
  return ['55P03', '40P01'].includes(String((error as { code?: unknown } | null)?.code));
}
