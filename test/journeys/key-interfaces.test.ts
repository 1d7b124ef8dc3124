// Slow: it starts services with all interfaces and keys.

import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { createKey, listKeys } from '../../server/environments/keys.ts';
import { putSettingKey } from '../../server/environments/setting-key.ts';
import { type Environment, ensureEnvironment } from '../../server/environments/store.ts';
import { openVault } from '../../server/vault.ts';
import { runCommand } from '../support/command.ts';
import { openTestDatabase, type TestDatabase, urlOf } from '../support/database.ts';
import { openTrellis } from '../support/trellis.ts';

/** Keys by the command line and by HTTP: both interfaces accept the same. */

const bytes = randomBytes(32);
let dir: string;
let database: TestDatabase;
let dev: Environment;
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'trellis-key-interfaces-'));
  database = await openTestDatabase();
  const vault = openVault([{ id: 'k', key: createSecretKey(bytes) }]);
  dev = (await ensureEnvironment(database.db, { name: 'dev', vault })).environment;
});
after(async () => {
  await rm(dir, { recursive: true, force: true });
  await database.drop();
});

const key = (dataDir: string, ...args: string[]) =>
  runCommand(['key', ...args], {
    DATABASE_URL: urlOf(database.target),
    TRELLIS_ENCRYPTION_KEYS: `k:${bytes.toString('base64')}`,
    DATA_DIR: join(dir, dataDir),
  });
const names = async () => (await listKeys(database.db, dev.id)).map(({ name }) => name);

test('a key made far from the service is printed and counts, and no folder is made for it', async () => {
  const { code, stdout, stderr } = await key('none', 'create', '--name', 'far');
  assert.deepEqual([code, stderr], [0, '']);
  assert.match(stdout, /^trs_dev_[\w-]{43}\n$/);
  assert.deepEqual(await names(), ['far']);
  assert.deepEqual(await readdir(dir), []);
});

test('dev.key takes a key that may do all, and no other; a key counts though it cannot be written there', async () => {
  await mkdir(join(dir, 'data', 'dev.key'), { recursive: true });
  const unwritten = await key('data', 'create');
  assert.equal(unwritten.code, 0);
  assert.match(unwritten.stdout, /^trs_dev_/);
  assert.match(unwritten.stderr, /^not written to .*dev\.key: EISDIR/);
  await rm(join(dir, 'data', 'dev.key'), { recursive: true });
  for (const option of [
    ['--proxy-deny', '/x'],
    ['--scopes', 'keys'],
    ['--expires-at', '2099-01-01T00:00:00Z'],
    ['--rate-limit', '600'],
  ]) {
    const { code, stderr } = await key('data', 'create', ...option);
    assert.deepEqual([code, stderr], [0, ''], option.join(' '));
  }
  assert.match((await key('data', 'list')).stdout, /\t600$/m);
  const listed = JSON.parse((await key('data', 'list', '--json')).stdout) as { rate_limit: number | null }[];
  assert.deepEqual(
    listed.filter((one) => one.rate_limit !== null).map((one) => one.rate_limit),
    [600],
  );
  assert.deepEqual(await readdir(join(dir, 'data')), []);
  const whole = await key('data', 'create');
  assert.match(whole.stderr, /^also written to /);
  assert.equal(await readFile(join(dir, 'data', 'dev.key'), 'utf8'), whole.stdout);
});

