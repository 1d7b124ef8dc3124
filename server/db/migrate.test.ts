// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import {
  openEmptyDatabase,
  openTestDatabase,
  type TestDatabase,
  urlOf,
} from '../../test/support/database.ts';
import { countWaiting } from '../../test/support/locks.ts';
import { describeSchema } from '../../test/support/schema.ts';
import { migrate } from './migrate.ts';
import { markOf } from './migrate-apart.ts';
import { listMigrations, migrationsDirectory } from './migration-files.ts';
import { type Db, openDb } from './pool.ts';

async function emptyDatabase(t: TestContext): Promise<TestDatabase> {
  const bench = await openEmptyDatabase();
  t.after(() => bench.drop());
  return bench;
}

/** A directory with these files. */
function directoryOf(t: TestContext, files: Record<string, string>): string {
  const directory = mkdtempSync(join(tmpdir(), 'trellis-migrations-'));
  t.after(() => rmSync(directory, { recursive: true }));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text);
  return directory;
}

const appliedTo = async (db: Db) =>
  (await db.query<{ name: string }>('select name from migration order by name')).map(({ name }) => name);

/** The schema that an undisturbed start makes. */
async function newestSchema(t: TestContext): Promise<string> {
  const { db, drop } = await openTestDatabase();
  t.after(drop);
  return describeSchema(db);
}

test('of ten nodes that start at once on an empty database one migrates, and each finds it done', async (t) => {
  const bench = await emptyDatabase(t);
  const nodes = Array.from({ length: 10 }, () => openDb(bench.target, { maxConnections: 2 }));
  const applied = await Promise.all(nodes.map((node) => migrate(node)));
  await Promise.all(nodes.map((node) => node.end()));
  const names = await listMigrations();
  // Another node may go on after a migration outside a transaction.
  assert.deepEqual(applied.flat().sort(), names);
  assert.deepEqual(await appliedTo(bench.db), names);
  assert.equal(await describeSchema(bench.db), await newestSchema(t));
});

test('five processes migrate a database of an earlier version, one of them killed half-way', async (t) => {
  const bench = await emptyDatabase(t);
  const names = await listMigrations();
  const earlier = directoryOf(t, {});
  for (const name of names.slice(0, 12)) copyFileSync(join(migrationsDirectory, name), join(earlier, name));
  await migrate(bench.db, { directory: earlier });
  const start = () =>
    spawn(
      process.execPath,
      [join(import.meta.dirname, 'migrate-node.fixture.ts'), urlOf(bench.target), migrationsDirectory],
      { stdio: ['ignore', 'inherit', 'inherit'] },
    );

  const victim = start();
  const died = once(victim, 'exit');
  const holder = openDb(bench.target);
  await holder.transaction(async (tx) => {
    // Later migrations change it: a node that migrates comes to stand here, with others done and not committed.
    await tx.query('lock table connection in share mode');
    while ((await countWaiting(bench.db, 'relation')) === 0) await pause(10);
    victim.kill('SIGKILL');
    await died;
  });
  await holder.end();
  const others = Array.from({ length: 4 }, start);
  const codes = await Promise.all(others.map(async (child) => (await once(child, 'exit'))[0]));
  assert.deepEqual(
    codes,
    others.map(() => 0),
  );
  assert.deepEqual(await appliedTo(bench.db), names);
  assert.equal(await describeSchema(bench.db), await newestSchema(t));
});

test('a migration that waits for a table does not block other statements, and is retried', async (t) => {
  const bench = await emptyDatabase(t);
  const first = { '0001_a.sql': 'create table a (id bigint); create table b (id bigint);' };
  await migrate(bench.db, { directory: directoryOf(t, first) });
  const second = { '0002_b.sql': 'alter table b add column more text; alter table a add column more text;' };
  const directory = directoryOf(t, { ...first, ...second });

  const heldUp = Promise.withResolvers<void>();
  let migrated: Promise<string[]> | undefined;
  await bench.db.transaction(async (tx) => {
    await tx.query('insert into a (id) values (1)');
    migrated = migrate(bench.db, { directory, onHeldUp: () => heldUp.resolve() });
    await heldUp.promise;
    // Who writes elsewhere meanwhile is not held up by what the migration has done by now.
    await bench.db.query('insert into b (id) values (1)');
    assert.deepEqual(await appliedTo(bench.db), ['0001_a.sql']);
  });
  assert.deepEqual(await migrated, ['0002_b.sql']);
  assert.deepEqual(await bench.db.query('select id, more from a'), [{ id: 1, more: null }]);
});

const apart = `-- An index of a table that may be large.
-- outside a transaction
-- runs with: 0001

drop index concurrently if exists a_id;
-- Writers go on meanwhile.
create index concurrently a_id on a (id);
`;

