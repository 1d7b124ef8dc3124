import assert from 'node:assert/strict';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { openBackupBench } from '../../cli/backup.fixture.ts';
import type { Db } from '../../db/pool.ts';
import { createKeyReader } from '../../environments/key-reader.ts';
import { createKey, type Key, revokeKey, updateKey } from '../../environments/keys.ts';
import { ensureEnvironment } from '../../environments/store.ts';
import { openVault } from '../../vault.ts';
import { exportKeys, readKeyFile } from './key-file.ts';
import { type Restored, restoreKeys, tryRestoreKeys } from './keys-restore.ts';

let bench: Awaited<ReturnType<typeof openBackupBench>>;
let file: string;
beforeEach(async () => {
  bench = await openBackupBench();
  file = join(bench.dir, 'data.keys');
});
afterEach(() => bench.close());

const at = new Date();
const given = async () => ({ vault: bench.vault, keyFile: await readKeyFile(file), dropsNewer: false, at });
const make = (name: string) => createKey(bench.db, { environment: bench.environment, name, scopes: ['*'] });
const narrow = (key: Key, db = bench.db) =>
  updateKey(db, { key: { ...key, scopes: ['records:read'] }, environmentId: bench.environment.id });
const revoke = ({ id }: Key) => revokeKey(bench.db, { id, environmentId: bench.environment.id, at });
async function scopesOf(db: Db, secret: string): Promise<string[]> {
  const reader = createKeyReader({ db, vault: bench.vault });
  const caller = await Promise.resolve(reader.key(secret)).catch(() => undefined);
  await reader.settled();
  return [...(caller?.scopes ?? [])];
}
const none = { connections: 0, younger: 0, deleted: [], givenUp: [] };
const told = ({ connections, deleted, revoked, changed, lost }: Restored) => ({
  connections,
  deleted,
  revoked: revoked.map(({ key, environment }) => `${environment} ${key.name}`),
  changed: changed.map(({ key, environment }) => `${environment} ${key.name}`),
  lost: lost.map(({ name, environment }) => `${environment} ${name}`),
});

test('API keys that were revoked or narrowed after a backup are so again, and each change is noted', async () => {
  for (const id of ['kept', 'doomed']) await bench.connect(id);
  const [leaked, wide, used] = [await make('leaked'), await make('wide'), await make('used')];
  const ends = { ...used.key, expiresAt: new Date(at.getTime() + 3_600_000.5) };
  await updateKey(bench.db, { key: ends, environmentId: bench.environment.id });
  await bench.db.query(`
    with who as (insert into sign_in_user (id, name, email) values ('ada', 'Ada', 'ada@example.com') returning id)
    insert into sign_in_session (id, user_id, token, expires_at) select 's', id, 't', 'infinity' from who`);
  await bench.db.query(
    `insert into invitation (hash, role, expires_at) values ('\\x00', 'owner', 'infinity')`,
  );
  const data = await bench.backup();
  await revoke(leaked.key);
  await narrow(wide.key);
  await bench.disconnect('doomed');
  const late = await make('late');
  await exportKeys(bench.db, file);

  const expected = {
    connections: 1,
    deleted: ['dev/notes/doomed'],
    revoked: ['dev leaked'],
    changed: ['dev wide'],
    lost: ['dev late'],
  };
  assert.deepEqual(told(await tryRestoreKeys(data, await given())), expected);
  assert.deepEqual(await scopesOf(data, leaked.secret), ['*']);
  assert.deepEqual(told(await restoreKeys(data, await given())), expected);
  // Who was signed in at the time of the backup may have been removed since.
  const left = await data.query('select hash::text from invitation union all select id from sign_in_session');
  assert.deepEqual(left, []);
  const scopes = await Promise.all([leaked, wide, used, late].map(({ secret }) => scopesOf(data, secret)));
  assert.deepEqual(scopes, [[], ['records:read'], ['*'], []]);
  const noted = await data.query<{ line: string }>(
    `select action || ' ' || target as line from audit where actor = 'command line' order by audit.id`,
  );
  assert.deepEqual(noted.map(({ line }) => line).slice(0, 3), [
    'connection.deleted notes/doomed',
    'key.revoked leaked',
    'key.changed wide',
  ]);
  assert.match(noted[3]!.line, /^data_keys\.restored /);
  assert.equal(noted.length, 4);
});

