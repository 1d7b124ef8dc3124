import { randomBytes } from 'node:crypto';
import { commandLine, writeCommandAudit } from '../activity/audit.ts';
import { type Activity, createActivity, loggedFault, noActivity } from '../activity/writer.ts';
import { ConfigError, loadConfigWithoutKeys, readMasterKeys } from '../config/config.ts';
import {
  isSameKey,
  listMasterKeys,
  proveForRotation,
  proveOrder,
  proveStarted,
  retireMasterKey,
} from '../data-keys/master-keys.ts';
import { countOthers, rotateDataKeys } from '../data-keys/rotate.ts';
import type { Db } from '../db/pool.ts';
import { unwrapMasterKeys, wrapMasterKey } from '../kms.ts';
import { createLog } from '../log.ts';
import { exportKeys, readKeyFile } from '../ops/backup/key-file.ts';
import { type Restored, restoreKeys, tryRestoreKeys } from '../ops/backup/keys-restore.ts';
import type { Vault } from '../vault.ts';
import { readVault, withDatabase } from './database.ts';
import { createProgress, type JsonOption, oneLine, printJson, readStandardInput } from './terminal.ts';

type RotateOptions = { dryRun?: boolean | undefined; back?: boolean | undefined };
export type RestoreOptions = RotateOptions & { dropNewer?: boolean | undefined };

type KeysContext = { readVault: () => Promise<Vault>; activity: Activity };

/** Lends the database to a `trellis keys` command: the master keys and the data keys that they wrap. */
async function withKeys(work: (db: Db, context: KeysContext) => Promise<number>): Promise<number> {
  const config = loadConfigWithoutKeys();
  return withDatabase(config, async (db) => {
    const log = createLog({ level: 'warn', format: 'json' });
    const activity = config.activity.isOn
      ? createActivity({ db, log, settings: { sampleRate: 1 } })
      : noActivity;
    return work(db, { readVault: () => readVault(config), activity }).finally(() => activity.stop());
  });
}

/** `trellis keys list`: exits with 1 if the service would refuse to start. */
export const listMasterKeysCommand = ({ json }: JsonOption) =>
  withKeys(async (db, { readVault }) => {
    const rows = await masterKeyRows(db, await readVault());
    if (json) printJson(rows);
    else printMasterKeys(rows);
    return rows.some(({ state }) => state === 'different' || state === 'missing') ? 1 : 0;
  });

/** `trellis keys rotate`: wraps all data keys with the first master key, also while the service runs. */
export const rotateCommand = (options: RotateOptions) =>
  withKeys((db, context) => rotate(db, { ...context, ...options }));

/** `trellis keys export`: writes the wrapped data keys to a file, also while the service runs. */
export const exportKeysCommand = (file: string) => withKeys((db) => exportKeysTo(db, file));

/** `trellis keys restore`: restores the data keys of a restored database, also while the service runs. */
export const restoreKeysCommand = (file: string, options: RestoreOptions) =>
  withKeys((db, context) => restore(db, { ...context, ...options, file }));

/**
 * `trellis keys wrap`: prints master keys as TRELLIS_ENCRYPTION_KEYS has them with TRELLIS_KMS_COMMAND: a new one, or those of
 * standard input, `id:base64,id:base64`.
 */
export async function wrapKeysCommand({ new: id }: { new?: string | undefined }): Promise<number> {
  const { kms } = loadConfigWithoutKeys();
  if (kms === undefined) throw new ConfigError(['TRELLIS_KMS_COMMAND is missing']);
  const faults: string[] = [];
  const given = id === undefined ? await readStandardInput() : `${id}:${randomBytes(32).toString('base64')}`;
  const keys = readMasterKeys(given.trim(), faults) ?? [];
  if (faults.length > 0) throw new ConfigError(faults);
  const wrapped: string[] = [];
  for (const key of keys) {
    const made = await wrapMasterKey(kms, key);
    const [unwrapped] = await unwrapMasterKeys(kms, [made]);
    if (!unwrapped?.key.equals(key.key))
      throw new ConfigError([`TRELLIS_KMS_COMMAND unwraps another key than it has wrapped: "${key.id}"`]);
    wrapped.push(`${made.id}:${made.wrapped}`);
  }
  console.log(wrapped.join(','));
  return 0;
}

