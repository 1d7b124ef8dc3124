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
    const [ofTables = ''] = made.split('CREATE OR REPLACE FUNCTION');
    for (const [, column] of ofTables.matchAll(/^ {2}([a-z_]+) (?!.*foreign key)/gm)) {
      if (column !== 'constraint')
        assert.match(types, new RegExp(`\\b${column}:`), `tables.ts lacks ${column}`);
    }
  } finally {
    await drop();
  }
});
