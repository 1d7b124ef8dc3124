import assert from 'node:assert/strict';
import { test } from 'node:test';
import { groupsOf, isSlow, listTestFiles, readDurations, shardOf } from './group.ts';

const all = listTestFiles();
const groups = groupsOf(all);
const filesOf = (some: typeof groups) => some.flatMap(({ files }) => files).sort();

test('every test file is in one group, and in no other', () => {
  assert.ok(all.length > 300);
  assert.deepEqual(filesOf(groups), all);
  assert.equal(new Set(groups.map(({ name }) => name)).size, groups.length);
});

test('the shards together are all groups, and none has a group of another', () => {
  for (const count of [1, 2, 3, 5, 8]) {
    const shards = Array.from({ length: count }, (_, index) => shardOf(groups, { index: index + 1, count }));
    assert.deepEqual(filesOf(shards.flat()), all);
  }
});

test('the shards take about the same time', () => {
  const seconds = [1, 2, 3].map((index) =>
    shardOf(groups, { index, count: 3 }).reduce((sum, group) => sum + group.seconds, 0),
  );
  assert.ok(Math.max(...seconds) <= 1.2 * Math.min(...seconds), String(seconds));
});

test('a duration is of a file that exists', () => {
  assert.deepEqual(
    Object.keys(readDurations()).filter((file) => !all.includes(file)),
    [],
  );
});

test('npm test leaves out slow files, which are a part of all', () => {
  const slow = all.filter(isSlow);
  assert.ok(slow.length > 0 && slow.length < all.length / 2, String(slow.length));
});

test('a path that has no test file is refused', () => {
  assert.deepEqual(listTestFiles(['test/support/group.test.ts']), ['test/support/group.test.ts']);
  assert.ok(listTestFiles(['server/records/']).length > 10);
  assert.throws(() => listTestFiles(['server/records', 'server/rec']), /server\/rec$/);
});