test('the rights of API keys in data newer than the file are kept', async () => {
  const [leaked, wide] = [await make('leaked'), await make('wide')];
  await exportKeys(bench.db, file);
  await revoke(leaked.key);
  await narrow(wide.key);
  const young = await make('young');
  const data = await bench.backup();
  const done = told(await restoreKeys(data, await given()));
  assert.deepEqual([done.revoked, done.changed, done.lost], [[], [], []]);
  const scopes = await Promise.all([leaked, wide, young].map(({ secret }) => scopesOf(data, secret)));
  assert.deepEqual(scopes, [[], ['records:read'], ['*']]);

  // Nor does the same file undo what was done since it was given back.
  await narrow(young.key, data);
  await restoreKeys(data, await given());
  assert.deepEqual(await scopesOf(data, young.secret), ['records:read']);
});

test('a file gives no API key back what it may do no more', async () => {
  const [wide, other, ruled] = [await make('wide'), await make('other'), await make('ruled')];
  const first = await bench.backup();
  await exportKeys(bench.db, file);
  await restoreKeys(first, await given());

  // From here on the restored database is the one in use, and the file of the old one is of a later moment.
  await narrow(wide.key, first);
  await narrow({ ...ruled.key, proxyRules: [{ effect: 'allow', path: '/a' }] }, first);
  await updateKey(bench.db, {
    key: { ...other.key, scopes: ['proxy:read'], expiresAt: at },
    environmentId: bench.environment.id,
  });
  await updateKey(bench.db, {
    key: { ...ruled.key, proxyRules: [{ effect: 'allow', path: '/b' }] },
    environmentId: bench.environment.id,
  });
  await exportKeys(bench.db, file);
  const { changed, revoked } = await restoreKeys(first, await given());
  assert.deepEqual(revoked, []);
  assert.deepEqual(
    changed.map(({ key: { name, scopes, proxyRules, expiresAt } }) => [name, scopes, proxyRules, expiresAt]),
    [
      ['other', ['proxy:read'], [], at],
      [
        'ruled',
        ['records:read'],
        [
          { effect: 'allow', path: '/a' },
          { effect: 'deny', path: '/**' },
        ],
        undefined,
      ],
    ],
  );
  assert.deepEqual(await scopesOf(first, wide.secret), ['records:read']);
});

test('a backup from between the moment of a file and its note is narrowed at most', async () => {
  const wide = await make('wide');
  await exportKeys(bench.db, file);
  await narrow(wide.key);
  const late = await make('late');
  const data = await bench.backup();
  await data.query('delete from key_file');
  const { changed, revoked } = await restoreKeys(data, await given());
  assert.deepEqual([changed, revoked], [[], []]);
  assert.deepEqual(await scopesOf(data, wide.secret), ['records:read']);
  assert.deepEqual(await scopesOf(data, late.secret), ['*']);
});

test('an API key without a readable entry in the file is revoked and reported', async () => {
  const odd = await make('odd');
  const data = await bench.backup();
  await exportKeys(bench.db, file);
  const keyFile = { ...(await readKeyFile(file)), apiKeys: [], unread: 1 };
  const done = await restoreKeys(data, { ...(await given()), keyFile });
  assert.deepEqual([told(done).revoked, done.unread], [['dev odd'], 1]);
  assert.deepEqual(await scopesOf(data, odd.secret), []);
});

