import { createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { definitionFaults } from '../app/provider-reload.ts';
import { authModes } from '../auth-modes/modes.ts';
import { type Config, ConfigError, loadConfigWithoutKeys } from '../config/config.ts';
import type { Db } from '../db/pool.ts';
import { listReloadAnswers, type ReloadAnswer, requestReload } from '../nodes/nodes.ts';
import { CatalogError, openCatalog } from '../providers/catalog.ts';
import {
  appliedUpdate,
  applyUpdate,
  ProviderUpdateError,
  readUpdate,
  rollBackUpdate,
  signUpdate,
} from '../providers/update.ts';
import { withDatabase } from './database.ts';
import { oneLine } from './terminal.ts';

/** Nodes look for requests every 5 s. */
const answeredWithinMs = 30_000;
const everyMs = 250;

/**
 * `trellis providers reload`: exits with 1 unless all running nodes use the new definitions. Each node reads its own folder,
 * so the command needs the database only.
 */
export function reloadProvidersCommand(): Promise<number> {
  return withDatabase(loadConfigWithoutKeys(), reload);
}

/** `trellis providers update FILE`: exits with 1, and applies nothing, if the file or a node refuses. */
export function updateProvidersCommand(file: string): Promise<number> {
  const config = loadConfigWithoutKeys();
  return withUpdates(config, async ({ directory, key, db }) => {
    const update = readUpdate(await readFile(file), key);
    await applyUpdate(directory, {
      update,
      check: (updates) => requireUsable(db, { directory, updates }),
    });
    console.log(
      `Applied ${Object.keys(update.definitions).length} definitions, made ${update.madeAt.toISOString()}.`,
    );
    const answers = await requestAnswers(db);
    if (answers.every(isDone)) return 0;
    console.error('A node does not use the new definitions, so the update is rolled back.');
    await rollBackUpdate(directory, { check: async () => {} });
    await requestAnswers(db);
    return 1;
  });
}

/** `trellis providers rollback`: the definitions of the update before, or those that ship. */
export function rollBackProvidersCommand(): Promise<number> {
  return withUpdates(loadConfigWithoutKeys(), async ({ directory, db }) => {
    await rollBackUpdate(directory, { check: (updates) => requireUsable(db, { directory, updates }) });
    const applied = await appliedUpdate(directory);
    console.log(
      applied === undefined
        ? 'The definitions that ship are in use again.'
        : `The update of ${applied.toISOString()} is in use again.`,
    );
    return (await requestAnswers(db)).every(isDone) ? 0 : 1;
  });
}

/** `trellis providers sign DIRECTORY`: needs no settings of a service. */
export async function signProvidersCommand(
  directory: string,
  { keyFile, out }: { keyFile: string; out: string },
): Promise<number> {
  const key = createPrivateKey(await readFile(keyFile));
  if (key.asymmetricKeyType !== 'ed25519') throw new ConfigError([`${keyFile}: must be an Ed25519 key`]);
  await writeFile(out, await signUpdate(directory, { key, madeAt: new Date() }));
  console.log(`${out} is signed. The public key, for TRELLIS_PROVIDERS_SIGNED_BY:`);
  console.log(createPublicKey(key).export({ format: 'der', type: 'spki' }).toString('base64'));
  return 0;
}

async function withUpdates(
  config: Config,
  work: (given: { directory: string; key: KeyObject; db: Db }) => Promise<number>,
): Promise<number> {
  const { providersDir: directory, providersKey: key } = config;
  if (directory === undefined || key === undefined)
    throw new ConfigError([
      'TRELLIS_PROVIDERS_DIR and TRELLIS_PROVIDERS_SIGNED_BY must be set: the folder of the updates, and the key that signs them',
    ]);
  try {
    return await withDatabase(config, (db) => work({ directory, key, db }));
  } catch (error) {
    if (!(error instanceof ProviderUpdateError || error instanceof CatalogError)) throw error;
    console.error(error.message);
    return 1;
  }
}

/** Otherwise a service that does not run now would refuse to start. Throws ProviderUpdateError. */
async function requireUsable(
  db: Db,
  { directory, updates }: { directory: string; updates: string },
): Promise<void> {
  const faults = await definitionFaults(db, {
    catalog: openCatalog(directory, authModes, { updates }),
    previous: openCatalog(directory, authModes),
  });
  if (faults.length > 0) throw new ProviderUpdateError(`${faults.join('\n')}\nNothing was changed.`);
}

async function reload(db: Db): Promise<number> {
  const answers = await requestAnswers(db);
  return answers.length > 0 && answers.every(isDone) ? 0 : 1;
}

/** Lets all nodes read the definitions, and prints their answers. */
async function requestAnswers(db: Db): Promise<ReloadAnswer[]> {
  const request = await requestReload(db);
  const until = performance.now() + answeredWithinMs;
  let answers = await listReloadAnswers(db, request);
  while (answers.some(({ hasAnswered }) => !hasAnswered) && performance.now() < until) {
    await sleep(everyMs);
    answers = await listReloadAnswers(db, request);
  }
  if (answers.length === 0) console.error('No node runs. The next start reads the definitions.');
  for (const answer of answers) console[isDone(answer) ? 'log' : 'error'](lineOf(answer));
  return answers;
}

function isDone({ hasAnswered, fault }: ReloadAnswer): boolean {
  return hasAnswered && fault === null;
}

function lineOf({ name, hasAnswered, fault }: ReloadAnswer): string {
  const node = oneLine(name);
  if (!hasAnswered)
    return `${node}: no answer within ${answeredWithinMs / 1000} s. A node of an older version reads definitions at its start only.`;
  return fault === null
    ? `${node}: the new definitions are in use`
    : `${node}: the previous definitions stay in use.\n${fault}`;
}