type MasterKeyState = 'seals' | 'listed' | 'retired' | 'missing' | 'different';
type MasterKeyRow = { id: string; data_keys: number; state: MasterKeyState; retired_at: string | null };

async function masterKeyRows(db: Db, vault: Vault): Promise<MasterKeyRow[]> {
  const known = await listMasterKeys(db);
  const sealing = vault.masterKeys.find(
    ({ id }) => known.find((key) => key.id === id)?.retiredAt === undefined,
  );
  const rows = known.map((key): MasterKeyRow => {
    const { id, dataKeys, retiredAt } = key;
    const given = vault.masterKeys.find((one) => one.id === id);
    const row = { id, data_keys: dataKeys, retired_at: retiredAt?.toISOString() ?? null };
    if (given && !isSameKey(key, given)) return { ...row, state: 'different' };
    if (retiredAt) return { ...row, state: 'retired' };
    if (!given) return { ...row, state: 'missing' };
    return { ...row, state: id === sealing?.id ? 'seals' : 'listed' };
  });
  for (const { id } of vault.masterKeys) {
    if (known.some((key) => key.id === id)) continue;
    const state = id === sealing?.id ? 'seals' : 'listed';
    rows.push({ id, data_keys: 0, state, retired_at: null });
  }
  return rows;
}

function printMasterKeys(rows: readonly MasterKeyRow[]): void {
  const width = Math.max('master key'.length, ...rows.map(({ id }) => id.length));
  console.log(`${'master key'.padEnd(width)}  ${'data keys'.padStart(9)}  state`);
  for (const row of rows)
    console.log(`${row.id.padEnd(width)}  ${String(row.data_keys).padStart(9)}  ${describeState(row)}`);
}

function describeState({ state, data_keys: dataKeys, retired_at: retiredAt }: MasterKeyRow): string {
  if (state === 'different') return 'NOT the key that was used before';
  if (state === 'missing') return 'MISSING from the settings';
  if (state === 'retired') return `retired ${retiredAt}, can be removed`;
  return state === 'listed' && dataKeys === 0 ? 'listed, wraps no data key yet' : state;
}

async function rotate(
  db: Db,
  { readVault, activity, dryRun, back = false }: KeysContext & RotateOptions,
): Promise<number> {
  const vault = await readVault();
  if (dryRun) return tryRotation(db, { vault, goesBack: back });
  const environments = await db.query<{ id: number }>('select id from environment');
  const startedAt = performance.now();
  const run = { rewrapped: 0, retired: 0, left: 0 };
  const log = (status: 'success' | 'failed', errorCode?: string) => {
    const details = { master_key: vault.masterKeys[0].id, rewrapped: run.rewrapped, retired: run.retired };
    const durationMs = Math.round(performance.now() - startedAt);
    for (const { id: environmentId } of environments)
      activity.log({
        type: 'key_rotation',
        environmentId,
        actor: commandLine,
        status,
        durationMs,
        errorCode,
        details,
      });
  };
  try {
    await proveRotation(db, { vault, goesBack: back });
    await rotateAll(db, { vault, run });
  } catch (error) {
    log('failed', loggedFault(error).errorCode);
    throw error;
  }
  log(run.left === 0 ? 'success' : 'failed');
  return run.left === 0 ? 0 : 1;
}

type Rotation = { vault: Vault; goesBack: boolean };

async function proveRotation(db: Db, { vault, goesBack }: Rotation): Promise<void> {
  await proveForRotation(db, vault.masterKeys);
  await proveStarted(db, vault.masterKeys);
  if (!goesBack) await proveOrder(db, vault.masterKeys);
}

async function tryRotation(db: Db, rotation: Rotation): Promise<number> {
  await proveRotation(db, rotation);
  const [sealing] = rotation.vault.masterKeys;
  const others = await countOthers(db, rotation.vault);
  for (const [id, count] of others)
    console.log(`${count} data keys of ${id} would be wrapped by ${sealing.id}`);
  console.log(others.size === 0 ? `nothing to do: ${sealing.id} wraps all data keys` : 'nothing was changed');
  return 0;
}

