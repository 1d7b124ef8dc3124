import { type Config, ConfigError } from '../config/config.ts';
import type { EmbeddedConnection } from '../db/embedded.ts';
import { withEmbedded } from '../db/embedded-lend.ts';
import { hasEmbedded } from '../db/embedded-place.ts';
import { type Db, type DbTarget, openDb } from '../db/pool.ts';

/** Lends the database to a command, and ends all that it took when the command is done. */
export async function withDatabase<T>(config: Config, work: (db: Db) => Promise<T>): Promise<T> {
  const lend = async (target: DbTarget) => {
    const db = openDb(target, { maxConnections: 2 });
    try {
      return await work(db);
    } finally {
      await db.end();
    }
  };
  return config.databaseUrl === undefined
    ? withEmbeddedServer(config, lend)
    : lend({ url: config.databaseUrl });
}

/** Lends the server of the embedded database, also where no service runs. Throws ConfigError where there is none yet. */
export async function withEmbeddedServer<T>(
  { dataDir }: Config,
  work: (server: EmbeddedConnection) => Promise<T>,
): Promise<T> {
  if (!hasEmbedded(dataDir))
    throw new ConfigError([`DATA_DIR: ${dataDir} holds no database yet; start the service once`]);
  return withEmbedded({ dataDir, log: (message) => console.error(message) }, work);
}
