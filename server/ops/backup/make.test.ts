// Slow: it copies embedded databases.

import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import {
  cp,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  realpath,
  rm,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { findBytes } from '../../../test/support/bytes.ts';
import { runCommand } from '../../../test/support/command.ts';
import { insertDataKey } from '../../data-keys/store.ts';
import { type EmbeddedPostgres, startEmbedded } from '../../db/embedded/embedded.ts';
import { withSession } from '../../db/embedded/session.ts';
import { migrate } from '../../db/migrate.ts';
import { type Db, openDb } from '../../db/pool.ts';
import { ensureEnvironment } from '../../environments/store.ts';
import { openVault } from '../../vault.ts';
import {
  clusterOf,
  type FileEntry,
  keepNewest,
  manifestPath,
  readManifest,
  withBackupDirectory,
  writeManifest,
} from './backup-directory.ts';
import { exportKeys, type KeyFile } from './key-file.ts';
import { makeBackup } from './make.ts';
import { restoreBackup, type Wanted } from './restore.ts';

const masterKey = randomBytes(32);
const vault = openVault([{ id: 'k1', key: createSecretKey(masterKey) }]);
let dir: string;
let backupDir: string;
let dataDir: string;
let server: EmbeddedPostgres;
let db: Db;
/** Of a database with many keys, whose wrapped bytes stand in rows, in samples and in WAL. */
let backup: string;
let wrapped: Buffer[];
before(async () => {
  dir = await realpath(await mkdtemp(join(tmpdir(), 'trellis-backup-')));
  backupDir = join(dir, 'shelf');
  dataDir = join(dir, 'data');
  server = await startEmbedded({ dataDir });
  db = openDb(server.connection, { maxConnections: 4 });
  await migrate(db);
  for (const name of ['dev', 'prod']) await ensureEnvironment(db, { name, vault });
  await keepSamples();
  await db.transaction(async (tx) => {
    for (let n = 0; n < 200; n += 1) await insertDataKey(tx, vault);
  });
  await db.query('analyze data_key');
  assert.ok((await countSamples()) > 50);
  // Half of all keys are in the samples.
  const some = await db.query<{ wrapped: Buffer }>('select wrapped from data_key limit 20');
  wrapped = some.map((row) => row.wrapped);
  await db.query('checkpoint');
  await makeKinds();
  await leaveOrphans();
  await withSession(server.connection, async (session) => {
    await session.query('create temporary table passing as select 1');
    backup = (await withBackupDirectory(backupDir, make)).path;
  });
});
const told = {
  log: () => {},
  /** A test that goes wrong fills no disk. */
  onProgress: ({ bytes }: { bytes: number }) => assert.ok(bytes < 1024 ** 3),
};
const make = (at: string) => makeBackup({ dataDir, server: server.connection, backupDir: at, ...told });
after(async () => {
  await db.end();
  await server.stop();
  await rm(dir, { recursive: true, force: true });
});

/** As the planner did before it was told not to. */
const keepSamples = () => db.query('alter table data_key alter column wrapped set statistics 100');
async function countSamples(): Promise<number> {
  const [found] = await db.query<{ samples: number }>(
    `select array_length(histogram_bounds::text::text[], 1) as samples
     from pg_stats
     where tablename = 'data_key' and attname = 'wrapped'`,
  );
  return found?.samples ?? 0;
}
/** Relations beside those of the service, with whatever files a relation may have. */
async function makeKinds(): Promise<void> {
  await db.query('create database second');
  await db.query(
    `create schema other;
     create unlogged table other.quick (id int primary key);
     insert into other.quick values (1);
     create table other.long (id int primary key, text text);
     alter table other.long alter column text set storage external;
     insert into other.long values (1, repeat('x', 20000));
     create materialized view other.seen as select count(*) as count from other.long`,
  );
}
/** What crashes leave: files of relations and databases that came to nothing, and the memory of a process. */
async function leaveOrphans(): Promise<void> {
  const cluster = join(dataDir, 'postgres/data');
  const [keys] = await db.query<{ path: string }>(`select pg_relation_filepath('data_key') as path`);
  const content = await readFile(join(cluster, keys!.path));
  await mkdir(join(cluster, 'base/888888'));
  const of = dirname(keys!.path);
  const names = ['999999', '999999.1', '999999_vm', '999999_init', 't7_999999', 'notes'];
  for (const path of [
    ...names.map((name) => `${of}/${name}`),
    'global/999999',
    'base/888888/2619',
    'core.42',
  ])
    await writeFile(join(cluster, path), content);
}
async function wanted(from: string, into: string): Promise<Wanted> {
  const dataKeys = await db.query<KeyFile['dataKeys'][number]>('select id, wrapped from data_key');
  const keyFile: KeyFile = { madeAt: new Date(), dataKeys, apiKeys: [], unread: 0 };
  return {
    backup: from,
    dataDir: join(dir, into),
    keyFile,
    vault,
    dropsNewer: false,
    goesBack: false,
    ...told,
  };
}
/** What a restore leaves behind where a database is to be. */
const left = async (into: string) =>
  (await readdir(join(dir, into, 'postgres'))).filter((name) => name === 'data' || name.startsWith('draft-'));

test('no wrapped key is left in a backup: not in rows, in samples of them, in WAL, nor in files of no relation', async () => {
  assert.notDeepEqual(await findBytes(join(dataDir, 'postgres/data'), wrapped), []);
  assert.deepEqual(await findBytes(backup, wrapped), []);
});

test('every relation of a backup is there to be read, of whatever kind', async () => {
  await restoreBackup(await wanted(backup, 'read'));
  const restored = await startEmbedded({ dataDir: join(dir, 'read') });
  const read = openDb(restored.connection, { maxConnections: 1 });
  try {
    // Unlogged rows are gone after each recovery.
    assert.deepEqual(
      await read.query(
        `select length(long.text) as long, seen.count as seen, (select count(*) from other.quick) as quick
         from other.long as long cross join other.seen as seen
         where long.id = 1`,
      ),
      [{ long: 20_000, seen: 1, quick: 0 }],
    );
    const names = await read.query<{ name: string }>(
      `select oid::regclass::text as name from pg_class where relkind in ('r', 'm') and relpersistence <> 't'`,
    );
    for (const { name } of names) await read.query(`select count(*) from ${name}`);
    await read.query('create database third template second');
  } finally {
    await read.end();
    await restored.stop();
  }
});

test('a backup fails before anything is written if the disk lacks space, and the error has the missing size', async () => {
  const hole = join(dataDir, 'postgres/data/hole');
  await writeFile(hole, '');
  // As long as 8 TB, and takes no space.
  await truncate(hole, 8 * 1024 ** 4);
  const before = await readdir(backupDir);
  await assert.rejects(
    withBackupDirectory(backupDir, make),
    /the backup needs about 83\d{5} MB, and .*shelf has \d+ MB free: \d+ MB are missing/,
  );
  await rm(hole);
  assert.deepEqual(await readdir(backupDir), before);
});

test('a trial leaves nothing, not even a directory', async () => {
  const keys = join(dir, 'trial.keys');
  await exportKeys(db, keys);
  const env = {
    DATA_DIR: join(dir, 'new/trial'),
    TRELLIS_ENCRYPTION_KEYS: `k1:${masterKey.toString('base64')}`,
  };
  const args = ['restore', '--from', backup, '--keys', keys, '--dry-run'];
  const { code, stdout, stderr } = await runCommand(args, env);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /can be restored\n.*\nnothing was changed\n$/s);
  assert.equal(existsSync(join(dir, 'new')), false);

  // Where there are directories, they are as they were.
  await mkdir(join(dir, 'new/trial/postgres'), { recursive: true });
  assert.equal((await runCommand(args, env)).code, 0);
  assert.deepEqual(await readdir(join(dir, 'new'), { recursive: true }), ['trial', 'trial/postgres']);
});