/** Counts the work in `run`, also if it fails midway. */
async function rotateAll(
  db: Db,
  { vault, run }: { vault: Vault; run: { rewrapped: number; retired: number; left: number } },
): Promise<void> {
  const [sealing] = vault.masterKeys;
  const progress = createProgress(process.stdout);
  try {
    await rotateDataKeys(db, {
      vault,
      onProgress({ rewrapped, total }) {
        run.rewrapped = rewrapped;
        progress.show(`${rewrapped} of ${total} data keys rewrapped`);
      },
    });
  } finally {
    progress.end();
  }
  console.log(`${run.rewrapped} data keys rewrapped: ${sealing.id} wraps them now`);
  const retired = await retireOthers(db, { sealing: sealing.id, rewrapped: run.rewrapped });
  run.retired = retired.length;
  for (const id of retired) {
    console.log(`${id} wraps no data key any more: it is retired and can be removed from the settings`);
  }
  if (retired.length > 0)
    console.log(
      `older files of keys still need ${retired.join(', ')}: write a new one with "trellis keys export FILE"`,
    );
  for (const [id, count] of await countOthers(db, vault)) {
    run.left += count;
    console.log(`${id} still wraps ${count} data keys: keep it in the settings, and run this command again`);
  }
}

/** Retires the master keys that wrap no data key. */
async function retireOthers(
  db: Db,
  { sealing, rewrapped }: { sealing: string; rewrapped: number },
): Promise<string[]> {
  const others = (await listMasterKeys(db)).filter(({ id, retiredAt }) => id !== sealing && !retiredAt);
  return db.transaction(async (tx) => {
    const retired: string[] = [];
    for (const { id } of others) if (await retireMasterKey(tx, id)) retired.push(id);
    if (rewrapped > 0 || retired.length > 0) {
      await writeCommandAudit(tx, {
        action: 'master_key.rotated',
        target: sealing,
        details: { rewrapped, retired: retired.join(',') },
      });
    }
    return retired;
  });
}

/** Writes the file of keys, and prints the master keys that open it. */
export async function exportKeysTo(db: Db, file: string): Promise<number> {
  const { count, masterKeys } = await exportKeys(db, file);
  console.log(`${count} wrapped data keys written to ${file}; delete older files of keys`);
  console.log(`master keys required to open the file: ${masterKeys.join(', ')}`);
  return 0;
}

async function restore(
  db: Db,
  { readVault, file, dryRun, back, dropNewer = false }: KeysContext & RestoreOptions & { file: string },
): Promise<number> {
  const vault = await readVault();
  if (!back) await proveOrder(db, vault.masterKeys);
  const keyFile = await readKeyFile(file);
  const given = { vault, keyFile, dropsNewer: dropNewer, at: new Date() };
  printRestored(dryRun ? await tryRestoreKeys(db, given) : await restoreKeys(db, given));
  if (dryRun) console.log('nothing was changed');
  return 0;
}

/** Prints the result of a restore of keys. */
export function printRestored(restored: Restored): void {
  const { connections, younger, deleted, givenUp, revoked, changed, lost, unread } = restored;
  const print = (sentence: string, names: readonly string[]) => {
    for (const line of [sentence, ...names.map((name) => `  ${oneLine(name)}`)]) console.log(line);
  };
  console.log(`${connections} connections have their data key`);
  if (younger > 0)
    console.log(`${younger} of them were created after the file, and keep the key in the database`);
  print(`${deleted.length} connections were deleted after this backup and are deleted again`, deleted);
  if (givenUp.length > 0)
    print(
      `${givenUp.length} connections were created after the file, which has no key for them; they are deleted`,
      givenUp,
    );
  const nameOf = ({ key, environment }: Restored['revoked'][number]) =>
    `${environment}: ${key.id} (${key.name})`;
  if (revoked.length > 0)
    print(`${revoked.length} API keys were revoked after this backup and stay revoked`, revoked.map(nameOf));
  if (changed.length > 0)
    print(
      `${changed.length} API keys were restricted after this backup and stay restricted`,
      changed.map(nameOf),
    );
  if (lost.length > 0)
    print(
      `${lost.length} API keys were created after this backup and are lost: create new ones`,
      lost.map(({ environment, name }) => `${environment}: ${name}`),
    );
  if (unread > 0)
    console.log(`${unread} API keys of the file could not be read and were not restored: create new ones`);
}
