import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { withTable } from './table.ts';
import { catalog } from './walk.ts';

test('docs/providers.md lists the providers as they are', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/providers.md'), 'utf8');
  assert.equal(page, withTable(page, catalog), 'run node scripts/providers.ts');
});
