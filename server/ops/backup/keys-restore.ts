import { commandLine, writeCommandAudit } from '../../activity/audit.ts';
import { destroyConnection } from '../../connections/store/save.ts';
import { listMasterKeys, proveForRotation, retireMasterKey } from '../../data-keys/master-keys.ts';
import {
  addDataKeys,
  continuesFrom,
  recordKeyFile,
  registerMasterKey,
  replaceDataKeys,
} from '../../data-keys/store.ts';
import type { Db, Queryable, Tx } from '../../db/pool.ts';
import { type BackedUpKey, type KeyOf, restoreBackedUpKeys } from '../../environments/key-backup.ts';
import { auditKey } from '../../environments/keys.ts';
import { listKeyless } from '../../environments/store.ts';
import { endSignIns } from '../../users/users.ts';
import type { Vault } from '../../vault.ts';
import type { KeyFile } from './key-file.ts';

/** A connection that was made shortly before the file was written was not deleted. */
const slackMs = 5 * 60_000;

class DryRun extends Error {}

type RestoreInput = { vault: Vault; keyFile: KeyFile; dropsNewer: boolean; at: Date };

/**
 * The result; connections by name. `younger`: how many keep a key that only the database has. `deleted` were deleted
 * before the file was written, `givenUp` were made after it. `lost` are API keys that were made after the backup, `unread`
 * as in the file.
 */
export type Restored = {
  connections: number;
  younger: number;
  deleted: string[];
  givenUp: string[];
  revoked: KeyOf[];
  changed: KeyOf[];
  lost: BackedUpKey[];
  unread: number;
};

/**
 * Restores the data keys of a file into a database that went back in time.
 *
 * Data without a record of the file are older than it: they get its keys and no others. A connection without a key in it
 * was deleted after the backup, and is deleted again. API keys that were revoked or narrowed after the backup are revoked
 * or narrowed again; no key gets more rights than in the data. Data with a record of the file, such as those of a replica,
 * are newer: they keep their data keys and API keys, and missing data keys are added.
 *
 * Afterwards the first master key wraps all keys, and the others are retired. One transaction, with an audit entry for
 * each change. All users must sign in again, because the backup has sessions that were ended after it.
 *
 * Throws, and changes nothing, if a master key is missing, if an environment would have no key, or, unless `dropsNewer`, if
 * a connection was made after the file was written: its key is in a newer file.
 */
export async function restoreKeys(db: Db, given: RestoreInput): Promise<Restored> {
  return db.transaction((tx) => restoreAll(tx, given));
}

