import { writeAudit } from '../activity/audit.ts';
import { ConfigError } from '../config.ts';
import { destroyConnection } from '../connections/store.ts';
import { type KeyFile, replaceDataKeys } from '../data-keys/key-file.ts';
import { listMasterKeys, proveForRotation, retireMasterKey } from '../data-keys/master-keys.ts';
import type { Db, Tx } from '../db/pool.ts';
import { proveEnvironmentKeys } from '../environments/store.ts';
import type { Vault } from '../vault.ts';

/** A connection that was just being made when the file was written is none that was deleted. */
const slackMs = 5 * 60_000;

class DryRun extends Error {}

/**
 * Gives a restored database the data keys of a file, and no others: a connection without one was deleted after the
 * backup, and is deleted again. All keys are wrapped by the first master key afterwards, the others are retired. In one
 * transaction.
 *
 * Refuses, with nothing changed, where a master key is missing, where the file has none of an environment, and, unless
 * `dropsNewer`, where a connection was made after the file was written: its key is in a newer file.
 */
export async function restoreKeys(
  db: Db,
  given: { vault: Vault; keyFile: KeyFile; isDryRun: boolean; dropsNewer: boolean },
): Promise<{ connections: number; deleted: string[] }> {
  let done = { connections: 0, deleted: [] as string[] };
  await db
    .transaction(async (tx) => {
      done = await restoreAll(tx, given);
      if (given.isDryRun) throw new DryRun();
    })
    .catch((error: unknown) => {
      if (!(error instanceof DryRun)) throw error;
    });
  return done;
}

async function restoreAll(
  tx: Tx,
  { vault, keyFile, dropsNewer }: { vault: Vault; keyFile: KeyFile; dropsNewer: boolean },
): Promise<{ connections: number; deleted: string[] }> {
  const { entries, madeAt } = keyFile;
  await replaceDataKeys(tx, { entries: [], vault });
  await proveForRotation(tx, vault.masterKeys);
  await replaceDataKeys(tx, { entries, vault });
  await proveEnvironmentKeys(tx).catch((error: unknown) => {
    throw new ConfigError([`the file is of another installation: ${(error as Error).message}`]);
  });
  // Of what was made after the backup.
  await tx.query(
    `delete from data_key
     where not exists (select from connection where connection.data_key = data_key.id)
       and not exists (select from environment where environment.data_key = data_key.id)`,
  );
  const deleted = await destroyWithoutKey(tx, { madeAt, dropsNewer });
  const [sealing] = vault.masterKeys;
  for (const { id } of await listMasterKeys(tx)) if (id !== sealing.id) await retireMasterKey(tx, id);
  await writeAudit(tx, {
    environmentId: undefined,
    actor: 'command line',
    action: 'data_keys.restored',
    target: madeAt.toISOString(),
    details: { deleted: deleted.length },
  });
  const [row] = await tx.query<{ count: number }>(
    'select count(*) as count from connection where deleted_at is null',
  );
  return { connections: row?.count ?? 0, deleted };
}

async function destroyWithoutKey(
  tx: Tx,
  { madeAt, dropsNewer }: { madeAt: Date; dropsNewer: boolean },
): Promise<string[]> {
  const lost = await tx.query<{ id: number; name: string; createdAt: Date }>(
    `select
       connection.id, connection.created_at as "createdAt",
       environment.name || '/' || integration.key || '/' || connection.connection_id as name
     from connection
     join integration on integration.id = connection.integration_id
     join environment on environment.id = connection.environment_id
     where connection.deleted_at is null
       and not exists (select from data_key where data_key.id = connection.data_key)
     order by connection.id`,
  );
  const newer = lost.filter(({ createdAt }) => createdAt.getTime() > madeAt.getTime() - slackMs);
  if (newer.length > 0 && !dropsNewer) {
    throw new ConfigError([
      `the file is older than the data: ${newer.length} connections were made after it, the first is ` +
        `${newer[0]?.name}. Take a newer file, or give them up with --drop-newer`,
    ]);
  }
  for (const { id } of lost) await destroyConnection(tx, id);
  return lost.map(({ name }) => name);
}
