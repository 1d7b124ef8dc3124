/**
 * All checks of an installation, in the order in which one would look: settings, machine, disk, addresses, database, integrations,
 * keys.
 *
 * Does not own: what is looked at in each area (the files beside), how it is shown (`cli/doctor.ts`).
 */
import { type Config, ConfigError, type MasterKey } from '../config/config.ts';
import { readMasterKeyFile } from '../data-dir.ts';
import type { Db } from '../db/pool.ts';
import { loadCatalog, providersDirectory } from '../providers/catalog.ts';
import { addressChecks } from './address.ts';
import { type Check, type Finding, fail, messageOf, ok, runCheck, skipped } from './check.ts';
import { databaseChecks } from './database.ts';
import { diskChecks } from './disk.ts';
import { integrationChecks } from './integrations.ts';
import { keyChecks } from './keys.ts';
import { machineChecks } from './machine.ts';

type Examination = {
  /** Throws ConfigError with every fault. */
  load: () => Config;
  /** Lends the database; throws where it cannot be reached. Undefined where there is none yet. */
  withDatabase: <T>(config: Config, work: (db: Db) => Promise<T>) => Promise<T>;
  /** Whether there is a database to look at: an embedded one is made by the first start. */
  hasDatabase: (config: Config) => boolean;
  onFinding: (finding: Finding) => void;
};

/** Runs them one after the other; those that need what is missing are left out by name. */
export async function examine({
  load,
  withDatabase,
  hasDatabase,
  onFinding,
}: Examination): Promise<Finding[]> {
  const found: Finding[] = [];
  const look = async (checks: readonly Check[]) => {
    for (const check of checks) {
      const finding = await runCheck(check);
      found.push(finding);
      onFinding(finding);
    }
  };
  const config = loaded(load);
  await look([{ name: 'settings', run: async () => config.verdict }]);
  await look(machineChecks(config.is));
  if (config.is === undefined) return found;
  const { is } = config;
  const isEmbedded = is.databaseUrl === undefined;
  await look(diskChecks({ dataDir: is.dataDir, isEmbedded }));
  await look(addressChecks(is));
  if (!hasDatabase(is)) {
    await look([
      { name: 'database', run: async () => skipped('There is no database yet; the first start makes it.') },
    ]);
    return found;
  }
  let isReached = false;
  await withDatabase(is, async (db) => {
    const [version] = await db.query<{ version: string }>('select version()');
    isReached = true;
    const where = isEmbedded ? 'The embedded database answers' : 'The database answers';
    await look([
      { name: 'database', run: async () => ok(`${where}: ${(version?.version ?? '').split(' on ')[0]}.`) },
    ]);
    await look(databaseChecks(db, { isEmbedded }));
    await look(integrationChecks(db, { catalog: loadCatalog(providersDirectory), at: new Date() }));
    const masterKeys = await keysOf(is);
    await look('fault' in masterKeys ? [masterKeys.fault] : keyChecks(db, masterKeys.are));
  }).catch(async (error: unknown) => {
    if (isReached) throw error;
    await look([
      {
        name: 'database',
        run: async () => fail(`The database cannot be reached: ${messageOf(error)}`, mendOf(isEmbedded)),
      },
    ]);
  });
  return found;
}

function mendOf(isEmbedded: boolean): string {
  return isEmbedded
    ? 'Run this as the user of the service; DATA_DIR/postgres/postgres.log says what the server met.'
    : 'See that the server runs, that DATABASE_URL names its host, port, user and password, and that it lets this machine in (pg_hba.conf).';
}

function loaded(load: () => Config) {
  try {
    return { is: load(), verdict: ok('The settings have no fault.') };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const verdict = fail(error.faults.join(' '), 'Correct these variables; docs/operations.md lists all.');
    return { is: undefined, verdict };
  }
}

async function keysOf({
  encryptionKeys,
  databaseUrl,
  dataDir,
}: Config): Promise<{ are: readonly MasterKey[] | undefined } | { fault: Check }> {
  if (encryptionKeys !== undefined || databaseUrl !== undefined) return { are: encryptionKeys };
  try {
    return { are: await readMasterKeyFile(dataDir) };
  } catch (error) {
    const verdict = fail(
      messageOf(error),
      'Put DATA_DIR/master.key back from its backup, or correct its text.',
    );
    return { fault: { name: 'key-ring', run: async () => verdict } };
  }
}
