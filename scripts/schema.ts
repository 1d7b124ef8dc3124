/**
 * Writes what follows from the migrations: migrations/schema.sql (to be read) and server/db/tables.ts (for the
 * query builder). Run it after each change of a migration: `node scripts/schema.ts`.
 */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { openTestDatabase } from '../test/support/database.ts';
import { describeSchema } from '../test/support/schema.ts';

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
      ...['--dialect', 'postgres', '--url', url, '--out-file', tables, '--log-level', 'error'],
      ...['--type-mapping', JSON.stringify({ int8: 'number', int8multirange: 'string' })],
    ],
    { stdio: 'inherit' },
  );
  execFileSync(join(root, 'node_modules/.bin/biome'), ['check', '--write', tables], { stdio: 'inherit' });
} finally {
  await drop();
}