test('a restore takes the place of no database', async () => {
  const given = await wanted(backup, 'back');
  await restoreBackup(given);
  await assert.rejects(restoreBackup(given), /data contains a database: move it to another directory/);
  assert.deepEqual(await left('back'), ['data']);
});

test('the planner keeps no samples of wrapped keys', async () => {
  await db.query(`delete from migration where name = '0035_key_statistics.sql'`);
  await migrate(db);
  assert.equal(await countSamples(), 0);
  await db.query('analyze data_key');
  assert.equal(await countSamples(), 0);
});

test('a backup that was damaged is refused, by the file, and nothing is left of it', async () => {
  const copy = join(dir, 'copy');
  await cp(backup, copy, { recursive: true });
  const { files } = await readManifest(backup);
  const { path } = files.find(({ bytes, path: name }) => bytes > 8192 && name.startsWith('base/'))!;
  const victim = join(clusterOf(copy), path);
  const refuses = async (word: string) =>
    assert.rejects(restoreBackup(await wanted(copy, 'damaged')), ({ message }: Error) => {
      assert.ok(message.includes(word), message);
      return true;
    });
  await flip(victim);
  await refuses(`${path} was changed: the backup is damaged`);
  await rm(victim);
  await refuses(`${path} is missing`);
  await flip(manifestPath(copy));
  await refuses('manifest was changed: the backup cannot be used');
  await rm(manifestPath(copy));
  await refuses('is not a backup');
  assert.equal(existsSync(join(dir, 'damaged')), false);
});

