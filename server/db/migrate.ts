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

/** The lock of the node that migrates; other nodes that start at the same time wait for it. */
export const migrationLockKey = 0x7472656c;
/** How often the others try to take it. A wait within a statement would delay an index that is built concurrently. */
const lockRetryMs = 100;
/** The longest wait of a migration for a table: all other statements on that table queue behind it. */
const lockTimeoutMs = 2_000;
/** After this time the server ends the transaction of a frozen or disconnected node, and releases its lock. */
const idleTimeoutMs = 60_000;
/** The pause between two attempts, in which the statements that queued behind the first one run. */
const restMs = 1_000;
/** About two minutes. */
const maxAttempts = 40;

type MigrateOptions = {
  directory?: string;
  /**
   * Called each time that the migrations are retried later because a table is locked for too long, and each minute while
   * an index waits for open transactions.
   */
  onHeldUp?: (error: unknown) => void;
};

/**
 * Applies the pending migrations, forward only, and returns their names. They run in one transaction, so a failure or a kill
 * leaves the schema unchanged; a migration that runs outside a transaction separates those before it from those after it.
 * Safe if many nodes start at the same time, and while others run.
 *
 * Throws if the database has a migration of a newer version with which this version does not run, and if tables stay locked
 * for minutes.
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
      if (step === undefined) await pause(lockRetryMs);
      else applied.push(...step);
      // The holder of the lock may take any time.
      attempts = 0;
    } catch (error) {
      attempts += 1;
      if (!isHeldUp(error) || attempts === maxAttempts) throw error;
      onHeldUp(error);
      await pause(restMs * (0.75 + Math.random() / 2));
    }
  }
}

/** Undefined if another node migrates at this moment. */
async function takeStep(
  tx: Tx,
  { db, names, directory, onHeldUp }: { db: Db; names: string[] } & Required<MigrateOptions>,
): Promise<string[] | undefined> {
  const [lock] = await tx.query<{ isMine: boolean }>('select pg_try_advisory_xact_lock($1) as "isMine"', [
    migrationLockKey,
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
  if (next.isOutsideTransaction) {
    // Readers of the table would wait for this transaction, and a concurrent build of an index for these readers.
    if (isMade) return [];
    const { name, statements } = next;
    const watched = { name, lockTimeoutMs, onWaiting: onHeldUp };
    await naming(name, () => beside(tx, () => runApart(db, statements, watched)));
    await insertApplied(tx, next);
    return [next.name];
  }
  const apart = pending.findIndex(({ isOutsideTransaction }) => isOutsideTransaction);
  const together = apart < 0 ? pending : pending.slice(0, apart);
  for (const migration of together) {
    for (const statement of migration.statements) await naming(migration.name, () => tx.query(statement));
    await insertApplied(tx, migration);
  }
  return together.map(({ name }) => name);
}

/** Creates or extends the table of applied migrations; returns whether it changed the table. */
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
 * Runs `work` while this transaction holds the lock without a snapshot. A statement from time to time keeps the server from
 * ending it as frozen. That statement takes no snapshot either: a concurrent build of an index would wait for it for ever.
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

async function insertApplied(tx: Tx, { name, runsWith }: Migration): Promise<void> {
  await tx.query('insert into migration (name, runs_with) values ($1, $2)', [name, runsWith ?? null]);
}

/** The applied migrations, each with the oldest migration whose services run with it; null: none. */
async function findApplied(q: Queryable): Promise<Map<string, number | null>> {
  const [found] = await q.query<{ exists: boolean }>(`select to_regclass('migration') is not null as exists`);
  if (found?.exists !== true) return new Map();
  // Earlier versions of the service did not store it.
  const rows = await q.query<{ name: string; runsWith: number | null }>(
    `select name, (to_jsonb(migration) ->> 'runs_with')::integer as "runsWith" from migration`,
  );
  return new Map(rows.map(({ name, runsWith }) => [name, runsWith]));
}

type MigrationState = {
  /** Migrations of this version that are not applied. */
  pending: string[];
  /** Migrations of a newer version with which this version does not run. */
  refused: string[];
};

/** Compares the database with this version. Only reads, and waits for no lock. */
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
  throw new Error(
    `A newer version of the service has migrated the database (${named}). Install that version.`,
  );
}

/** Whether a lock was held for too long, or a deadlock was detected. */
function isHeldUp(error: unknown): boolean {
  if (error instanceof HeldUp) return true;
  return ['55P03', '40P01'].includes(String((error as { code?: unknown } | null)?.code));
}
