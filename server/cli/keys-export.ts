import type { FileHandle } from 'node:fs/promises';
import { writeAudit } from '../activity/audit.ts';
import { isNewerThanData, noteKeyFile } from '../data-keys/key-file-notes.ts';
import { pagesOfDataKeys } from '../data-keys/store.ts';
import type { Db, Queryable, Tx } from '../db/pool.ts';
import { listBackedUpKeys } from '../environments/key-backup.ts';
import { proveEnvironmentKeys } from '../environments/store.ts';
import { writeWhole } from '../whole-file.ts';
import { beginKeyFile, findMadeAt, proveKeyFile } from './key-file.ts';
import { listLostConnections } from './keys-restore.ts';

const page = 5_000;

type Exported = { madeAt: Date; count: number; masterKeys: string[] };

/**
 * Writes the keys of one moment in the place of what the file held before: how many data keys, and which master keys it
 * takes to open them. All or nothing: until the new file is on the disk and was read again, the old one stands.
 *
 * The old file may be the only one that opens anything, so it refuses where the database has lost keys or has none, and
 * where the old file is of a later moment than the data: a backup that was not given its keys yet, or another database.
 * Of one database's exports one runs at a time, so that of two the later one's file stays. Takes two connections.
 */
export async function exportKeys(db: Db, path: string): Promise<Exported> {
  return db.transaction(async (tx) => {
    await tx.query(`select pg_advisory_xact_lock(hashtextextended('file of keys', 0))`);
    const before = await findMadeAt(path);
    if (before !== undefined && (await isNewerThanData(tx, before)))
      throw new Error(
        `${path} is of ${before.toISOString()}, and this database knows of no such file: it is a backup from before, ` +
          'which needs "trellis keys restore FILE" first, or another database. The file was left as it is; where it is ' +
          'of no use, move it away.',
      );
    return writeWhole(path, async (file, draft) => {
      const exported = await db.transaction((snapshot) => writeKeys(snapshot, file), 'snapshot');
      await proveKeyFile(draft, { dataKeys: exported.count });
      await db.transaction((noting) => note(noting, exported));
      return exported;
    });
  });
}

async function writeKeys(tx: Queryable, file: FileHandle): Promise<Exported> {
  await proveWhole(tx);
  const [now] = await tx.query<{ at: Date }>('select now() as at');
  const madeAt = now!.at;
  const draft = await beginKeyFile(file, madeAt);
  const masterKeys = new Set<string>();
  let count = 0;
  for await (const keys of pagesOfDataKeys(tx, { size: page })) {
    for (const { masterKey } of keys) masterKeys.add(masterKey);
    count += keys.length;
    await draft.addDataKeys(keys);
  }
  if (count === 0) throw new Error('The database holds no data keys: there is nothing to write.');
  await draft.addApiKeys(await listBackedUpKeys(tx));
  await draft.end();
  return { madeAt, count, masterKeys: [...masterKeys].sort() };
}

/**
 * Before the file takes the old one's place, so that one that is there is one that the database knows; and after its
 * moment, so that a backup from between the two counts as older and takes over what was revoked. A restore takes away
 * alone, so that such a backup gets nothing back either.
 */
async function note(tx: Tx, { madeAt, count, masterKeys }: Exported): Promise<void> {
  await noteKeyFile(tx, madeAt);
  await writeAudit(tx, {
    environmentId: undefined,
    actor: 'command line',
    action: 'data_keys.exported',
    target: madeAt.toISOString(),
    details: { data_keys: count, master_keys: masterKeys.join(',') },
  });
}

async function proveWhole(tx: Queryable): Promise<void> {
  await proveEnvironmentKeys(tx);
  const lost = await listLostConnections(tx);
  if (lost.length === 0) return;
  throw new Error(
    `${lost.length} connections have lost their data key, the first is ${lost[0]?.name}. A database that was restored ` +
      'without its data keys needs "trellis keys restore FILE" first.',
  );
}
