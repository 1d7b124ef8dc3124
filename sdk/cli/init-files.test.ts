import assert from 'node:assert/strict';
import { test } from 'node:test';
import { filesToBegin } from './init-files.ts';

test('no function to begin with puts a value into a path as it stands', () => {
  const files = filesToBegin({ paths: {}, typeRoots: undefined });
  const endpoints = Object.values(files).flatMap((text) =>
    [...text.matchAll(/endpoint: `([^`]*)`/g)].map(([, path = '']) => path),
  );
  assert.ok(endpoints.length > 1);
  for (const path of endpoints) assert.doesNotMatch(path, /\$\{(?!encodeURIComponent\()/);
});
