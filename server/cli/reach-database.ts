import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type Config, ConfigError } from '../config/config.ts';
import { findEmbedded, startEmbedded } from '../db/embedded.ts';
import { type Db, type DbTarget, openDb } from '../db/pool.ts';

/** Lends the database to a command, and ends all that it took when the command is done. */
export async function withDatabase<T>(config: Config, work: (db: Db) => Promise<T>): Promise<T> {
  const { target, stop } = await reachDatabase(config);
  const db = openDb(target, { maxConnections: 2 });
  try {
    return await work(db);
  } finally {
    await db.end();
    await stop();
  }
}

/** The database of the running service, or the embedded one started for this command alone. */
async function reachDatabase(config: Config): Promise<{ target: DbTarget; stop: () => Promise<void> }> {
  if (config.databaseUrl !== undefined) return { target: { url: config.databaseUrl }, stop: async () => {} };
  if (!existsSync(join(config.dataDir, 'postgres', 'data'))) {
    throw new ConfigError([`DATA_DIR: ${config.dataDir} holds no database yet; start the service once`]);
  }
  const running = await findEmbedded(config.dataDir);
  if (running !== undefined) return { target: running, stop: async () => {} };
  const embedded = await startEmbedded({ dataDir: config.dataDir });
  return { target: embedded.connection, stop: () => embedded.stop() };
}
