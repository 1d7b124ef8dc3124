import { parseArgs } from 'node:util';
import { writeAudit } from '../activity/audit.ts';
import { type Config, ConfigError, loadConfig } from '../config.ts';
import { masterKeyPath, readMasterKeyFile } from '../data-dir.ts';
import { readKeyFile, writeKeyFile } from '../data-keys/key-file.ts';
import { listMasterKeys, retireMasterKey } from '../data-keys/master-keys.ts';
import { countOthers, rotateDataKeys } from '../data-keys/rotate.ts';
import { type Db, openDb } from '../db/pool.ts';
import { openVault, type Vault } from '../vault.ts';
import { restoreKeys } from './keys-restore.ts';
import { createProgress } from './progress.ts';
import { reachDatabase } from './reach-database.ts';

/** `trellis keys ...`: the master keys and what they wrap. Each works while the service runs. */
export async function keysCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      'dry-run': { type: 'boolean', default: false },
      'drop-newer': { type: 'boolean', default: false },
    },
  });
  const [command = '', file, ...more] = positionals;
  const known = { list, rotate, export: exportKeys, restore }[command];
  const takesFile = command === 'export' || command === 'restore';
  if (known === undefined || more.length > 0 || takesFile !== (file !== undefined)) {
    throw new ConfigError([
      'the command is one of: keys list, keys rotate, keys export FILE, keys restore FILE',
    ]);
  }
  const config = loadConfig();
  const vault = openVault(config.encryptionKeys ?? (await fileKeys(config)));
  const { target, stop } = await reachDatabase(config);
  const db = openDb(target, { maxConnections: 2 });
  try {
    return await known(db, {
      vault,
      file: file ?? '',
      isDryRun: values['dry-run'],
      dropsNewer: values['drop-newer'],
    });
  } finally {
    await db.end();
    await stop();
  }
}

type Asked = { vault: Vault; file: string; isDryRun: boolean; dropsNewer: boolean };

async function fileKeys({ dataDir }: Config) {
  const keys = await readMasterKeyFile(dataDir);
  if (keys === undefined) throw new ConfigError([`${masterKeyPath(dataDir)} is missing`]);
  return keys;
}

async function list(db: Db, { vault }: Asked): Promise<number> {
  const known = await listMasterKeys(db);
  const unknown = vault.masterKeys.filter(({ id }) => !known.some((key) => key.id === id));
  const sealing = vault.masterKeys.find(
    ({ id }) => known.find((key) => key.id === id)?.retiredAt === undefined,
  );
  const rows = [
    ...known.map(({ id, dataKeys, retiredAt }) => {
      const isHere = vault.masterKeys.some((key) => key.id === id);
      if (retiredAt) return [id, dataKeys, `retired ${retiredAt.toISOString()}, may be dropped`];
      return [id, dataKeys, id === sealing?.id ? 'seals' : isHere ? 'listed' : 'MISSING from the settings'];
    }),
    ...unknown.map(({ id }) => [id, 0, id === sealing?.id ? 'seals' : 'listed, has wrapped nothing yet']),
  ];
  const width = Math.max('master key'.length, ...rows.map(([id]) => String(id).length));
  console.log(`${'master key'.padEnd(width)}  ${'data keys'.padStart(9)}  state`);
  for (const [id, count, state] of rows) {
    console.log(`${String(id).padEnd(width)}  ${String(count).padStart(9)}  ${state}`);
  }
  return 0;
}

async function rotate(db: Db, { vault, isDryRun }: Asked): Promise<number> {
  const [sealing] = vault.masterKeys;
  if (isDryRun) {
    const others = await countOthers(db, vault);
    for (const [id, count] of others)
      console.log(`${count} data keys of ${id} would be wrapped by ${sealing.id}`);
    console.log(
      others.size === 0 ? `nothing to do: ${sealing.id} wraps all data keys` : 'nothing was changed',
    );
    return 0;
  }
  const progress = createProgress(process.stdout);
  const rewrapped = await rotateDataKeys(db, {
    vault,
    onProgress: ({ rewrapped, total }) => progress.show(`${rewrapped} of ${total} data keys rewrapped`),
  });
  progress.end();
  console.log(`${rewrapped} data keys rewrapped: ${sealing.id} wraps them now`);
  const retired = await retireOthers(db, { sealing: sealing.id, rewrapped });
  for (const id of retired) {
    console.log(`0 data keys are left under ${id}: it is retired and may be dropped from the settings`);
  }
  const left = await countOthers(db, vault);
  for (const [id, count] of left) {
    console.log(`${count} data keys are left under ${id}: keep it, and run this again`);
  }
  return left.size === 0 ? 0 : 1;
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

async function exportKeys(db: Db, { file }: Asked): Promise<number> {
  const count = await writeKeyFile(db, file);
  console.log(`${count} wrapped data keys written to ${file}; keep no older file of them`);
  return 0;
}

async function restore(db: Db, { vault, file, isDryRun, dropsNewer }: Asked): Promise<number> {
  const done = await restoreKeys(db, { vault, keyFile: await readKeyFile(file), isDryRun, dropsNewer });
  console.log(`${done.connections} connections have their data key`);
  console.log(`${done.deleted.length} were deleted after this backup and stay so`);
  for (const name of done.deleted) console.log(`  ${name}`);
  if (isDryRun) console.log('nothing was changed');
  return 0;
}
