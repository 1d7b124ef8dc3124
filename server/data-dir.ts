import { createSecretKey, randomBytes } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ConfigError, type MasterKey, readMasterKeys } from './config/config.ts';
import { writeWhole } from './whole-file.ts';

/**
 * The files of DATA_DIR that hold keys: `master.key`, which seals the embedded database, and `dev.key`, the secret key of the
 * `dev` environment for the user of this machine. Only their owner can read them.
 */

/** Makes DATA_DIR if it is missing, for its owner alone. */
export async function ensureDataDir(dataDir: string): Promise<void> {
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  await mkdir(join(dataDir, 'sandbox'), { recursive: true, mode: 0o700 });
}

export function masterKeyPath(dataDir: string): string {
  return join(dataDir, 'master.key');
}

/** The generated master keys of this DATA_DIR; undefined if there is no file. Throws ConfigError. */
export async function readMasterKeyFile(dataDir: string): Promise<MasterKey[] | undefined> {
  const path = masterKeyPath(dataDir);
  const found = await readIfThere(path);
  if (found === undefined) return undefined;
  const faults: string[] = [];
  const keys = readMasterKeys(found.trim(), faults);
  if (keys === undefined || faults.length > 0) throw new ConfigError([`${path}: ${faults.join('; ')}`]);
  return keys;
}

/** Makes a master key and writes it, before anything is sealed with it. */
export async function createMasterKeyFile(dataDir: string): Promise<MasterKey[]> {
  const bytes = randomBytes(32);
  const id = `k${randomBytes(3).toString('hex')}`;
  const text = `${id}:${bytes.toString('base64')}\n`;
  await writeWhole(masterKeyPath(dataDir), (file) => file.writeFile(text));
  return [{ id, key: createSecretKey(bytes) }];
}

export function devKeyPath(dataDir: string): string {
  return join(dataDir, 'dev.key');
}

export async function writeDevKey(dataDir: string, secret: string): Promise<void> {
  await writeWhole(devKeyPath(dataDir), (file) => file.writeFile(`${secret}\n`));
}

/** Undefined if there is no file. */
export async function readDevKey(dataDir: string): Promise<string | undefined> {
  return (await readIfThere(devKeyPath(dataDir)))?.trim();
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
