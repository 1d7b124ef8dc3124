import { createSecretKey, randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { insertDataKey } from '../data-keys/store.ts';
import type { Db } from '../db/pool.ts';
import { ensureEnvironment } from '../environments/store.ts';
import { openVault } from '../vault.ts';

/** An installation with two environments and an integration, copies of it as backups bring them back, and a folder. */
export async function openBackupBench() {
  const masterKey = (id: string) => ({ id, key: createSecretKey(randomBytes(32)) });
  const [k1, k2] = [masterKey('k1'), masterKey('k2')];
  const vault = openVault([k1]);
  const database = await openTestDatabase();
  const { environment } = await ensureEnvironment(database.db, { name: 'dev', vault });
  await ensureEnvironment(database.db, { name: 'prod', vault });
  await database.db.query(
    `insert into integration (environment_id, key, provider, display_name)
     values ($1, 'notes', 'private-api-key', 'Notes')`,
    [environment.id],
  );
  const dir = await mkdtemp(join(tmpdir(), 'trellis-backup-'));
  const opened: TestDatabase[] = [database];
  const keep = (one: TestDatabase) => {
    opened.push(one);
    return one.db;
  };
  return {
    vault,
    dir,
    environment,
    k1,
    k2,
    db: database.db,
    /** A connection of yesterday, by this ID. */
    async connect(id: string): Promise<void> {
      const key = await insertDataKey(database.db, vault);
      await database.db.query(
        `insert into connection (environment_id, integration_id, connection_id, data_key, created_at)
         select environment_id, id, $1, $2, now() - interval '1 day' from integration`,
        [id, key.id],
      );
    },
    disconnect: (id: string) =>
      database.db.query(
        'update connection set data_key = null, deleted_at = now() where connection_id = $1',
        [id],
      ),
    /** Of everything, as a dump without options makes it. */
    wholeBackup: async (): Promise<Db> => keep(await database.copy()),
    /** As docs/operations/backup.md makes it: without the rows of `data_key`. */
    async backup(): Promise<Db> {
      const db = keep(await database.copy());
      await db.query('truncate data_key');
      return db;
    },
    /** Nothing was ever started with it. */
    unused: async (): Promise<Db> => keep(await openTestDatabase()),
    async close(): Promise<void> {
      for (const { drop } of opened.reverse()) await drop();
      await rm(dir, { recursive: true });
    },
  };
}
