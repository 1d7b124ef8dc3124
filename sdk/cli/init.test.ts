import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exampleFiles } from './init.ts';

test('no example function puts an unencoded value into a path', () => {
  const files = exampleFiles({ paths: {}, typeRoots: undefined });
  const endpoints = Object.values(files).flatMap((text) =>
    [...text.matchAll(/endpoint: `([^`]*)`/g)].map(([, path = '']) => path),
  );
  assert.ok(endpoints.length > 1);
  for (const path of endpoints) assert.doesNotMatch(path, /\$\{(?!encodeURIComponent\()/);
});
