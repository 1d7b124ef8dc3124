import assert from 'node:assert/strict';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { rotateDataKeys } from '../data-keys/rotate.ts';
import type { Db } from '../db/pool.ts';
import { createKey } from '../environments/keys.ts';
import { exportKeys, readKeyFile } from '../ops/backup/key-file.ts';
import { restoreKeys } from '../ops/backup/keys-restore.ts';
import { openVault } from '../vault.ts';
import { openBackupBench } from './backup.fixture.ts';

let bench: Awaited<ReturnType<typeof openBackupBench>>;
let file: string;
beforeEach(async () => {
  bench = await openBackupBench();
  file = join(bench.dir, 'data.keys');
});
afterEach(() => bench.close());

test('a file holds the keys of its moment, for its owner alone, and takes the place of the one before', async () => {
  const { db } = bench;
  for (const id of ['kept', 'doomed']) await bench.connect(id);
  assert.equal((await exportKeys(db, file)).count, 4);
  await bench.disconnect('doomed');
  assert.equal((await exportKeys(db, file)).count, 3);
  assert.equal((await stat(file)).mode & 0o777, 0o600);
  assert.deepEqual(await readdir(bench.dir), ['data.keys']);
  const stored = await db.query('select id, wrapped from data_key order by id');
  assert.deepEqual((await readKeyFile(file)).dataKeys, stored);
  const noted = await db.query(
    `select details from audit where action = 'data_keys.exported' and actor = 'command line' order by id`,
  );
  assert.deepEqual(
    noted.map(({ details }) => details),
    [4, 3].map((count) => ({ data_keys: count, master_keys: 'k1' })),
  );
});

test('an export names the master keys that open it: after a rotation only the new one', async () => {
  const { db, k1, k2 } = bench;
  await bench.connect('kept');
  assert.deepEqual((await exportKeys(db, file)).masterKeys, ['k1']);
  const data = await bench.backup();
  const before = await readKeyFile(file);
  await rotateDataKeys(db, { vault: openVault([k2, k1]) });
  assert.deepEqual((await exportKeys(db, file)).masterKeys, ['k2']);
  const given = { vault: openVault([k2]), dropsNewer: false, at: new Date() };
  await assert.rejects(restoreKeys(data, { ...given, keyFile: before }), /"k1" is missing/);
  const restored = await restoreKeys(data, { ...given, keyFile: await readKeyFile(file) });
  assert.equal(restored.connections, 1);
});

test('no export takes the place of a good file: not from a database without its keys, and not of an older one', async () => {
  const { db } = bench;
  await bench.connect('kept');
  const [keyless, early] = [await bench.backup(), await bench.wholeBackup()];
  await exportKeys(db, file);
  const [late, orphaned, unused] = [
    await bench.wholeBackup(),
    await bench.wholeBackup(),
    await bench.unused(),
  ];
  await orphaned.query('delete from data_key using connection where connection.data_key = data_key.id');
  const other = join(bench.dir, 'other.keys');
  const good = await readFile(file);
  for (const older of [keyless, early, unused])
    await assert.rejects(
      exportKeys(older, file),
      /restored from an earlier backup.*belongs to another database/,
    );
  await assert.rejects(exportKeys(keyless, other), /data key of "dev", "prod" is missing.*keys restore FILE/);
  await assert.rejects(
    exportKeys(orphaned, file),
    /data keys of 1 connections are missing, the first is dev\/notes\/kept/,
  );
  await assert.rejects(exportKeys(unused, other), /no data keys: there is nothing to write/);
  assert.deepEqual(await readFile(file), good);
  assert.deepEqual(await readdir(bench.dir), ['data.keys']);

  // It knows the file that stands there.
  await exportKeys(late, file);
});

test('a database that was given its keys writes files again', async () => {
  await bench.connect('kept');
  const [data, whole] = [await bench.backup(), await bench.wholeBackup()];
  await exportKeys(bench.db, file);
  const given = { vault: bench.vault, dropsNewer: false, at: new Date() };
  for (const db of [data, whole]) {
    await restoreKeys(db, { ...given, keyFile: await readKeyFile(file) });
    assert.equal((await exportKeys(db, file)).count, 3);
  }
});

test('a file of something else is not written over; one that is damaged is', async () => {
  await writeFile(file, '# Notes\n');
  await assert.rejects(exportKeys(bench.db, file), /is not a file of keys/);
  assert.equal(await readFile(file, 'utf8'), '# Notes\n');
  for (const text of ['', 'trellis keys, version 1, 2020-01-31T12:00:00.000Z\ndata 1']) {
    await writeFile(file, text);
    if (text !== '')
      await bench.db.query('insert into key_file (made_at) values (now()) on conflict do nothing');
    await exportKeys(bench.db, file);
  }
});

test('a file that could not be read again does not take the place of a good one', async () => {
  await exportKeys(bench.db, file);
  const good = await readFile(file);
  const expiresAt = new Date('+010000-01-01T00:59:59Z');
  await createKey(bench.db, { environment: bench.environment, name: 'far', scopes: ['*'], expiresAt });
  await assert.rejects(exportKeys(bench.db, file), /1 API keys could not be read again/);
  assert.deepEqual(await readFile(file), good);
  assert.deepEqual(await readdir(bench.dir), ['data.keys']);
});

test('of two exports at once the file of the later moment stays', async () => {
  for (const id of ['kept', 'doomed']) await bench.connect(id);
  const [read, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const slow: Db = {
    ...bench.db,
    async transaction(work, mode) {
      const result = await bench.db.transaction(work, mode);
      if (mode === 'snapshot') {
        read.resolve();
        await goOn.promise;
      }
      return result;
    },
  };
  const first = exportKeys(slow, file);
  await read.promise;
  await bench.disconnect('doomed');
  const second = exportKeys(bench.db, file);
  await Promise.race([second, untilSomeoneWaits()]);
  goOn.resolve();
  assert.deepEqual([(await first).count, (await second).count], [4, 3]);
  assert.equal((await readKeyFile(file)).dataKeys.length, 3);
  await exportKeys(bench.db, file);
});

async function untilSomeoneWaits(): Promise<void> {
  for (;;) {
    const waiting = await bench.db.query(
      `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
    );
    if (waiting.length > 0) return;
  }
}
