import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { cp, mkdir, mkdtemp, open, readdir, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, test } from 'node:test';
import { findBytes } from '../../test/support/bytes.ts';
import type { KeyFile } from '../cli/key-file.ts';
import { insertDataKey } from '../data-keys/store.ts';
import { type EmbeddedPostgres, startEmbedded } from '../db/embedded.ts';
import { migrate } from '../db/migrate.ts';
import { type Db, openDb } from '../db/pool.ts';
import { ensureEnvironment } from '../environments/store.ts';
import { openVault } from '../vault.ts';
import { makeBackup } from './make.ts';
import { clusterOf, manifestPath, readManifest, writeManifest } from './manifest.ts';
import { restoreBackup, tryBackup, type Wanted } from './restore.ts';
import { keepNewest, withShelf } from './shelf.ts';

const vault = openVault([{ id: 'k1', key: createSecretKey(randomBytes(32)) }]);
let dir: string;
let shelf: string;
let dataDir: string;
let server: EmbeddedPostgres;
let db: Db;
/** Of a database with many keys, whose wrapped bytes stand in rows, in samples and in WAL. */
let backup: string;
let wrapped: Buffer[];
before(async () => {
  dir = await realpath(await mkdtemp(join(tmpdir(), 'trellis-backup-')));
  shelf = join(dir, 'shelf');
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
  const told = { log: () => {}, onProgress: () => {} };
  const made = await withShelf(shelf, (at) =>
    makeBackup({ dataDir, server: server.connection, shelf: at, ...told }),
  );
  backup = made.path;
});
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
async function wanted(from: string, into: string): Promise<Wanted> {
  const dataKeys = await db.query<KeyFile['dataKeys'][number]>('select id, wrapped from data_key');
  const keyFile: KeyFile = { madeAt: new Date(), dataKeys, apiKeys: [], unread: 0 };
  const told = { log: () => {}, onProgress: () => {} };
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

test('no wrapped key is left in a backup: not in rows, in samples of them, nor in WAL', async () => {
  assert.notDeepEqual(await findBytes(join(dataDir, 'postgres/data'), wrapped), []);
  assert.deepEqual(await findBytes(backup, wrapped), []);
});

test('a trial leaves nothing, and a restore takes the place of no database', async () => {
  await mkdir(join(dir, 'back'), { mode: 0o700 });
  const given = await wanted(backup, 'back');
  assert.equal((await tryBackup(given)).keys.connections, 0);
  assert.deepEqual(await left('back'), []);
  await restoreBackup(given);
  await assert.rejects(restoreBackup(given), /data holds a database: move it away/);
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
  await refuses(`${path} is not what was backed up`);
  await rm(victim);
  await refuses(`${path} is missing`);
  await flip(manifestPath(copy));
  await refuses('manifest was changed: the backup is no good');
  await rm(manifestPath(copy));
  await refuses('is no backup');
  assert.deepEqual(await left('damaged'), []);
});

test('a backup of another version or machine is refused', async () => {
  const manifest = await readManifest(backup);
  for (const [name, change, word] of [
    ['older', { postgres: '17' }, /is of PostgreSQL 17, and this version brings 18/],
    ['elsewhere', { platform: 'plan9-mips' }, /was made on plan9-mips, and this is/],
  ] as const) {
    await mkdir(join(dir, name));
    await writeManifest(join(dir, name), { ...manifest, ...change });
    await assert.rejects(restoreBackup(await wanted(join(dir, name), 'refused')), word);
  }
});

test('the newest backups are kept, leftovers go, and two are not made into one directory at once', async () => {
  const older = ['2026-01-01T00-00-00-000Z', '2026-01-02T00-00-00-000Z'];
  for (const name of older) {
    await mkdir(join(shelf, name));
    await writeManifest(join(shelf, name), await readManifest(backup));
  }
  await mkdir(join(shelf, 'draft-left'));
  await mkdir(join(shelf, '2026-01-03T00-00-00-000Z'));
  await writeFile(join(shelf, 'notes.txt'), 'mine');
  await withShelf(shelf, async (at) => {
    await assert.rejects(
      withShelf(shelf, async () => {}),
      /another backup \(pid \d+\) is being made into/,
    );
    assert.deepEqual(await keepNewest(at, 2), older.slice(0, 1));
  });
  const others = ['2026-01-03T00-00-00-000Z', 'backup.lock', 'notes.txt'];
  assert.deepEqual((await readdir(shelf)).sort(), [...older.slice(1), basename(backup), ...others].sort());
});

async function flip(path: string): Promise<void> {
  const file = await open(path, 'r+');
  const byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, 100);
  byte[0]! ^= 1;
  await file.write(byte, 0, 1, 100);
  await file.close();
}
