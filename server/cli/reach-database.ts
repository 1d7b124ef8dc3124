import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type Config, ConfigError } from '../config.ts';
import { findEmbedded, startEmbedded } from '../db/embedded.ts';
import type { DbTarget } from '../db/pool.ts';

/** The database of the running service, or the embedded one started for this command alone. */
export async function reachDatabase(
  config: Config,
): Promise<{ target: DbTarget; stop: () => Promise<void> }> {
  if (config.databaseUrl !== undefined) return { target: { url: config.databaseUrl }, stop: async () => {} };
  if (!existsSync(join(config.dataDir, 'postgres', 'data'))) {
    throw new ConfigError([`DATA_DIR: ${config.dataDir} holds no database yet; start the service once`]);
  }
  const running = await findEmbedded(config.dataDir);
  if (running !== undefined) return { target: running, stop: async () => {} };
  const embedded = await startEmbedded({ dataDir: config.dataDir });
  return { target: embedded.connection, stop: () => embedded.stop() };
}
