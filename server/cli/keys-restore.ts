import { writeAudit } from '../activity/audit.ts';
import { destroyConnection } from '../connections/store.ts';
import { isNewerThanData, noteKeyFile } from '../data-keys/key-file-notes.ts';
import { listMasterKeys, proveForRotation, retireMasterKey } from '../data-keys/master-keys.ts';
import { registerMasterKey, replaceDataKeys } from '../data-keys/store.ts';
import type { Db, Queryable, Tx } from '../db/pool.ts';
import { type FiledKey, type KeyOf, restoreFiledKeys } from '../environments/filed-keys.ts';
import { noteKey } from '../environments/keys.ts';
import { listKeyless } from '../environments/store.ts';
import { endSignIns } from '../users/users.ts';
import type { Vault } from '../vault.ts';
import type { KeyFile } from './key-file.ts';

/** A connection that was just being made when the file was written is none that was deleted. */
const slackMs = 5 * 60_000;
const actor = 'command line';

class DryRun extends Error {}

type Given = { vault: Vault; keyFile: KeyFile; dropsNewer: boolean; at: Date };

/** What it came to; connections by name. `lost` are API keys that were made after the backup, `unread` as in the file. */
export type Restored = {
  connections: number;
  deleted: string[];
  revoked: KeyOf[];
  changed: KeyOf[];
  lost: FiledKey[];
  unread: number;
};

/**
 * Gives a restored database the data keys of a file, and no others: a connection without one was deleted after the
 * backup, and is deleted again. All keys are wrapped by the first master key afterwards, the others are retired. API keys
 * that were revoked or narrowed after the backup are so again, unless the data are younger than the file; none comes to
 * more than the data give it. In one transaction, with an audit entry for each. All people sign in anew, as sessions that
 * were ended after the backup would be back.
 *
 * Refuses, with nothing changed, where a master key is missing, where the file has none of an environment, and, unless
 * `dropsNewer`, where a connection was made after the file was written: its key is in a newer file.
 */
export async function restoreKeys(db: Db, given: Given): Promise<Restored> {
  return db.transaction((tx) => restoreAll(tx, given));
}

/** What `restoreKeys` would do, with nothing changed. */
export async function tryRestoreKeys(db: Db, given: Given): Promise<Restored> {
  let done: Restored | undefined;
  const undone = db.transaction(async (tx) => {
    done = await restoreAll(tx, given);
    throw new DryRun();
  });
  await undone.catch((error: unknown) => {
    if (!(error instanceof DryRun)) throw error;
  });
  return done!;
}

async function restoreAll(tx: Tx, { vault, keyFile, dropsNewer, at }: Given): Promise<Restored> {
  const { dataKeys, apiKeys, madeAt, unread } = keyFile;
  const [sealing] = vault.masterKeys;
  await replaceDataKeys(tx, { keys: [], vault });
  await proveForRotation(tx, vault.masterKeys);
  await registerMasterKey(tx, sealing);
  await replaceDataKeys(tx, { keys: dataKeys, vault });
  const keyless = await listKeyless(tx);
  if (keyless.length > 0)
    throw new Error(
      `The file has no data key of the environment ${keyless.map((name) => `"${name}"`).join(', ')}: it is of another ` +
        'installation, or from before the environment was made.',
    );
  // Of what was made after the backup.
  await tx.query(
    `delete from data_key
     where not exists (select from connection where connection.data_key = data_key.id)
       and not exists (select from environment where environment.data_key = data_key.id)
       and not exists (select from sign_in_key where sign_in_key.data_key = data_key.id)`,
  );
  const deleted = await destroyLost(tx, { madeAt, dropsNewer, at });
  for (const { id } of await listMasterKeys(tx)) if (id !== sealing.id) await retireMasterKey(tx, id);
  const keys = (await isNewerThanData(tx, madeAt))
    ? await restoreFiledKeys(tx, { filed: apiKeys, madeAt, at })
    : { revoked: [], changed: [], lost: [] };
  for (const { key, environmentId } of keys.revoked)
    await noteKey(tx, { action: 'key.revoked', actor, environmentId, key });
  for (const { key, environmentId } of keys.changed)
    await noteKey(tx, { action: 'key.changed', actor, environmentId, key });
  await endSignIns(tx);
  await noteKeyFile(tx, madeAt);
  await writeAudit(tx, {
    environmentId: undefined,
    actor,
    action: 'data_keys.restored',
    target: madeAt.toISOString(),
    details: { deleted: deleted.length, revoked: keys.revoked.length, changed: keys.changed.length },
  });
  const [row] = await tx.query<{ count: number }>(
    'select count(*) as count from connection where deleted_at is null',
  );
  return { connections: row?.count ?? 0, deleted, ...keys, unread };
}

type Lost = { id: number; environmentId: number; target: string; name: string; createdAt: Date };

/** Connections whose data key is not there, oldest first. */
export async function listLostConnections(db: Queryable): Promise<Lost[]> {
  return db.query<Lost>(
    `select
       connection.id, connection.environment_id as "environmentId", connection.created_at as "createdAt",
       integration.key || '/' || connection.connection_id as target,
       environment.name || '/' || integration.key || '/' || connection.connection_id as name
     from connection
     join integration on integration.id = connection.integration_id
     join environment on environment.id = connection.environment_id
     where connection.deleted_at is null
       and not exists (select from data_key where data_key.id = connection.data_key)
     order by connection.id`,
  );
}

async function destroyLost(
  tx: Tx,
  { madeAt, dropsNewer, at }: { madeAt: Date; dropsNewer: boolean; at: Date },
): Promise<string[]> {
  const lost = await listLostConnections(tx);
  const newer = lost.filter(({ createdAt }) => createdAt.getTime() > madeAt.getTime() - slackMs);
  if (newer.length > 0 && !dropsNewer) {
    throw new Error(
      `The file is older than the data: ${newer.length} connections were made after it, the first is ` +
        `${newer[0]?.name}. Take a newer file, or give them up with --drop-newer.`,
    );
  }
  for (const { id, environmentId, target } of lost) {
    await destroyConnection(tx, { id, at });
    await writeAudit(tx, {
      environmentId,
      actor,
      action: 'connection.deleted',
      target,
      details: { cause: 'no key in the file', revocation: 'none' },
    });
  }
  return lost.map(({ name }) => name);
}
