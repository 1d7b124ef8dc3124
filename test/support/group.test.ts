import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import { test } from 'node:test';
import { groupsOf, ungrouped } from './group.ts';

test('every test file is run, and once: in a group or by itself', () => {
  const run = [...[...groupsOf().values()].flat(), ...ungrouped()];
  const all = globSync('{*,!(node_modules)/**/*}.test.ts');
  assert.ok(all.length > 300);
  assert.deepEqual(run.sort(), all.sort());
});

test('no group is empty, nor twice as large as another share of the same place', () => {
  const places = Map.groupBy(groupsOf(), ([path]) => path.replace(/\.\d+\.ts$/, ''));
  for (const shares of places.values()) {
    const sizes = shares.map(([, files]) => files.length);
    assert.ok(
      Math.min(...sizes) > 0 && Math.max(...sizes) <= 2 * Math.min(...sizes),
      `${shares[0]?.[0]}: ${sizes}`,
    );
  }
});
