import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { operationTypes } from './operations.ts';

test('docs/guides/activity.md describes each type, and no other', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/guides/activity.md'), 'utf8');
  const [, table = ''] = /\| type \| one entry for \|\n\|---\|---\|\n([\s\S]+?)\n\n/.exec(page) ?? [];
  const documented = [...table.matchAll(/^\| `([a-z_.]+)` \| (.+) \|$/gm)].map(([, name, what]) => [
    name,
    what,
  ]);
  assert.deepEqual(Object.fromEntries(documented), operationTypes);
});
