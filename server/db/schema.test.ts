import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { openTestDatabase } from '../../test/support/database.ts';
import { describeSchema } from '../../test/support/schema.ts';

test('migrations/schema.sql and tables.ts are what the migrations make', async () => {
  const { db, drop } = await openTestDatabase();
  try {
    const written = readFileSync(join(import.meta.dirname, '../../migrations/schema.sql'), 'utf8');
    const made = await describeSchema(db);
    assert.equal(written.replace(/^--.*\n\n/, ''), made, 'run node scripts/schema.ts');
    const types = readFileSync(join(import.meta.dirname, 'tables.ts'), 'utf8');
    const ofTables = new Map(
      made.matchAll(/^create table (\w+) \(\n(.*?)^\)/gms).map(([, name, columns]) => [name, columns]),
    );
    const [, listed = ''] = types.split('export interface DB {');
    const tables = [...listed.matchAll(/^ {2}(\w+): (\w+);$/gm)];
    assert.ok(tables.length > 0);
    for (const [, table, name] of tables) {
      const [, described] = types.match(new RegExp(`^export interface ${name} {\n(.*?)^}`, 'ms')) ?? [];
      const namesIn = (text: string | undefined, name: RegExp) =>
        [...(text ?? '').matchAll(name)].map(([, column]) => column).sort();
      const columns = namesIn(ofTables.get(table), /^ {2}(?!constraint )(\w+) /gm);
      assert.deepEqual(namesIn(described, /^ {2}(\w+):/gm), columns, `${table} in tables.ts`);
    }
  } finally {
    await drop();
  }
});
