/**
 * The files of DATA_DIR that hold keys: `master.key`, which seals the embedded database, and `dev.key`, the secret key of the
 * `dev` environment for the user of this machine. Only their owner can read them.
 */
import { createSecretKey, randomBytes } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type Config,
  ConfigError,
  type MasterKey,
  readMasterKeys,
  readWrappedKeys,
} from './config/config.ts';
import { unwrapMasterKeys, wrapMasterKey } from './kms.ts';
import { writeWhole } from './whole-file.ts';

/** Makes DATA_DIR if it is missing, for its owner alone. */
export async function ensureDataDir(dataDir: string): Promise<void> {
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  await mkdir(join(dataDir, 'sandbox'), { recursive: true, mode: 0o700 });
}

export function masterKeyPath(dataDir: string): string {
  return join(dataDir, 'master.key');
}

type KeyPlaces = Pick<Config, 'encryptionKeys' | 'wrappedKeys' | 'kms' | 'databaseUrl' | 'dataDir'>;

/**
 * The master keys of the settings, otherwise those of DATA_DIR, unwrapped. Undefined if there are none. Throws ConfigError.
 */
export async function readMasterKeyRing(given: KeyPlaces): Promise<MasterKey[] | undefined> {
  const { encryptionKeys, wrappedKeys, kms, databaseUrl, dataDir } = given;
  if (encryptionKeys !== undefined) return encryptionKeys;
  if (kms !== undefined && wrappedKeys !== undefined) return unwrapMasterKeys(kms, wrappedKeys);
  return databaseUrl === undefined ? readMasterKeyFile({ dataDir, kms }) : undefined;
}

/** The generated master keys of this DATA_DIR; undefined if there is no file. Throws ConfigError. */
async function readMasterKeyFile({
  dataDir,
  kms,
}: Pick<KeyPlaces, 'dataDir' | 'kms'>): Promise<MasterKey[] | undefined> {
  const path = masterKeyPath(dataDir);
  const found = (await readIfThere(path))?.trim();
  if (found === undefined) return undefined;
  const faults: string[] = [];
  const plain = kms === undefined ? readMasterKeys(found, faults) : undefined;
  const wrapped = kms === undefined ? undefined : readWrappedKeys(found, faults);
  if (faults.length > 0) throw new ConfigError([`${path}: ${faults.join('; ')}`]);
  return kms !== undefined && wrapped !== undefined ? unwrapMasterKeys(kms, wrapped) : plain;
}

/** Makes a master key and writes it, before anything is sealed with it; wrapped if there is a command for that. */
export async function createMasterKeyFile({
  dataDir,
  kms,
}: Pick<KeyPlaces, 'dataDir' | 'kms'>): Promise<MasterKey[]> {
  const bytes = randomBytes(32);
  const made = { id: `k${randomBytes(3).toString('hex')}`, key: createSecretKey(bytes) };
  const text = kms === undefined ? bytes.toString('base64') : (await wrapMasterKey(kms, made)).wrapped;
  await writeWhole(masterKeyPath(dataDir), (file) => file.writeFile(`${made.id}:${text}\n`));
  return [made];
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
