import { basename, dirname, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { writeCommandAudit } from '../activity/audit.ts';
import { loadConfigWithoutKeys } from '../config/config.ts';
import type { EmbeddedConnection } from '../db/embedded/embedded.ts';
import { openDb } from '../db/pool.ts';
import { keepNewest, keyFileOf, megabytes, withBackupDirectory } from '../ops/backup/backup-directory.ts';
import { readKeyFile } from '../ops/backup/key-file.ts';
import { makeBackup, type Step } from '../ops/backup/make.ts';
import { raisePositions, raisePositionsOnce } from '../ops/backup/positions.ts';
import { restoreBackup, tryBackup } from '../ops/backup/restore.ts';
import { upgradeDatabase } from '../ops/backup/upgrade.ts';
import { readVault, withDatabase, withEmbeddedServer } from './database.ts';
import { exportKeysTo, printRestored } from './keys.ts';
import { createProgress, flag, log, text } from './terminal.ts';

const backupUsage = 'The command is: backup --to DIRECTORY [--keep COUNT] [--keys FILE].';

/** `trellis backup`: copies the embedded database and writes its file of keys, also while the service runs. */
export async function backupCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: { to: text, keep: text, keys: text },
  });
  if (values.to === undefined) throw new Error(backupUsage);
  const keep = values.keep === undefined ? undefined : readCount(values.keep);
  const config = loadConfigWithoutKeys();
  if (config.databaseUrl !== undefined) throw new Error(backupAdviceForExternal);
  return withEmbeddedServer(config, (server) =>
    withBackupDirectory(resolve(values.to!), async (backupDir) => {
      const progress = createProgress(process.stderr);
      const given = { dataDir: config.dataDir, server, backupDir, log };
      const made = await makeBackup({
        ...given,
        onProgress: (step) => progress.show(textOf(step)),
      }).finally(() => progress.end());
      console.log(`${made.path}: ${megabytes(made.bytes)}, contains no data keys; a test recovery succeeded`);
      await auditAndExport(server, { made: made.path, keyFile: values.keys ?? keyFileOf(backupDir) });
      if (keep === undefined) return 0;
      for (const name of await keepNewest(backupDir, { count: keep, made: basename(made.path) }))
        console.log(`removed ${name}`);
      return 0;
    }),
  );
}

const backupAdviceForExternal = `DATABASE_URL is set. Back up this PostgreSQL with its own tools:

  umask 077
  pg_dump --dbname=service=trellis --format=custom --exclude-table-data='*.data_key' --file=data.dump
  trellis keys export data.keys

docs/operations/backup.md describes both files, and the connection service file for "service=trellis". Do not pass
DATABASE_URL as an argument: every user of the machine could read its password.`;

/** The file of keys is written last, so it has the key of every connection in the data. */
async function auditAndExport(
  server: EmbeddedConnection,
  { made, keyFile }: { made: string; keyFile: string },
): Promise<void> {
  await using db = openDb(server, { maxConnections: 2 });
  await writeCommandAudit(db, { action: 'database.backed_up', target: made });
  await exportKeysTo(db, keyFile);
}

function readCount(text: string): number {
  if (/^[1-9]\d{0,5}$/.test(text)) return Number(text);
  throw new Error(`--keep "${text}" is not a number from 1 to 999999.`);
}

/** `12 MB of 43 MB copied`. */
function textOf({ doing, bytes, total }: Step): string {
  return `${megabytes(bytes)} of ${megabytes(Math.max(bytes, total))} ${doing}`;
}

const restoreUsage =
  'The command is: restore --from BACKUP [--keys FILE] [--dry-run] [--drop-newer] [--back].';

/** `trellis restore`: restores a backup of the embedded database into a DATA_DIR without a database. */
export async function restoreCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: { from: text, keys: text, 'dry-run': flag, 'drop-newer': flag, back: flag },
  });
  if (values.from === undefined) throw new Error(restoreUsage);
  const config = loadConfigWithoutKeys();
  if (config.databaseUrl !== undefined) throw new Error(restoreAdviceForExternal);
  const backup = resolve(values.from);
  const vault = await readVault(config);
  const keyFile = await readKeyFile(values.keys ?? keyFileOf(dirname(backup)));
  const progress = createProgress(process.stderr);
  const isTrial = values['dry-run'];
  const { madeAt, keys, raised } = await (isTrial ? tryBackup : restoreBackup)({
    ...{ backup, keyFile, vault, dataDir: config.dataDir },
    ...{ dropsNewer: values['drop-newer'], goesBack: values.back },
    log,
    onProgress: (done) => progress.show(textOf({ doing: 'copied', ...done })),
  }).finally(() => progress.end());
  console.log(`the backup of ${madeAt.toISOString()} ${isTrial ? 'can be' : 'is'} restored`);
  printRestored(keys);
  if (isTrial) console.log('nothing was changed');
  else
    console.log(
      `raised the positions of ${raised.datasets} datasets and of the event feed; you can start the service`,
    );
  return 0;
}

const restoreAdviceForExternal = `DATABASE_URL is set. Restore this PostgreSQL with its own tools:

  pg_restore --no-owner --dbname=service=trellis data.dump
  trellis keys restore data.keys
  trellis restored

docs/operations/backup.md describes each command, and the connection service file for "service=trellis".`;

/** `trellis restored`: for a database that was restored by other programs, or may have lost commits in a failover. */
export async function restoredCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({ args, options: { again: flag } });
  return withDatabase(loadConfigWithoutKeys(), async (db) => {
    const raised = await (values.again ? raisePositions : raisePositionsOnce)(db);
    if ('raisedAt' in raised) {
      console.error(
        `The positions were raised at ${raised.raisedAt.toISOString()}, and no position was assigned since: nothing was changed. ` +
          'If the database was restored again or lost commits since then, use --again.',
      );
      return 1;
    }
    console.log(
      `raised the positions of ${raised.datasets} datasets and of the event feed; all users must sign in again`,
    );
    return 0;
  });
}

const upgradeUsage = 'The command is: upgrade-database --old-binaries DIRECTORY.';

/** `trellis upgrade-database`: upgrades the embedded database to the major version of PostgreSQL of this version. */
export async function upgradeDatabaseCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({ args, options: { 'old-binaries': text } });
  const oldBinaries = values['old-binaries'];
  if (oldBinaries === undefined) throw new Error(upgradeUsage);
  const { dataDir, databaseUrl } = loadConfigWithoutKeys();
  if (databaseUrl !== undefined)
    throw new Error('DATABASE_URL is set. Upgrade this PostgreSQL with its own tools.');
  const progress = createProgress(process.stderr);
  const upgraded = await upgradeDatabase({
    ...{ dataDir, oldBinaries, log },
    onProgress: ({ table, done, total }) => progress.show(`${done} of ${total} tables copied: ${table}`),
  }).finally(() => progress.end());
  if (upgraded === undefined) {
    console.log('the database already has the PostgreSQL version of this release: nothing to do');
    return 0;
  }
  const { from, to, tables, rows, kept } = upgraded;
  console.log(
    `upgraded PostgreSQL ${from} to ${to}: copied ${rows} rows of ${tables} tables; row counts and checksums match`,
  );
  console.log(`the old cluster is kept in ${kept}; remove it after the service has run without problems`);
  return 0;
}
