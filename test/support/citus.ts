// A Citus cluster for tests of records: see `scripts/test-citus.ts`.

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
