import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openDb } from '../../server/db/pool.ts';
import { openEmptyDatabase, openTestDatabase } from './database.ts';

test('each test database is migrated, and its own', async () => {
  const [one, other] = await Promise.all([openTestDatabase(), openTestDatabase()]);
  await one.db.query('create table only_here ()');
  const seen = await other.db.query(
    "select to_regclass('migration') is not null as migrated, to_regclass('only_here') is not null as shared",
  );
  assert.deepEqual(seen, [{ migrated: true, shared: false }]);
  await Promise.all([one.drop(), other.drop()]);
});

test('an empty database has no table of the service', async () => {
  const empty = await openEmptyDatabase();
  const tables = await empty.db.query("select 1 from pg_tables where schemaname = 'public'");
  await empty.drop();
  assert.deepEqual(tables, []);
});

test('a dropped database is gone even while another pool is connected to it', async () => {
  const { db, target, drop } = await openTestDatabase();
  const [row] = await db.query<{ name: string }>('select current_database() as name');
  const second = openDb(target);
  await second.query('select 1');
  await drop();
  await second.end();
  const probe = await openTestDatabase();
  const found = await probe.db.query('select 1 from pg_database where datname = $1', [row?.name]);
  await probe.drop();
  assert.deepEqual(found, []);
});