test("a promoted replica keeps the keys of data newer than the file, whatever the file's time", async () => {
  for (const id of ['kept', 'gone']) await bench.connect(id);
  await bench.disconnect('gone');
  await exportKeys(bench.db, file);
  // As one that was moved here from elsewhere, with the time of its making.
  await bench.connect('moved');
  await ensureEnvironment(bench.db, { name: 'stage', vault: bench.vault });
  const promoted = await bench.wholeBackup();
  const dataKeys = () => promoted.query<{ id: string }>('select id from data_key order by id');
  const before = await dataKeys();
  for (const run of [tryRestoreKeys, restoreKeys, restoreKeys]) {
    const { connections, younger, deleted, givenUp } = await run(promoted, await given());
    assert.deepEqual({ connections, younger, deleted, givenUp }, { ...none, connections: 2, younger: 1 });
    assert.deepEqual(await dataKeys(), before);
  }
  await exportKeys(promoted, file);
});

test('all keys that data keep are wrapped by the first master key, which needs those that wrapped them', async () => {
  await exportKeys(bench.db, file);
  await bench.connect('made since');
  const promoted = await bench.wholeBackup();
  const { k1, k2 } = bench;
  const keyFile = await readKeyFile(file);
  const withImportLock = restoreKeys(promoted, { ...(await given()), keyFile, vault: openVault([k2]) });
  await assert.rejects(withImportLock, /"k1" is missing/);
  await restoreKeys(promoted, { ...(await given()), keyFile, vault: openVault([k2, k1]) });
  const wrapping = await promoted.query(
    'select master_key as id, count(*) from data_key group by master_key',
  );
  assert.deepEqual(wrapping, [{ id: 'k2', count: 3 }]);
});

test('data older than a file lose their keys of deleted owners, also when they wrote files since', async () => {
  for (const id of ['kept', 'doomed']) await bench.connect(id);
  const back = await bench.wholeBackup();
  await bench.disconnect('doomed');
  await exportKeys(bench.db, file);
  await exportKeys(back, join(bench.dir, 'other.keys'));
  const { connections, younger, deleted } = await restoreKeys(back, await given());
  assert.deepEqual([connections, younger, deleted], [1, 0, ['dev/notes/doomed']]);
});

test('data newer than the file without any key are deleted on request, and reported', async () => {
  await bench.connect('kept');
  await exportKeys(bench.db, file);
  await bench.connect('moved');
  const data = await bench.backup();
  await assert.rejects(restoreKeys(data, await given()), /no key for 1 connections .* dev\/notes\/moved/);
  assert.deepEqual(await data.query('select from data_key'), []);
  const done = await restoreKeys(data, { ...(await given()), dropsNewer: true });
  const { connections, younger, deleted, givenUp } = done;
  const expected = { ...none, connections: 1, givenUp: ['dev/notes/moved'] };
  assert.deepEqual({ connections, younger, deleted, givenUp }, expected);
  const noted = await data.query<{ cause: string }>(
    `select details->>'cause' as cause from audit where action = 'connection.deleted'`,
  );
  assert.deepEqual(noted, [{ cause: 'made after the file' }]);
});

test('an environment that was made after the file, without a key anywhere, takes a newer file', async () => {
  await exportKeys(bench.db, file);
  await ensureEnvironment(bench.db, { name: 'stage', vault: bench.vault });
  const data = await bench.backup();
  const refused =
    /older than the environment "stage", and the database has no key for it\. Use a newer file\.$/;
  await assert.rejects(restoreKeys(data, { ...(await given()), dropsNewer: true }), refused);
});

test('a file without the key of an environment is reported and changes nothing', async () => {
  const data = await bench.backup();
  await exportKeys(bench.db, file);
  await data.query("update environment set data_key = gen_random_uuid() where name = 'prod'");
  await assert.rejects(restoreKeys(data, await given()), (error: Error) => {
    assert.match(
      error.message,
      /^The file has no data key of the environment "prod": it belongs to another installation/,
    );
    assert.doesNotMatch(error.message, /first/);
    return true;
  });
  assert.deepEqual(await data.query('select from data_key'), []);
});
