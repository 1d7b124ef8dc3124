// Slow: it starts embedded databases.

import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { openEmptyDatabase, openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { held, type RowsByVersion, rowsByVersion } from '../../test/support/rows-by-version.ts';
import { auditSequence, verifyAudit } from '../activity/audit-chain.ts';
import { countConnections } from '../connections/store/list.ts';
import { findConnection } from '../connections/store/store.ts';
import { getEnvironment } from '../environments/store.ts';
import { readFeed } from '../events/feed.ts';
import { eventSequence } from '../events/sequence.ts';
import { listRecords } from '../records/read/list.ts';
import { createScratchBuffer } from '../records/read/portion.ts';
import { migrate } from './migrate.ts';
import { listMigrations, migrationsDirectory, numberOf } from './migration-files.ts';
import type { Db } from './pool.ts';
import { placeAll } from './sequencer.ts';

/** Those at which what was held is read too: a copy costs as much as the upgrades of many versions. */
const readAt = [6, 19, 20, 27, 33];

test('a database of each earlier version, with what it held, becomes the newest, and is read', async (t) => {
  const newest = await openTestDatabase();
  const schema = await fingerprint(newest.db);
  await newest.drop();
  const rows = rowsByVersion();
  const old = await openEmptyDatabase();
  const directory = mkdtempSync(join(tmpdir(), 'trellis-migrations-'));
  t.after(async () => {
    rmSync(directory, { recursive: true });
    await old.drop();
  });

  for (const name of await listMigrations()) {
    copyFileSync(join(migrationsDirectory, name), join(directory, name));
    await migrate(old.db, { directory });
    await old.db.query(rows.after.get(numberOf(name)) ?? 'select');
    const lacking = await emptyTables(old.db);
    assert.deepEqual(lacking, [], `${name}: test/support/rows-by-version.ts lacks rows for a table`);
    await inVain(old.db, async (db) => {
      await migrate(db);
      assert.equal(await fingerprint(db), schema, `from ${name}`);
    });
    if (readAt.includes(numberOf(name))) await readCopy(old, { number: numberOf(name), rows });
  }
});

/** In a transaction that is rolled back: what migrates finds a database, and leaves it as it was. */
async function inVain(db: Db, work: (db: Db) => Promise<void>): Promise<void> {
  const over = new Error('it was all in vain');
  const done = db.transaction(async (tx) => {
    // An index can be built concurrently only outside a transaction; the same index is built here.
    const query: Db['query'] = (text, values) => tx.query(text.replaceAll(' concurrently', ''), values);
    await work({ ...db, ...tx, query, transaction: (inner) => inner(tx) });
    throw over;
  });
  await assert.rejects(done, (error) => {
    if (error !== over) throw error;
    return true;
  });
}

async function readCopy(old: TestDatabase, of: { number: number; rows: RowsByVersion }): Promise<void> {
  const { db, drop } = await old.copy();
  try {
    await migrate(db);
    await readAll(db, of);
  } finally {
    await drop();
  }
}

/** What there was is found by the service of today. */
async function readAll(db: Db, { number, rows }: { number: number; rows: RowsByVersion }): Promise<void> {
  const { id: environmentId } = await getEnvironment(db, held.environment);
  const { integrationKey, connectionId, model } = held;
  if (number >= 2) {
    await placeAll(db, auditSequence);
    const { proven, fault } = await verifyAudit(db);
    assert.deepEqual([proven > 0, fault], [true, undefined]);
  }
  if (number >= 3) {
    await placeAll(db, eventSequence);
    const of = { environmentId, environment: held.environment };
    assert.equal((await readFeed(db, { of, after: 0, limit: 10 })).events.length, 1);
  }
  if (number < 4) return;
  const connection = await findConnection(db, {
    environmentId,
    integrationKey,
    connectionId,
    vault: rows.vault,
  });
  assert.deepEqual([connection?.credentials, connection?.isUnverified], [held.credentials, true]);
  assert.equal(await countConnections(db, { environmentId, search: connectionId }), 1);
  if (number < 6) return;
  const page = await listRecords(db, {
    connection: connection!,
    model,
    variant: 'base',
    limit: 10,
    maxBytes: 10_000,
    scratch: createScratchBuffer(),
  });
  assert.deepEqual(
    page.records.map(({ id, lastAction, fields }) => [id, lastAction, fields?.toString()]),
    [
      ['pruned', 'ADDED', undefined],
      [held.record.id, 'ADDED', JSON.stringify(held.record.fields)],
      ['deleted', 'DELETED', undefined],
    ],
  );
}

async function emptyTables(db: Db): Promise<string[]> {
  const tables = await db.query<{ name: string }>(
    `select relname as name
     from pg_class
     where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')`,
  );
  const checks = tables.map(({ name }) => `select '${name}' as name where not exists (select from ${name})`);
  return (await db.query<{ name: string }>(checks.join(' union all '))).map(({ name }) => name);
}

/** All of the schema that may differ, in one statement; days are partitions, which the service makes as it goes. */
async function fingerprint(db: Db): Promise<string> {
  const rows = await db.query<{ line: string }>(
    `with tables as (
       select oid, relname
       from pg_class
       where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition
     )
     select line collate "C" as line
     from (
       select
         concat_ws(
           ' ', relname, attname, format_type(atttypid, atttypmod), attnotnull, attidentity, attstorage,
           coalesce(nullif(to_jsonb(attribute) ->> 'attstattarget', '-1'), ''), pg_get_expr(adbin, adrelid)
         ) as line
       from tables
       join pg_attribute attribute on attrelid = tables.oid and attnum > 0 and not attisdropped
       left join pg_attrdef on adrelid = attrelid and adnum = attnum
       union all
       select relname || ' ' || conname || ' ' || pg_get_constraintdef(pg_constraint.oid)
       from tables
       join pg_constraint on conrelid = tables.oid and contype <> 'n'
       union all
       select pg_get_indexdef(indexrelid)
       from tables
       join pg_index on indrelid = tables.oid
       union all
       select pg_get_triggerdef(pg_trigger.oid)
       from tables
       join pg_trigger on tgrelid = tables.oid and not tgisinternal
       union all
       select pg_get_functiondef(oid)
       from pg_proc
       where pronamespace = 'public'::regnamespace
     ) as parts
     order by 1`,
  );
  return rows.map(({ line }) => line).join('\n');
}
