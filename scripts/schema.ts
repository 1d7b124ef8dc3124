/**
 * Writes the files generated from the migrations: migrations/schema.sql (for readers) and server/db/tables.ts (for the
 * query builder, which supports only the tables in `queryTables`). Run it after each change of a migration:
 * `node scripts/schema.ts`.
 */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { openTestDatabase } from '../test/support/database.ts';
import { describeSchema } from '../test/support/schema.ts';

/** The tables of the query builder. Add a table here to build queries on it. */
const queryTables =
  'api_key,audit,auth_attempt,connect_session,connect_settings,connection,data_key,endpoint,environment,' +
  'event_settings,integration,key_rate,operation,retention,signing_key';
const root = join(import.meta.dirname, '..');
const generator = join(root, 'node_modules/kysely-codegen/dist/cli/bin.js');
const { db, target, drop } = await openTestDatabase();
try {
  const header = '-- Generated from the migrations by scripts/schema.ts. Read it, do not edit it.\n\n';
  writeFileSync(join(root, 'migrations/schema.sql'), header + (await describeSchema(db)));
  const url =
    'url' in target
      ? target.url
      : `postgres://${target.user}@/${target.database}?host=${encodeURIComponent(target.host)}&port=${target.port}`;
  const tables = join(root, 'server/db/tables.ts');
  execFileSync(
    process.execPath,
    [
      generator,
      '--dialect',
      'postgres',
      '--url',
      url,
      '--out-file',
      tables,
      '--log-level',
      'error',
      '--include-pattern',
      `{${queryTables}}`,
      '--type-mapping',
      JSON.stringify({ int8: 'number', int8multirange: 'string' }),
    ],
    { stdio: 'inherit' },
  );
  execFileSync(join(root, 'node_modules/.bin/biome'), ['check', '--write', tables], { stdio: 'inherit' });
} finally {
  await drop();
}