/** The result of `restoreKeys`; nothing is changed. */
export async function tryRestoreKeys(db: Db, given: RestoreInput): Promise<Restored> {
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

async function restoreAll(tx: Tx, given: RestoreInput): Promise<Restored> {
  const { keyFile, at } = given;
  const { madeAt, unread } = keyFile;
  const isYounger = await continuesFrom(tx, madeAt);
  await putDataKeys(tx, { ...given, isYounger });
  const { deleted, givenUp } = await destroyLost(tx, { ...given, isYounger });
  const [sealing] = given.vault.masterKeys;
  for (const { id } of await listMasterKeys(tx)) if (id !== sealing.id) await retireMasterKey(tx, id);
  const keys = isYounger ? { revoked: [], changed: [], lost: [] } : await restoreApiKeys(tx, { keyFile, at });
  await endSignIns(tx);
  await recordKeyFile(tx, madeAt);
  await writeCommandAudit(tx, {
    action: 'data_keys.restored',
    target: madeAt.toISOString(),
    details: {
      deleted: deleted.length,
      given_up: givenUp.length,
      revoked: keys.revoked.length,
      changed: keys.changed.length,
    },
  });
  return { ...(await countConnections(tx, keyFile)), deleted, givenUp, ...keys, unread };
}

async function putDataKeys(
  tx: Tx,
  { vault, keyFile, isYounger }: RestoreInput & { isYounger: boolean },
): Promise<void> {
  if (!isYounger) await replaceDataKeys(tx, { keys: [], vault });
  await proveForRotation(tx, vault.masterKeys);
  await registerMasterKey(tx, vault.masterKeys[0]);
  await (isYounger ? addDataKeys : replaceDataKeys)(tx, { keys: keyFile.dataKeys, vault });
  const keyless = await listKeyless(tx);
  if (keyless.length > 0) throw new Error(lacksEnvironments(keyless, { isYounger }));
  // Keys of rows that were made after the backup, or deleted after the file.
  await tx.query(
    `delete from data_key
     where not exists (select from connection where connection.data_key = data_key.id)
       and not exists (select from environment where environment.data_key = data_key.id)
       and not exists (select from sign_in_key where sign_in_key.data_key = data_key.id)`,
  );
}

async function restoreApiKeys(tx: Tx, { keyFile, at }: Pick<RestoreInput, 'keyFile' | 'at'>) {
  const keys = await restoreBackedUpKeys(tx, { filed: keyFile.apiKeys, madeAt: keyFile.madeAt, at });
  for (const { key, environmentId } of keys.revoked)
    await auditKey(tx, { action: 'key.revoked', actor: commandLine, environmentId, key });
  for (const { key, environmentId } of keys.changed)
    await auditKey(tx, { action: 'key.changed', actor: commandLine, environmentId, key });
  return keys;
}

function lacksEnvironments(names: readonly string[], { isYounger }: { isYounger: boolean }): string {
  const which = names.map((name) => `"${name}"`).join(', ');
  return isYounger
    ? `The file is older than the environment ${which}, and the database has no key for it. Use a newer file.`
    : `The file has no data key of the environment ${which}: it belongs to another installation, or was written before the ` +
        'environment was created.';
}

function lacksConnections(newer: readonly Lost[]): string {
  return (
    `The file is older than the data: it has no key for ${newer.length} connections that were created after it, or just ` +
    `before, the first is ${newer[0]?.name}. Use a newer file, or delete these connections with --drop-newer.`
  );
}

async function countConnections(
  db: Queryable,
  { dataKeys }: KeyFile,
): Promise<Pick<Restored, 'connections' | 'younger'>> {
  const [row] = await db.query<{ connections: number; younger: number }>(
    `select
       count(*) as connections,
       count(*) filter (where filed.id is null) as younger
     from connection
     left join unnest($1::uuid[]) as filed (id) on filed.id = connection.data_key
     where deleted_at is null`,
    [dataKeys.map(({ id }) => id)],
  );
  return row ?? { connections: 0, younger: 0 };
}

type Lost = { id: number; environmentId: number; target: string; name: string; createdAt: Date };

/** Connections without their data key, oldest first. */
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
  { keyFile: { madeAt }, isYounger, dropsNewer, at }: RestoreInput & { isYounger: boolean },
): Promise<Pick<Restored, 'deleted' | 'givenUp'>> {
  const lost = await listLostConnections(tx);
  // In data that are newer than the file all are newer, even imported ones with an earlier time.
  const isNewer = ({ createdAt }: Lost) => isYounger || createdAt.getTime() > madeAt.getTime() - slackMs;
  const newer = lost.filter(isNewer);
  if (newer.length > 0 && !dropsNewer) throw new Error(lacksConnections(newer));
  const older = lost.filter((one) => !isNewer(one));
  return {
    deleted: await destroyAll(tx, { connections: older, cause: 'no key in the file', at }),
    givenUp: await destroyAll(tx, { connections: newer, cause: 'made after the file', at }),
  };
}

/** Returns their names. */
async function destroyAll(
  tx: Tx,
  { connections, cause, at }: { connections: readonly Lost[]; cause: string; at: Date },
): Promise<string[]> {
  for (const { id, environmentId, target } of connections) {
    await destroyConnection(tx, { id, at });
    await writeCommandAudit(tx, {
      environmentId,
      action: 'connection.deleted',
      target,
      details: { cause, revocation: 'none' },
    });
  }
  return connections.map(({ name }) => name);
}
