import { basename, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { writeAudit } from '../activity/audit.ts';
import { keepNewest, keyFileOf, withBackupDirectory } from '../backup/backup-directory.ts';
import { makeBackup, type Step } from '../backup/make.ts';
import { loadConfigWithoutKeys } from '../config/config.ts';
import type { EmbeddedConnection } from '../db/embedded.ts';
import { openDb } from '../db/pool.ts';
import { exportKeys } from './keys-export.ts';
import { createProgress } from './progress.ts';
import { withEmbeddedServer } from './reach-database.ts';

const usage = 'The command is: backup --to DIRECTORY [--keep COUNT] [--keys FILE].';

/** `trellis backup`: data and file of keys of the embedded database, also while the service runs. */
export async function backupCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: { to: { type: 'string' }, keep: { type: 'string' }, keys: { type: 'string' } },
  });
  if (values.to === undefined) throw new Error(usage);
  const keep = values.keep === undefined ? undefined : readCount(values.keep);
  const config = loadConfigWithoutKeys();
  if (config.databaseUrl !== undefined) throw new Error(adviceForExternal);
  const log = (message: string) => console.error(message);
  return withEmbeddedServer(config, (server) =>
    withBackupDirectory(resolve(values.to!), async (backupDir) => {
      const progress = createProgress(process.stderr);
      const given = { dataDir: config.dataDir, server, backupDir, log };
      const made = await makeBackup({
        ...given,
        onProgress: (step) => progress.show(tellStep(step)),
      }).finally(() => progress.end());
      console.log(`${made.path}: ${megabytes(made.bytes)}, recovered once, without data keys`);
      await noteAndExport(server, { made: made.path, keyFile: values.keys ?? keyFileOf(backupDir) });
      if (keep === undefined) return 0;
      for (const name of await keepNewest(backupDir, { count: keep, made: basename(made.path) }))
        console.log(`removed ${name}`);
      return 0;
    }),
  );
}

const adviceForExternal = `DATABASE_URL names a PostgreSQL of your own, which is backed up by its own programs:

  umask 077
  pg_dump --dbname=service=trellis --format=custom --exclude-table-data='*.data_key' --file=data.dump
  trellis keys export data.keys

docs/operations/backup.md says what to do with both, and which file names the service: as an argument DATABASE_URL would
show its password to everybody on the machine.`;

/** The file of keys last: it has the key of every connection that is in the data. */
async function noteAndExport(
  server: EmbeddedConnection,
  { made, keyFile }: { made: string; keyFile: string },
): Promise<void> {
  const db = openDb(server, { maxConnections: 2 });
  try {
    const entry = { action: 'database.backed_up', target: made };
    await writeAudit(db, { environmentId: undefined, actor: 'command line', ...entry });
    const { count, masterKeys } = await exportKeys(db, keyFile);
    console.log(`${count} wrapped data keys written to ${keyFile}; keep no older file of them`);
    console.log(`to open them takes ${masterKeys.join(' and ')}`);
  } finally {
    await db.end();
  }
}

function readCount(text: string): number {
  if (/^[1-9]\d{0,5}$/.test(text)) return Number(text);
  throw new Error(`--keep "${text}" is no number of backups from 1 on.`);
}

/** `12 MB of 43 MB copied`. */
export function tellStep({ doing, bytes, total }: Step): string {
  return `${megabytes(bytes)} of ${megabytes(Math.max(bytes, total))} ${doing}`;
}

function megabytes(bytes: number): string {
  return `${Math.ceil(bytes / 1024 ** 2)} MB`;
}
