import { type Config, ConfigError } from '../config/config.ts';
import { masterKeyPath, readMasterKeyRing } from '../data-dir.ts';
import { proveKeyRing, proveStarted } from '../data-keys/master-keys.ts';
import type { EmbeddedConnection } from '../db/embedded/embedded.ts';
import { withEmbedded } from '../db/embedded/lend.ts';
import { hasEmbedded } from '../db/embedded/server-dir.ts';
import { readMigrationState } from '../db/migrate.ts';
import { type Db, type DbTarget, openDb } from '../db/pool.ts';
import { proveEnvironmentKeys } from '../environments/store.ts';
import type { IntegrationReading } from '../integrations/store.ts';
import { openVault, type Vault } from '../vault.ts';
import { log } from './terminal.ts';

/** Lends the database to a command, and closes it when the command has ended. */
export async function withDatabase<T>(config: Config, work: (db: Db) => Promise<T>): Promise<T> {
  const lend = async (target: DbTarget) => {
    await using db = openDb(target, { maxConnections: 2 });
    return await work(db);
  };
  return config.databaseUrl === undefined
    ? withEmbeddedServer(config, lend)
    : lend({ url: config.databaseUrl });
}

/** Lends the server of the embedded database, even if no service runs. Throws ConfigError if there is no database yet. */
export async function withEmbeddedServer<T>(
  { dataDir }: Config,
  work: (server: EmbeddedConnection) => Promise<T>,
): Promise<T> {
  if (!hasEmbedded(dataDir))
    throw new ConfigError([`DATA_DIR: ${dataDir} contains no database yet; start the service once`]);
  return withEmbedded({ dataDir, log }, work);
}

/** With the master keys of the settings or of DATA_DIR. Throws ConfigError if they are missing. */
export async function readVault(config: Config): Promise<Vault> {
  const { databaseUrl, dataDir } = config;
  const found = await readMasterKeyRing(config);
  const missing = databaseUrl === undefined ? masterKeyPath(dataDir) : 'TRELLIS_ENCRYPTION_KEYS';
  if (found === undefined) throw new ConfigError([`${missing} is missing`]);
  return openVault(found);
}

/** Lends the database with the vault and the catalogue. Throws if its version or its master keys differ from this service's. */
export async function withStore<T>(
  config: Config,
  work: (store: { db: Db; reading: IntegrationReading }) => Promise<T>,
): Promise<T> {
  const vault = await readVault(config);
  return withDatabase(config, async (db) => {
    const { pending, refused } = await readMigrationState(db);
    if (pending.length > 0 || refused.length > 0)
      throw new Error(
        'The database schema belongs to another version of the service. Start this version once, then run this command again.',
      );
    await proveKeyRing(db, vault.masterKeys);
    await proveStarted(db, vault.masterKeys);
    await proveEnvironmentKeys(db);
    // Only these commands need the catalogue and the auth modes, a quarter of all code that a command loads.
    const [{ openCatalog }, { authModes }] = await Promise.all([
      import('../providers/catalog.ts'),
      import('../auth-modes/modes.ts'),
    ]);
    const catalog = openCatalog(config.providersDir, authModes);
    return work({ db, reading: { vault, catalog, testClient: undefined } });
  });
}
