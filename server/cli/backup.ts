import { basename, dirname, resolve } from 'node:path';
import { UsageError } from '../../sdk/cli/arguments.ts';
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
import { exportKeysTo, printRestored, type RestoreOptions } from './keys.ts';
import { createProgress, log } from './terminal.ts';

/** `trellis backup`: copies the embedded database and writes its file of keys, also while the service runs. */
export async function backupCommand(options: {
  to: string;
  keep?: string | undefined;
  keys?: string | undefined;
}): Promise<number> {
  const keep = options.keep === undefined ? undefined : readCount(options.keep);
  const config = loadConfigWithoutKeys();
  if (config.databaseUrl !== undefined) throw new Error(backupAdviceForExternal);
  return withEmbeddedServer(config, (server) =>
    withBackupDirectory(resolve(options.to), async (backupDir) => {
      const progress = createProgress(process.stderr);
      const given = { dataDir: config.dataDir, server, backupDir, log };
      const made = await makeBackup({
        ...given,
        onProgress: (step) => progress.show(textOf(step)),
      }).finally(() => progress.end());
      console.log(`${made.path}: ${megabytes(made.bytes)}, contains no data keys; a test recovery succeeded`);
      await auditAndExport(server, { made: made.path, keyFile: options.keys ?? keyFileOf(backupDir) });
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
  throw new UsageError(`--keep "${text}" is not a number from 1 to 999999.`);
}

/** `12 MB of 43 MB copied`. */
function textOf({ doing, bytes, total }: Step): string {
  return `${megabytes(bytes)} of ${megabytes(Math.max(bytes, total))} ${doing}`;
}

/** `trellis restore`: restores a backup of the embedded database into a DATA_DIR without a database. */
export async function restoreCommand(
  options: RestoreOptions & { from: string; keys?: string | undefined },
): Promise<number> {
  const config = loadConfigWithoutKeys();
  if (config.databaseUrl !== undefined) throw new Error(restoreAdviceForExternal);
  const backup = resolve(options.from);
  const vault = await readVault(config);
  const keyFile = await readKeyFile(options.keys ?? keyFileOf(dirname(backup)));
  const progress = createProgress(process.stderr);
  const isTrial = options.dryRun === true;
  const { madeAt, keys, raised } = await (isTrial ? tryBackup : restoreBackup)({
    backup,
    keyFile,
    vault,
    dataDir: config.dataDir,
    dropsNewer: options.dropNewer === true,
    goesBack: options.back === true,
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
export async function restoredCommand(options: { again?: true | undefined }): Promise<number> {
  return withDatabase(loadConfigWithoutKeys(), async (db) => {
    const raised = await (options.again ? raisePositions : raisePositionsOnce)(db);
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

/** `trellis upgrade-database`: upgrades the embedded database to the major version of PostgreSQL of this version. */
export async function upgradeDatabaseCommand({ oldBinaries }: { oldBinaries: string }): Promise<number> {
  const { dataDir, databaseUrl } = loadConfigWithoutKeys();
  if (databaseUrl !== undefined)
    throw new Error('DATABASE_URL is set. Upgrade this PostgreSQL with its own tools.');
  const progress = createProgress(process.stderr);
  const upgraded = await upgradeDatabase({
    dataDir,
    oldBinaries,
    log,
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
