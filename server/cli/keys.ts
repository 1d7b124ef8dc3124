import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';
import { writeAudit } from '../activity/audit.ts';
import { faultOf } from '../activity/logged.ts';
import { type Activity, createActivity, noActivity } from '../activity/writer.ts';
import { type Config, ConfigError, loadConfigWithoutKeys } from '../config/config.ts';
import { masterKeyPath, readMasterKeyFile } from '../data-dir.ts';
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
import { createLog } from '../log.ts';
import { openVault, type Vault } from '../vault.ts';
import { readKeyFile } from './key-file.ts';
import { exportKeys } from './keys-export.ts';
import { type Restored, restoreKeys, tryRestoreKeys } from './keys-restore.ts';
import { oneLine } from './one-line.ts';
import { createProgress } from './progress.ts';
import { withDatabase } from './reach-database.ts';

type Asked = {
  /** Of the settings' master keys; a ConfigError where they are missing. */
  readVault: () => Promise<Vault>;
  file: string;
  activity: Activity;
  has: (option: Option) => boolean;
};
type Option = 'dry-run' | 'back' | 'drop-newer';
type Command = { run: (db: Db, asked: Asked) => Promise<number>; files: 0 | 1; options: readonly Option[] };

const commands = new Map<string, Command>([
  ['list', { run: list, files: 0, options: [] }],
  ['rotate', { run: rotate, files: 0, options: ['dry-run', 'back'] }],
  ['export', { run: exportTo, files: 1, options: [] }],
  ['restore', { run: restore, files: 1, options: ['dry-run', 'back', 'drop-newer'] }],
]);

/** `trellis keys ...`: the master keys and what they wrap. Each works while the service runs. */
export async function keysCommand(args: string[]): Promise<number> {
  const [name = '', ...rest] = args;
  const command = commands.get(name);
  if (command === undefined)
    throw new Error('The command is one of: keys list, keys rotate, keys export FILE, keys restore FILE.');
  const options: ParseArgsOptionsConfig = {};
  for (const option of command.options) options[option] = { type: 'boolean' };
  const { values, positionals } = parseArgs({ args: rest, allowPositionals: true, options });
  if (positionals.length !== command.files)
    throw new Error(`keys ${name} takes ${command.files === 0 ? 'no file' : 'one file'}.`);
  const config = loadConfigWithoutKeys();
  return withDatabase(config, async (db) => {
    const log = createLog({ level: 'warn', format: 'json' });
    const activity = config.activity.isOn
      ? createActivity({ db, log, settings: { sampleRate: 1 } })
      : noActivity;
    const asked: Asked = {
      readVault: () => readVault(config),
      file: positionals[0] ?? '',
      activity,
      has: (option) => values[option] === true,
    };
    return command.run(db, asked).finally(() => activity.stop());
  });
}

/** Of the settings' master keys, or those of DATA_DIR. Throws ConfigError where they are missing. */
export async function readVault({ encryptionKeys, databaseUrl, dataDir }: Config): Promise<Vault> {
  if (encryptionKeys !== undefined) return openVault(encryptionKeys);
  const found = databaseUrl === undefined ? await readMasterKeyFile(dataDir) : undefined;
  const missing = databaseUrl === undefined ? masterKeyPath(dataDir) : 'TRELLIS_ENCRYPTION_KEYS';
  if (found === undefined) throw new ConfigError([`${missing} is missing`]);
  return openVault(found);
}

/** Exits with 1 where a start would be refused. */
async function list(db: Db, { readVault }: Asked): Promise<number> {
  const vault = await readVault();
  const known = await listMasterKeys(db);
  const sealing = vault.masterKeys.find(
    ({ id }) => known.find((key) => key.id === id)?.retiredAt === undefined,
  );
  const rows: [id: string, dataKeys: number, state: string][] = known.map((key) => {
    const { id, dataKeys, retiredAt } = key;
    const given = vault.masterKeys.find((one) => one.id === id);
    if (given && !isSameKey(key, given)) return [id, dataKeys, 'NOT the one used before'];
    if (retiredAt) return [id, dataKeys, `retired ${retiredAt.toISOString()}, may be dropped`];
    if (!given) return [id, dataKeys, 'MISSING from the settings'];
    return [id, dataKeys, id === sealing?.id ? 'seals' : 'listed'];
  });
  for (const { id } of vault.masterKeys) {
    if (known.some((key) => key.id === id)) continue;
    rows.push([id, 0, id === sealing?.id ? 'seals' : 'listed, has wrapped nothing yet']);
  }
  const width = Math.max('master key'.length, ...rows.map(([id]) => id.length));
  console.log(`${'master key'.padEnd(width)}  ${'data keys'.padStart(9)}  state`);
  for (const [id, count, state] of rows)
    console.log(`${id.padEnd(width)}  ${String(count).padStart(9)}  ${state}`);
  return rows.some(([, , state]) => /^(NOT|MISSING)/.test(state)) ? 1 : 0;
}

