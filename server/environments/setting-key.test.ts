import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { afterEach, beforeEach, test } from 'node:test';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { openVault } from '../vault.ts';
import { createKeyReader } from './key-reader.ts';
import { createKey, listKeys, revokeKey, updateKey } from './keys.ts';
import { putSettingKey } from './setting-key.ts';
import { type Environment, ensureEnvironment } from './store.ts';

const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
const at = new Date(Date.UTC(2030, 0, 1));
let database: TestDatabase;
let environment: Environment;
beforeEach(async () => {
  database = await openTestDatabase();
  environment = (await ensureEnvironment(database.db, { name: 'dev', vault })).environment;
});
afterEach(() => database.drop());

const chosen = () => `chosen_${randomBytes(20).toString('hex')}`;
const put = (secret: string) =>
  database.db.transaction((tx) => putSettingKey(tx, { environment, secret, at }));
const passes = async (secret: string) => {
  const reader = createKeyReader({ db: database.db, vault, now: () => at.getTime() });
  const caller = await Promise.resolve(reader.key(secret)).catch(() => undefined);
  await reader.settled();
  return caller?.scopes.has('*') ?? false;
};
const noted = async () => {
  const rows = await database.db.query<{ action: string; target: string; id: number }>(
    `select action, target, (details ->> 'id')::int as id from audit where actor = 'service' order by audit.id`,
  );
  return rows.map(({ action, target, id }) => `${action} ${id} ${target}`);
};
const settingKeys = async () =>
  (await listKeys(database.db, environment.id)).filter(({ isSetting }) => isSetting);

test('a key ends when another one takes its place in the setting, whatever it is called by then', async () => {
  const [first, second] = [chosen(), chosen()];
  await put(first);
  const [key] = await settingKeys();
  await updateKey(database.db, { key: { ...key!, name: 'renamed' }, environmentId: environment.id });
  await put(second);
  assert.deepEqual([await passes(first), await passes(second)], [false, true]);
});

test('a start with a secret that another one took the place of is refused, until that one is revoked', async () => {
  const [first, second] = [chosen(), chosen()];
  await put(first);
  await put(second);
  const [young] = await settingKeys();
  await assert.rejects(put(first), (error: Error) => {
    assert.match(error.message, new RegExp(`replaced by a newer secret.*key revoke ${young!.id}\\b`));
    for (const secret of [first, second]) assert.ok(!error.message.includes(secret));
    return true;
  });
  assert.deepEqual([await passes(first), await passes(second)], [false, true]);
  await revokeKey(database.db, { id: young!.id, environmentId: environment.id, at });
  await put(first);
  assert.deepEqual([await passes(first), await passes(second)], [true, false]);
});

test('of twenty secrets that nodes start with at once one is good', async () => {
  const secrets = Array.from({ length: 20 }, chosen);
  await Promise.all(secrets.map(put));
  assert.equal((await settingKeys()).length, 1);
  assert.equal((await Promise.all(secrets.map(passes))).filter(Boolean).length, 1);
});

test('a key that was made otherwise and put into the setting ends with it too', async () => {
  const made = await createKey(database.db, { environment, name: 'first key', scopes: ['records:read'] });
  await put(made.secret);
  assert.equal(await passes(made.secret), true);
  await put(chosen());
  assert.equal(await passes(made.secret), false);
});

test('a start with the setting makes the key whole again: name, scopes, rules, end and revocation', async () => {
  const secret = chosen();
  await put(secret);
  const [whole] = await settingKeys();
  const environmentId = environment.id;
  const narrowed = {
    ...whole!,
    name: 'renamed',
    scopes: ['keys'],
    expiresAt: at,
    proxyRules: [{ effect: 'deny' as const, path: '/**' }],
  };
  await updateKey(database.db, { key: narrowed, environmentId });
  await put(secret);
  assert.deepEqual(await settingKeys(), [whole]);
  await revokeKey(database.db, { id: whole!.id, environmentId, at });
  await put(secret);
  assert.deepEqual(await settingKeys(), [whole]);
});

test('each change that a start makes is noted with the key; a start that changes nothing notes nothing', async () => {
  const [first, second] = [chosen(), chosen()];
  await put(first);
  await put(first);
  await put(second);
  const environmentId = environment.id;
  for (const { id } of await settingKeys()) await revokeKey(database.db, { id, environmentId, at });
  await put(first);
  const [a, b] = (
    await database.db.query<{ id: number }>('select id from api_key where is_setting order by id')
  ).map(({ id }) => id);
  assert.deepEqual(
    await noted(),
    [`key.created ${a}`, `key.created ${b}`, `key.revoked ${a}`, `key.changed ${a}`].map(
      (text) => `${text} TRELLIS_SECRET_KEY`,
    ),
  );
});

test('twenty nodes that start at once make one key', async () => {
  const secret = chosen();
  await Promise.all(Array.from({ length: 20 }, () => put(secret)));
  assert.equal((await settingKeys()).length, 1);
  assert.equal((await noted()).length, 1);
});

test('a key of another environment is refused', async () => {
  const other = (await ensureEnvironment(database.db, { name: 'prod', vault })).environment;
  const { secret } = await createKey(database.db, { environment: other, name: 'k', scopes: ['*'] });
  await assert.rejects(put(secret), /belongs to another environment/);
});
