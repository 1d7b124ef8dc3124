import { writeAudit } from '../activity/audit.ts';
import { destroyConnection } from '../connections/store.ts';
import { goesOnFrom, noteKeyFile } from '../data-keys/key-file-notes.ts';
import { listMasterKeys, proveForRotation, retireMasterKey } from '../data-keys/master-keys.ts';
import { addDataKeys, registerMasterKey, replaceDataKeys } from '../data-keys/store.ts';
import type { Db, Queryable, Tx } from '../db/pool.ts';
import { type BackedUpKey, type KeyOf, restoreBackedUpKeys } from '../environments/key-backup.ts';
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

/**
 * What it came to; connections by name. `younger`: how many keep a key of the database's own that the file lacks.
 * `deleted` were so before the file, `givenUp` were made after it. `lost` are API keys that were made after the backup,
 * `unread` as in the file.
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
 * Gives a database that went back in time the data keys of a file.
 *
 * Data that never met the file are from before it: they get its keys and no others, and a connection without one was
 * deleted after the backup, and is deleted again. API keys that were revoked or narrowed after the backup are so again;
 * none comes to more than the data give it. Data that went on from the file, as those of a replica, keep the keys that
 * they hold and their API keys: the file cannot know what was made since. It adds what they lack.
 *
 * All keys are wrapped by the first master key afterwards, the others are retired. In one transaction, with an audit entry
 * for each. All users must sign in again, since the backup would bring back sessions that were ended after it.
 *
 * Refuses, with nothing changed, where a master key is missing, where an environment is left without a key, and, unless
 * `dropsNewer`, where a connection is that was made after the file was written: its key is in a newer file.
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

async function restoreAll(tx: Tx, given: Given): Promise<Restored> {
  const { keyFile, at } = given;
  const { madeAt, unread } = keyFile;
  const isYounger = await goesOnFrom(tx, madeAt);
  await putDataKeys(tx, { ...given, isYounger });
  const { deleted, givenUp } = await destroyLost(tx, { ...given, isYounger });
  const [sealing] = given.vault.masterKeys;
  for (const { id } of await listMasterKeys(tx)) if (id !== sealing.id) await retireMasterKey(tx, id);
  const keys = isYounger ? { revoked: [], changed: [], lost: [] } : await restoreApiKeys(tx, { keyFile, at });
  await endSignIns(tx);
  await noteKeyFile(tx, madeAt);
  await writeAudit(tx, {
    environmentId: undefined,
    actor,
    action: 'data_keys.restored',
    target: madeAt.toISOString(),
    details: {
      ...{ deleted: deleted.length, given_up: givenUp.length },
      ...{ revoked: keys.revoked.length, changed: keys.changed.length },
    },
  });
  return { ...(await countConnections(tx, keyFile)), deleted, givenUp, ...keys, unread };
}

async function putDataKeys(
  tx: Tx,
  { vault, keyFile, isYounger }: Given & { isYounger: boolean },
): Promise<void> {
  if (!isYounger) await replaceDataKeys(tx, { keys: [], vault });
  await proveForRotation(tx, vault.masterKeys);
  await registerMasterKey(tx, vault.masterKeys[0]);
  await (isYounger ? addDataKeys : replaceDataKeys)(tx, { keys: keyFile.dataKeys, vault });
  const keyless = await listKeyless(tx);
  if (keyless.length > 0) throw new Error(lacksEnvironments(keyless, { isYounger }));
  // Of what was made after the backup, or deleted after the file.
  await tx.query(
    `delete from data_key
     where not exists (select from connection where connection.data_key = data_key.id)
       and not exists (select from environment where environment.data_key = data_key.id)
       and not exists (select from sign_in_key where sign_in_key.data_key = data_key.id)`,
  );
}

async function restoreApiKeys(tx: Tx, { keyFile, at }: Pick<Given, 'keyFile' | 'at'>) {
  const keys = await restoreBackedUpKeys(tx, { filed: keyFile.apiKeys, madeAt: keyFile.madeAt, at });
  for (const { key, environmentId } of keys.revoked)
    await noteKey(tx, { action: 'key.revoked', actor, environmentId, key });
  for (const { key, environmentId } of keys.changed)
    await noteKey(tx, { action: 'key.changed', actor, environmentId, key });
  return keys;
}

function lacksEnvironments(names: readonly string[], { isYounger }: { isYounger: boolean }): string {
  const which = names.map((name) => `"${name}"`).join(', ');
  return isYounger
    ? `The file is older than the environment ${which}, and these data hold no key of it. Take a newer file.`
    : `The file has no data key of the environment ${which}: it is of another installation, or from before the ` +
        'environment was made.';
}

function lacksConnections(newer: readonly Lost[]): string {
  return (
    `The file is older than the data: it has no key of ${newer.length} connections that were made after it, or just ` +
    `before, the first is ${newer[0]?.name}. Take a newer file, or give them up with --drop-newer: they are deleted then.`
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
  { keyFile: { madeAt }, isYounger, dropsNewer, at }: Given & { isYounger: boolean },
): Promise<Pick<Restored, 'deleted' | 'givenUp'>> {
  const lost = await listLostConnections(tx);
  // Of data that went on from the file all are newer, also those that were moved here and brought their time along.
  const isNewer = ({ createdAt }: Lost) => isYounger || createdAt.getTime() > madeAt.getTime() - slackMs;
  const newer = lost.filter(isNewer);
  if (newer.length > 0 && !dropsNewer) throw new Error(lacksConnections(newer));
  const older = lost.filter((one) => !isNewer(one));
  return {
    deleted: await destroyAll(tx, { connections: older, cause: 'no key in the file', at }),
    givenUp: await destroyAll(tx, { connections: newer, cause: 'made after the file', at }),
  };
}

/** Their names. */
async function destroyAll(
  tx: Tx,
  { connections, cause, at }: { connections: readonly Lost[]; cause: string; at: Date },
): Promise<string[]> {
  for (const { id, environmentId, target } of connections) {
    await destroyConnection(tx, { id, at });
    await writeAudit(tx, {
      environmentId,
      actor,
      action: 'connection.deleted',
      target,
      details: { cause, revocation: 'none' },
    });
  }
  return connections.map(({ name }) => name);
}
