// Slow: each of its tests takes more than a second.

import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { sdkReference } from '../../scripts/sdk-reference.ts';

const root = join(import.meta.dirname, '../..');
const files = globSync('sdk/{client,connect,react}/**/*.ts', { cwd: root }).filter(
  (file) => !/\.(test|fixture)\.ts$/.test(file),
);

test('the client imports only itself, and React for its hook', () => {
  assert.ok(files.length > 20);
  for (const file of files) {
    const text = readFileSync(join(root, file), 'utf8');
    const imported = [...text.matchAll(/\bfrom '([^']+)'|\bimport\('([^']+)'\)/g)].map(
      ([, from, by]) => from ?? by!,
    );
    const allowed =
      file === 'sdk/react/use-connect.ts' ? /^(\.|react$)/ : /^\.{1,2}\/([a-z]+\/)?[a-z-]+\.ts$/;
    assert.deepEqual(
      imported.filter((name) => !allowed.test(name)),
      [],
      file,
    );
  }
});

test('the client compiles with only the standards of the web, and the reference is generated from it', async () => {
  const written = readFileSync(join(root, 'docs/reference/sdk.md'), 'utf8');
  assert.equal(await sdkReference(), written, 'run node scripts/sdk-reference.ts');
});

test('the guide names every call', () => {
  const guide = readFileSync(join(root, 'docs/guides/sdk.md'), 'utf8');
  const unsaid = ['resources', 'connection', 'records', 'actions', 'syncs', 'events', 'trellis'].flatMap(
    (name) => {
      const text = readFileSync(join(root, `sdk/client/${name}.ts`), 'utf8');
      const calls = [...text.matchAll(/^ {2}(?:readonly |async \*?)?(\w+)(?:<[^>]*>)?(?:\(|: Fetch)/gm)];
      return calls.map(([, call]) => call!).filter((call) => call !== 'constructor' && !guide.includes(call));
    },
  );
  assert.deepEqual(unsaid, []);
});
