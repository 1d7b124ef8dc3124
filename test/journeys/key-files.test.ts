// Slow: it starts services with all interfaces and keys.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { readMasterKeys } from '../../server/config/config.ts';
import { registerMasterKey } from '../../server/data-keys/store.ts';
import { ensureEnvironment } from '../../server/environments/store.ts';
import { signInSecret } from '../../server/users/sign-in-rules.ts';
import { openVault } from '../../server/vault.ts';
import { runCommand } from '../support/command.ts';
import { openTestDatabase, type TestDatabase, urlOf } from '../support/database.ts';

/** `trellis keys` as an operator types it: what is said, and what is refused. */

const newKey = (id: string) => `${id}:${randomBytes(32).toString('base64')}`;
const [k1, k2] = [newKey('k1'), newKey('k2')];
let dir: string;
let file: string;
let database: TestDatabase;
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'trellis-key-files-'));
  file = join(dir, 'data.keys');
  database = await openTestDatabase();
  const vault = openVault(masterKeys(k1));
  for (const name of ['dev', 'prod']) await ensureEnvironment(database.db, { name, vault });
  // As the first start does; it makes a data key too.
  await signInSecret(database.db, vault);
});
after(async () => {
  await rm(dir, { recursive: true, force: true });
  await database.drop();
});

function masterKeys(ring: string) {
  const [sealing, ...others] = readMasterKeys(ring, []) ?? [];
  return [sealing!, ...others] as const;
}
const keys = (ring: string, ...args: string[]) =>
  runCommand(['keys', ...args], {
    DATABASE_URL: urlOf(database.target),
    TRELLIS_ENCRYPTION_KEYS: ring,
    DATA_DIR: join(dir, 'none'),
  });
/** What the activity log has of rotations in one environment, the oldest first. */
const rotations = async () => {
  const rows = await database.db.query<{ status: string; details: { master_key: string } }>(
    `select status, details
     from operation
     join environment on environment.id = operation.environment_id
     where type = 'key_rotation' and environment.name = 'dev'
     order by operation.created_at, operation.id`,
  );
  return rows.map(({ status, details }) => `${status} ${details.master_key}`);
};
async function says(ring: string, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await keys(ring, ...args);
  assert.deepEqual([code, stderr], [0, ''], args.join(' '));
  return stdout;
}
const refuses = (word: RegExp, ring: string, ...args: string[]) => refusesWith(1, { word, ring, args });
const isWrongUsage = (word: RegExp, ...args: string[]) => refusesWith(2, { word, ring: k1, args });
async function refusesWith(
  expected: number,
  { word, ring, args }: { word: RegExp; ring: string; args: string[] },
): Promise<void> {
  const { code, stdout, stderr } = await keys(ring, ...args);
  assert.equal(code, expected, `${args.join(' ')}: ${stdout}`);
  assert.match(stderr, word);
  assert.doesNotMatch(stderr, /configuration|^ +at /m);
}

test('options and files are taken where they mean something, and nowhere else', async () => {
  await isWrongUsage(/dry-run/, 'export', file, '--dry-run');
  await assert.rejects(readFile(file), { code: 'ENOENT' });
  await isWrongUsage(/drop-newer/, 'rotate', '--drop-newer');
  await isWrongUsage(/too many arguments for 'list'/, 'list', 'x');
  await isWrongUsage(/missing required argument 'file'/, 'restore');
  await refuses(/ENOENT/, k1, 'restore', join(dir, 'missing'));
  await isWrongUsage(/unknown command 'nonsense'/, 'nonsense');
});

test('a start that fails is none that a rotation may go by', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  try {
    const { code, stderr } = await runCommand(['start'], {
      DATABASE_URL: urlOf(database.target),
      TRELLIS_ENCRYPTION_KEYS: `${k2},${k1}`,
      TRELLIS_SANDBOX: 'off',
      DATA_DIR: join(dir, 'failed'),
      PORT: String((taken.address() as AddressInfo).port),
    });
    assert.equal(code, 1);
    assert.match(stderr, /is in use by another program/);
  } finally {
    taken.close();
  }
  await refuses(/No node was started with "k2" as the first master key/, `${k2},${k1}`, 'rotate');
});

test('an export needs no master keys, and commands that need them name the missing setting', async () => {
  const env = { DATABASE_URL: urlOf(database.target), DATA_DIR: join(dir, 'none') };
  const { code, stdout, stderr } = await runCommand(['keys', 'export', join(dir, 'blind.keys')], env);
  assert.deepEqual([code, stderr], [0, '']);
  assert.match(stdout, /^3 wrapped data keys written to .*\nmaster keys required to open the file: k1\n$/);
  for (const args of [['list'], ['rotate'], ['restore', join(dir, 'blind.keys')]]) {
    const refused = await runCommand(['keys', ...args], env);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /TRELLIS_ENCRYPTION_KEYS is missing/);
  }
});

test('a key ring in the old order, or another one than before, is reported, and changes nothing', async () => {
  await registerMasterKey(database.db, masterKeys(k2)[0]);
  const before = await rotations();
  await refuses(/"k2" was first used after "k1".*--back/, `${k1},${k2}`, 'rotate');
  assert.deepEqual(await rotations(), [...before, 'failed k1']);
  await refuses(/"k2" was first used after "k1".*--back/, `${k1},${k2}`, 'rotate', '--dry-run');
  await refuses(/"k1" is missing/, k2, 'rotate', '--dry-run');
  await refuses(/"k1" is not the key that was used before/, `${k2},${newKey('k1')}`, 'rotate', '--dry-run');
  const listed = await keys(`${k2},${newKey('k1')}`, 'list');
  assert.match(listed.stdout, /^k1 +3 {2}NOT the key that was used before\nk2 +0 {2}seals$/m);
  const json = await keys(`${k2},${newKey('k1')}`, 'list', '--json');
  assert.deepEqual(JSON.parse(json.stdout), [
    { id: 'k1', data_keys: 3, state: 'different', retired_at: null },
    { id: 'k2', data_keys: 0, state: 'seals', retired_at: null },
  ]);
  const lacking = await keys(k2, 'list');
  assert.match(lacking.stdout, /^k1 +3 {2}MISSING from the settings$/m);
  assert.deepEqual([listed.code, json.code, lacking.code], [1, 1, 1]);
});

test('a rotation reports that key files still need the old master key, and --back allows an earlier master key', async () => {
  assert.match(
    await says(k1, 'export', file),
    /^3 wrapped data keys written to .*\nmaster keys required to open the file: k1\n$/,
  );
  assert.match(
    await says(`${k2},${k1}`, 'rotate'),
    /k1 wraps no data key any more: it is retired.*\nolder files of keys still need k1: write a new one with "trellis keys export FILE"\n$/,
  );
  assert.match(await says(k2, 'export', file), /^master keys required to open the file: k2$/m);
  const k3 = newKey('k3');
  await registerMasterKey(database.db, masterKeys(k3)[0]);
  assert.match(
    await says(`${k2},${k3}`, 'rotate', '--back'),
    /^k3 wraps no data key any more: it is retired/m,
  );
});