async function rotate(db: Db, { readVault, has, activity }: Asked): Promise<number> {
  const vault = await readVault();
  if (has('dry-run')) return tryRotation(db, { vault, goesBack: has('back') });
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
        actor: 'command line',
        status,
        durationMs,
        errorCode,
        details,
      });
  };
  try {
    await proveRotation(db, { vault, goesBack: has('back') });
    await rotateAll(db, { vault, run });
  } catch (error) {
    log('failed', faultOf(error).errorCode);
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

/** Counts in `run` what was done, also where it breaks off. */
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
    console.log(`0 data keys are left under ${id}: it is retired and may be dropped from the settings`);
  }
  if (retired.length > 0)
    console.log(
      `files of keys need ${retired.join(', ')} yet: write a new one with "trellis keys export FILE"`,
    );
  for (const [id, count] of await countOthers(db, vault)) {
    run.left += count;
    console.log(`${count} data keys are left under ${id}: keep it, and run this again`);
  }
}

/** Those that wrap nothing any more, once and for all. */
async function retireOthers(
  db: Db,
  { sealing, rewrapped }: { sealing: string; rewrapped: number },
): Promise<string[]> {
  const others = (await listMasterKeys(db)).filter(({ id, retiredAt }) => id !== sealing && !retiredAt);
  return db.transaction(async (tx) => {
    const retired: string[] = [];
    for (const { id } of others) if (await retireMasterKey(tx, id)) retired.push(id);
    if (rewrapped > 0 || retired.length > 0) {
      await writeAudit(tx, {
        environmentId: undefined,
        actor: 'command line',
        action: 'master_key.rotated',
        target: sealing,
        details: { rewrapped, retired: retired.join(',') },
      });
    }
    return retired;
  });
}

async function exportTo(db: Db, { file }: Asked): Promise<number> {
  const { count, masterKeys } = await exportKeys(db, file);
  console.log(`${count} wrapped data keys written to ${file}; keep no older file of them`);
  console.log(`to open them takes ${masterKeys.join(' and ')}`);
  return 0;
}

async function restore(db: Db, { readVault, file, has }: Asked): Promise<number> {
  const vault = await readVault();
  if (!has('back')) await proveOrder(db, vault.masterKeys);
  const keyFile = await readKeyFile(file);
  const given = { vault, keyFile, dropsNewer: has('drop-newer'), at: new Date() };
  tell(has('dry-run') ? await tryRestoreKeys(db, given) : await restoreKeys(db, given));
  if (has('dry-run')) console.log('nothing was changed');
  return 0;
}

/** Prints what a restore of keys came to. */
export function tell(restored: Restored): void {
  const { connections, younger, deleted, givenUp, revoked, changed, lost, unread } = restored;
  const say = (sentence: string, names: readonly string[]) => {
    for (const line of [sentence, ...names.map((name) => `  ${oneLine(name)}`)]) console.log(line);
  };
  console.log(`${connections} connections have their data key`);
  if (younger > 0)
    console.log(`${younger} of them were made after the file, and keep the key that the data hold`);
  say(`${deleted.length} were deleted after this backup and stay so`, deleted);
  if (givenUp.length > 0)
    say(`${givenUp.length} were made after the file, without a key in it, and are deleted now`, givenUp);
  const nameOf = ({ key, environment }: Restored['revoked'][number]) =>
    `${environment}: ${key.id} (${key.name})`;
  if (revoked.length > 0)
    say(`${revoked.length} API keys were revoked after this backup and stay so`, revoked.map(nameOf));
  if (changed.length > 0)
    say(`${changed.length} API keys were narrowed after this backup and stay so`, changed.map(nameOf));
  if (lost.length > 0)
    say(
      `${lost.length} API keys were made after this backup and are gone: make new ones`,
      lost.map(({ environment, name }) => `${environment}: ${name}`),
    );
  if (unread > 0)
    console.log(`${unread} API keys of the file could not be read, and none of them counts: make new ones`);
}
