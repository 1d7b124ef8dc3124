/**
 * All checks of an installation, in this order: settings, machine, disk, addresses, database, integrations, keys.
 *
 * Does not own: the checks of each area (the other files), and how findings are printed (`cli/doctor.ts`).
 */
import { authModes } from '../../auth-modes/modes.ts';
import { type Config, ConfigError } from '../../config/config.ts';
import { readMasterKeyRing } from '../../data-dir.ts';
import type { Db } from '../../db/pool.ts';
import { type Catalog, openCatalog } from '../../providers/catalog.ts';
import { addressChecks } from './address.ts';
import {
  type Check,
  type CheckResult,
  type Finding,
  fail,
  messageOf,
  ok,
  runCheck,
  skipped,
} from './check.ts';
import { checkKeyRing, databaseChecks } from './database.ts';
import { integrationChecks } from './integrations.ts';
import { diskChecks, machineChecks } from './machine.ts';

type Examination = {
  /** Throws ConfigError with all faults. */
  load: () => Config;
  /** Lends the database; throws if it cannot be reached. */
  withDatabase: <T>(config: Config, work: (db: Db) => Promise<T>) => Promise<T>;
  /** Whether there is a database: the first start makes an embedded one. */
  hasDatabase: (config: Config) => boolean;
  onFinding: (finding: Finding) => void;
};

/** Runs the checks one after another. Checks without their subject are skipped. */
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
  const report = (name: string, result: CheckResult) => look([{ name, run: async () => result }]);
  const { config, result } = loaded(load);
  await report('settings', result);
  await look(machineChecks(config));
  if (config === undefined) return found;
  const isEmbedded = config.databaseUrl === undefined;
  await look(diskChecks({ dataDir: config.dataDir, isEmbedded }));
  await look(addressChecks(config));
  const providers = readProviders(config);
  await report('providers', providers.result);
  if (!hasDatabase(config)) {
    await report('database', skipped('There is no database yet; the first start creates it.'));
    return found;
  }
  let isReached = false;
  await withDatabase(config, async (db) => {
    const [version] = await db.query<{ version: string }>('select version()');
    isReached = true;
    const subject = isEmbedded ? 'The embedded database responds' : 'The database responds';
    await report('database', ok(`${subject}: ${(version?.version ?? '').split(' on ')[0]}.`));
    await look(databaseChecks(db, { ...config, isEmbedded }));
    if (providers.catalog !== undefined)
      await look(integrationChecks(db, { catalog: providers.catalog, at: new Date() }));
    await look([{ name: 'key-ring', run: () => checkKeys(db, config) }]);
  }).catch(async (error: unknown) => {
    if (isReached) throw error;
    await report(
      'database',
      fail(`The database cannot be reached: ${messageOf(error)}`, remedyOf(isEmbedded)),
    );
  });
  return found;
}

function remedyOf(isEmbedded: boolean): string {
  return isEmbedded
    ? 'Run this command as the user of the service. The log of the server is DATA_DIR/postgres/postgres.log.'
    : 'Check that the server runs, that DATABASE_URL names its host, port, user and password, and that the server accepts this machine (pg_hba.conf).';
}

function loaded(load: () => Config): { config: Config | undefined; result: CheckResult } {
  try {
    return { config: load(), result: ok('The settings are valid.') };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const remedy = 'Correct these variables; docs/reference/settings.md lists all.';
    return { config: undefined, result: fail(error.faults.join(' '), remedy) };
  }
}

/** The catalogue is undefined if a definition is wrong. */
function readProviders({ providersDir }: Config): { catalog: Catalog | undefined; result: CheckResult } {
  try {
    const catalog = openCatalog(providersDir, authModes);
    if (providersDir === undefined) return { catalog, result: skipped('TRELLIS_PROVIDERS_DIR is not set.') };
    const { count, replaced, updated } = catalog.own();
    const more = replaced.length > 0 ? `; ${replaced.join(', ')} replace those that ship` : '';
    const ofUpdate = updated > 0 ? ` Definitions of an update: ${updated}.` : '';
    return { catalog, result: ok(`Provider definitions of your own: ${count}${more}.${ofUpdate}`) };
  } catch (error) {
    return {
      catalog: undefined,
      result: fail(messageOf(error), 'Correct these files, then run: trellis providers reload'),
    };
  }
}

/** By the master keys of the settings, or of DATA_DIR. */
async function checkKeys(db: Db, config: Config): Promise<CheckResult> {
  try {
    return await checkKeyRing(db, await readMasterKeyRing(config));
  } catch (error) {
    return fail(
      messageOf(error),
      config.kms === undefined
        ? 'Restore DATA_DIR/master.key from its backup, or correct its text.'
        : 'Run the command of TRELLIS_KMS_COMMAND by hand as the user of the service.',
    );
  }
}