test('an index is built beside those who write, by one of ten nodes, and again after a start that was broken off', async (t) => {
  const bench = await emptyDatabase(t);
  const first = { '0001_a.sql': 'create table a (id bigint); insert into a values (1), (1);' };
  const last = { '0003_c.sql': '-- runs with: 0001\ncreate table c (id bigint);' };
  await migrate(bench.db, { directory: directoryOf(t, first) });

  // What a kill leaves behind: an index that nobody uses.
  await assert.rejects(bench.db.query('create unique index concurrently a_id on a (id)'), /could not create/);
  const directory = directoryOf(t, { ...first, '0002_b.sql': apart, ...last });
  const nodes = Array.from({ length: 10 }, () => openDb(bench.target, { maxConnections: 2 }));
  let migrated: Promise<string[][]> | undefined;
  await bench.db.transaction(async (tx) => {
    // The index waits for the readers of what there was before.
    await tx.query('select');
    migrated = Promise.all(nodes.map((node) => migrate(node, { directory })));
    while ((await countWaiting(bench.db, 'virtualxid')) === 0) await pause(10);
    // Nobody waits for the node that builds it, as the index would for them.
    await bench.db.query('insert into a (id) values (2)');
    assert.deepEqual(await appliedTo(bench.db), ['0001_a.sql']);
  }, 'snapshot');
  assert.deepEqual((await migrated)?.flat().sort(), ['0002_b.sql', '0003_c.sql']);
  await Promise.all(nodes.map((node) => node.end()));
  assert.deepEqual(
    await bench.db.query(`select indisvalid, indisunique from pg_index where indexrelid = 'a_id'::regclass`),
    [{ indisvalid: true, indisunique: false }],
  );
});

test('an index that waits for a table does not block other statements, and is retried; the statement of a lost node is ended first', async (t) => {
  const bench = await emptyDatabase(t);
  const first = { '0001_a.sql': 'create table a (id bigint);' };
  await migrate(bench.db, { directory: directoryOf(t, first) });
  const directory = directoryOf(t, { ...first, '0002_b.sql': apart });

  const heldUp = Promise.withResolvers<unknown>();
  let migrated: Promise<string[]> | undefined;
  await bench.db.transaction(async (tx) => {
    await tx.query('lock table a in share update exclusive mode');
    migrated = migrate(bench.db, { directory, onHeldUp: heldUp.resolve });
    migrated.catch(heldUp.reject);
    const error = await Promise.race([heldUp.promise, pause(30_000, 'it waits for ever')]);
    assert.match(String(error), /migration 0002_b\.sql waited for a table/);
    while ((await countWaiting(bench.db, 'relation')) > 0) await pause(10);
  });
  assert.deepEqual(await migrated, ['0002_b.sql']);

  await bench.db.query(`delete from migration where name = '0002_b.sql'`);
  const other = openDb(bench.target);
  await bench.db.transaction(async (tx) => {
    await tx.query('select');
    const mark = markOf('0002_b.sql');
    const left = other.query(`${mark} create index concurrently a_id_other on a (id)`).catch(String);
    const isWaiting = (beginning: string) =>
      other.query(
        `select from pg_locks join pg_stat_activity using (pid)
         where not granted and pg_locks.locktype = 'virtualxid' and starts_with(query, $1)`,
        [beginning],
      );
    while ((await isWaiting(mark)).length === 0) await pause(10);
    migrated = migrate(bench.db, { directory });
    assert.match(String(await left), /canceling statement/);
    while ((await isWaiting(`${mark} /*`)).length === 0) await pause(10);
  }, 'snapshot');
  assert.deepEqual(await migrated, ['0002_b.sql']);
  await other.end();
});

test('a migration that fails leaves nothing of itself, and names itself', async (t) => {
  const bench = await emptyDatabase(t);
  const directory = directoryOf(t, {
    '0001_a.sql': 'create table a (id bigint);',
    '0002_b.sql': 'create table b (id bigint); select 1 / 0;',
  });
  await assert.rejects(migrate(bench.db, { directory }), /migration 0002_b\.sql failed/);
  assert.deepEqual(await bench.db.query(`select to_regclass('a')::text as a`), [{ a: null }]);
});

test('a version starts on a database of a newer one only if the newer one allows it', async (t) => {
  const bench = await emptyDatabase(t);
  const first = { '0001_a.sql': 'create table a (id bigint);' };
  const second = { '0002_b.sql': '-- runs with: 0001\ncreate table b (id bigint);' };
  const third = { '0003_c.sql': '-- What 0001 used goes.\n-- runs with: 0002\ndrop table a;' };
  const of = (...files: Record<string, string>[]) => ({
    directory: directoryOf(t, Object.assign({}, ...files)),
  });
  await migrate(bench.db, of(first, second));
  assert.deepEqual(await migrate(bench.db, of(first)), []);
  await migrate(bench.db, of(first, second, third));
  assert.deepEqual(await migrate(bench.db, of(first, second)), []);
  await assert.rejects(migrate(bench.db, of(first)), /newer version of the service .*\(0003_c\.sql\)/);
  await migrate(bench.db, of(first, second, third, { '0004_d.sql': 'create table d (id bigint);' }));
  await assert.rejects(
    migrate(bench.db, of(first, second, third)),
    /has migrated the database \(0004_d\.sql\)/,
  );
});
