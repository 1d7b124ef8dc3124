import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Account } from '../db/embedded-account.ts';
import type { Binaries } from '../db/embedded-binaries.ts';
import { withPrivateServer } from '../db/embedded-private.ts';
import { withSession } from '../db/embedded-session.ts';
import { removeTraces } from './base-backup.ts';
import { readTree } from './copy-tree.ts';
import { listKnown, removeOrphans } from './orphans.ts';

/**
 * Takes the data keys out of a copied cluster, so that no backup of the data can open anything by itself, or bring a
 * deleted connection back.
 *
 * The rows are not the only place: the planner's statistics hold samples of each column, WAL holds every change, WAL
 * files that are used again hold what stood there before, and a crash leaves files that belong to no relation. So the copy
 * is recovered by a server of its own, emptied of keys there, and left with the files of its relations and the WAL of its
 * end alone. That it starts is proof that it restores.
 */
export async function takeKeysOut(
  clusterDir: string,
  { binaries, account }: { binaries: Binaries; account: Account },
): Promise<void> {
  const settings = {
    // A file of WAL is made of zeros, and one that is over is removed: none comes back with what it held.
    wal_recycle: 'off',
    wal_init_zero: 'on',
    // Until it is whole, a copy is worth nothing; then `syncCluster` writes it all.
    fsync: 'off',
  };
  const { lastWal, known } = await withPrivateServer(clusterDir, { binaries, account, settings }, (server) =>
    withSession(server.connection, async (session) => {
      const [found] = await session.query<{ table: string | null }>(
        `select to_regclass('data_key')::text as table`,
      );
      if (found?.table == null) throw new Error('the database holds nothing yet; start the service once');
      await session.query('truncate data_key');
      await session.query(`delete from pg_statistic where starelid = 'data_key'::regclass`);
      await session.query('vacuum full pg_statistic');
      // Behind this nothing of before is written, and by the second one nothing of before is needed.
      await session.query('checkpoint');
      await session.query('select pg_switch_wal()');
      await session.query('checkpoint');
      const [at] = await session.query<{ file: string }>(
        'select pg_walfile_name(pg_current_wal_lsn()) as file',
      );
      return { lastWal: at!.file, known: await listKnown(session) };
    }),
  );
  const { files } = await readTree(join(clusterDir, 'pg_wal'));
  for (const name of files) if (name < lastWal) await rm(join(clusterDir, 'pg_wal', name));
  await removeTraces(clusterDir);
  await removeOrphans(clusterDir, known);
}
