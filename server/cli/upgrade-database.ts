import { parseArgs } from 'node:util';
import { upgradeDatabase } from '../backup/upgrade.ts';
import { loadConfigWithoutKeys } from '../config/config.ts';
import { createProgress } from './progress.ts';

const usage = 'The command is: upgrade-database --old-binaries DIRECTORY.';

/** `trellis upgrade-database`: the embedded database to the major version of PostgreSQL that this version brings. */
export async function upgradeDatabaseCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({ args, options: { 'old-binaries': { type: 'string' } } });
  const oldBinaries = values['old-binaries'];
  if (oldBinaries === undefined) throw new Error(usage);
  const { dataDir, databaseUrl } = loadConfigWithoutKeys();
  if (databaseUrl !== undefined)
    throw new Error('DATABASE_URL names a PostgreSQL of your own, which is upgraded by its own programs.');
  const progress = createProgress(process.stderr);
  const upgraded = await upgradeDatabase({
    ...{ dataDir, oldBinaries, log: (message) => console.error(message) },
    onProgress: ({ table, done, total }) => progress.show(`${done} of ${total} tables copied: ${table}`),
  }).finally(() => progress.end());
  if (upgraded === undefined) {
    console.log('the database is of the version that this one brings: there is nothing to do');
    return 0;
  }
  const { from, to, tables, rows, kept } = upgraded;
  console.log(
    `PostgreSQL ${from} to ${to}: ${rows} rows of ${tables} tables copied, counted and summed on both sides`,
  );
  console.log(`the old cluster is kept in ${kept}; remove it when the service has run for a while`);
  return 0;
}