test('a backup of another version or machine, or larger than the disk, is refused', async () => {
  const manifest = await readManifest(backup);
  const files: FileEntry[] = manifest.files.map((entry) => ({ ...entry, bytes: 1e12 }));
  for (const [name, change, word] of [
    ['older', { postgres: '17' }, /has PostgreSQL 17, and this version includes 18/],
    ['elsewhere', { platform: 'plan9-mips' }, /was made on plan9-mips, and this machine is/],
    ['large', { files }, /the restore needs about \d+ MB, and .* are missing/],
  ] as const) {
    await mkdir(join(dir, name));
    await writeManifest(join(dir, name), { ...manifest, ...change });
    await assert.rejects(restoreBackup(await wanted(join(dir, name), 'refused')), word);
  }
});

test('the newest backups are kept, leftovers go, and two are not made into one directory at once', async () => {
  const older = ['2026-01-01T00-00-00-000Z', '2026-01-02T00-00-00-000Z'];
  for (const name of older) {
    await mkdir(join(backupDir, name));
    await writeManifest(join(backupDir, name), await readManifest(backup));
  }
  await mkdir(join(backupDir, 'draft-left'));
  await mkdir(join(backupDir, '2026-01-03T00-00-00-000Z'));
  await writeFile(join(backupDir, 'notes.txt'), 'mine');
  await withBackupDirectory(backupDir, async (at) => {
    await assert.rejects(
      withBackupDirectory(backupDir, async () => {}),
      /another backup \(pid \d+\) writes to/,
    );
    assert.deepEqual(await keepNewest(at, { count: 2, made: basename(backup) }), older.slice(0, 1));
  });
  const others = ['2026-01-03T00-00-00-000Z', 'backup.lock', 'notes.txt'];
  assert.deepEqual(
    (await readdir(backupDir)).sort(),
    [...older.slice(1), basename(backup), ...others].sort(),
  );
});

test('the newest backup is kept, also if earlier backups have later times in their names', async () => {
  const ahead = join(dir, 'ahead');
  const names = ['2026-01-01T00-00-00-000Z', '2999-01-01T00-00-00-000Z', '2999-01-02T00-00-00-000Z'];
  for (const name of names) {
    await mkdir(join(ahead, name), { recursive: true });
    await writeManifest(join(ahead, name), await readManifest(backup));
  }
  const [made = '', later = '', latest = ''] = names;
  assert.deepEqual(await keepNewest(ahead, { count: 2, made }), [later]);
  assert.deepEqual(await keepNewest(ahead, { count: 1, made }), [latest]);
  assert.deepEqual(await keepNewest(ahead, { count: 1, made }), []);
  assert.deepEqual(await readdir(ahead), [made]);
});

async function flip(path: string): Promise<void> {
  const file = await open(path, 'r+');
  const byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, 100);
  byte[0]! ^= 1;
  await file.write(byte, 0, 1, 100);
  await file.close();
}