test('what HTTP refuses of a key the command line refuses, by the name of the option', async () => {
  const before = await names();
  const wrong: [RegExp, ...string[]][] = [
    [
      /^--name "TRELLIS_SECRET_KEY": is reserved for the key of the setting$/m,
      '--name',
      'TRELLIS_SECRET_KEY',
    ],
    [/^--name "": /m, '--name', ''],
    [/^--scopes "keys,keys": names a scope twice$/m, '--scopes', 'keys,keys'],
    [/^--expires-at "9999-.*: must be before the year 10000$/m, '--expires-at', '9999-12-31T23:59:59-01:00'],
    [/^--scopes "nonsense": /m, '--scopes', 'nonsense'],
    [/^--rate-limit "0": /m, '--rate-limit', '0'],
    [/^--rate-limit "often": /m, '--rate-limit', 'often'],
    [/^--expires-at "tomorrow": /m, '--expires-at', 'tomorrow'],
    [
      /^--expires-at "2020-01-01T00:00:00Z" is not a time in the future/m,
      '--expires-at',
      '2020-01-01T00:00:00Z',
    ],
    [/^--proxy-deny "x" is not a rule/m, '--proxy-deny', 'x'],
  ];
  for (const [word, ...options] of wrong) {
    const { code, stdout, stderr } = await key('data', 'create', ...options);
    assert.deepEqual([code, stdout], [2, ''], options.join(' '));
    assert.match(stderr, word);
    assert.doesNotMatch(stderr, /configuration|^ +at /m);
  }
  const unknown = await key('data', 'revoke', '999');
  assert.deepEqual([unknown.code, unknown.stderr], [1, 'dev has no key 999.\n']);
  assert.deepEqual(await names(), before);
});

test('the key of the setting is not changed by hand, and can be revoked', async () => {
  const trellis = await openTrellis();
  try {
    const secret = `chosen_${randomBytes(20).toString('hex')}`;
    trellis.watch.made('key', secret);
    const [environment] = await trellis.db.query<Environment>(
      "select id, name from environment where name = 'dev'",
    );
    await trellis.db.transaction((tx) =>
      putSettingKey(tx, { environment: environment!, secret, at: new Date() }),
    );
    const keys = await listKeys(trellis.db, environment!.id);
    const path = `/environment/api-keys/${keys.find(({ isSetting }) => isSetting)?.id}`;
    for (const body of [{ name: 'renamed' }, { scopes: ['keys'] }, {}]) {
      const { status, text } = await trellis.call('PATCH', path, { body });
      assert.equal(status, 403, text);
      assert.match(text, /belongs to the setting TRELLIS_SECRET_KEY/);
    }
    assert.equal((await trellis.call('DELETE', path)).status, 200);
    assert.equal((await trellis.call('GET', '/integrations', { key: secret })).status, 401);
  } finally {
    await trellis.close();
  }
});

test('an expired key gets its own error, and a ticket has only existing methods', async () => {
  const trellis = await openTrellis();
  try {
    const [environment] = await trellis.db.query<Environment>(
      "select id, name from environment where name = 'dev'",
    );
    const { secret } = await createKey(trellis.db, {
      environment: environment!,
      name: 'k',
      scopes: ['*'],
      expiresAt: new Date(Date.now() - 1),
    });
    trellis.watch.made('key', secret);
    const { status, text } = await trellis.call('GET', '/integrations', { key: secret });
    assert.equal(status, 401);
    assert.match(text, /unknown_account.*This secret key has expired/);
    const asked = { provider_config_key: 'none', connection_id: 'none', paths: ['/a'] };
    for (const method of ['CONNECT', 'TRACE', 'FETCH', 'get']) {
      const refused = await trellis.call('POST', '/tickets', { body: { ...asked, methods: [method] } });
      assert.equal(refused.status, 400, method);
      assert.match(refused.text, /must be a method in capitals/, method);
    }
    for (const method of ['GET', 'PATCH', 'PROPFIND']) {
      const unknown = await trellis.call('POST', '/tickets', { body: { ...asked, methods: [method] } });
      assert.doesNotMatch(unknown.text, /must be a method/, method);
    }
  } finally {
    await trellis.close();
  }
});

test('commands that decrypt nothing need no master keys, and a revocation names what outlives it', async () => {
  const env = { DATABASE_URL: urlOf(database.target), DATA_DIR: join(dir, 'none') };
  const made = await runCommand(['key', 'create', '--name', 'leaked'], env);
  assert.equal(made.code, 0, made.stderr);
  const leaked = (await listKeys(database.db, dev.id)).find(({ name }) => name === 'leaked');
  const revoked = await runCommand(['key', 'revoke', String(leaked?.id)], env);
  assert.equal(
    revoked.stdout,
    `revoked ${leaked?.id} (leaked)\n` +
      'older files of keys still contain it: write a new one with "trellis keys export FILE"; otherwise a restored backup accepts the key again\n',
  );
});
