// A Citus cluster for tests of records: see `scripts/test-citus.ts`.

import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { openDb } from '../../server/db/pool.ts';
import { atDatabase, type TestServer } from './database.ts';

/** Whether the tests run on a cluster. */
export const isCluster = process.env.TEST_CITUS_WORKERS !== undefined;

/** Whether they connect to the workers for records. */
export const isDirect = process.env.TEST_CITUS_DIRECT !== undefined;

/** Makes a cluster of the databases of this name, one on each machine. */
export async function createCluster(
  { admin, workers }: Pick<TestServer, 'admin' | 'workers'>,
  name: string,
): Promise<void> {
  const places = [admin, ...workers].map((target) => new URL((target as { url: string }).url));
  const [coordinator, ...others] = places.map(({ hostname, port }) => `'${hostname}', ${port}`);
  for (const target of [...workers, admin]) {
    const { password } = new URL((target as { url: string }).url);
    await using db = openDb(atDatabase(target, name), { maxConnections: 1 });
    await db.query('create extension citus');
    if (password !== '')
      await db.query(`insert into pg_dist_authinfo values (0, current_user, 'password=${password}')`);
    if (target !== admin) continue;
    await db.query(`select citus_set_coordinator_host(${coordinator})`);
    for (const worker of others) await db.query(`select citus_add_node(${worker})`);
  }
}

/** Settings of each machine of a cluster. */
export const citusSettings = {
  shared_preload_libraries: 'citus',
  max_prepared_transactions: '400',
  'citus.recover_2pc_interval': '1s',
  // To move shards while they are used.
  wal_level: 'logical',
};

/** The programs of the PostgreSQL that PG_CONFIG names, or of the lowest installed one with the extension. */
export function findCitus(): string | undefined {
  if (process.env.PG_CONFIG !== undefined) return dirname(process.env.PG_CONFIG);
  const installed = '/usr/lib/postgresql';
  const majors = existsSync(installed) ? readdirSync(installed).map(Number) : [];
  return majors
    .sort((a, b) => a - b)
    .map((major) => `${installed}/${major}/bin`)
    .find((bin) => {
      if (!existsSync(`${bin}/initdb`) || !existsSync(`${bin}/pg_config`)) return false;
      const share = execFileSync(`${bin}/pg_config`, ['--sharedir'], { encoding: 'utf8' }).trim();
      return existsSync(`${share}/extension/citus.control`);
    });
}
