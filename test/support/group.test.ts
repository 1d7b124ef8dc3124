import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { test } from 'node:test';
import { groupsOf, isSlow, listTestFiles, readDurations, shardOf, writeGroups } from './group.ts';
import { makeScratch } from './scratch.ts';

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

test('each file of a group has a suite of its own, also when all wait for one module, and one cannot be loaded', () => {
  const scratch = makeScratch();
  const write = (name: string, text: string) => {
    const path = join(scratch.path, name);
    writeFileSync(path, text);
    return relative(join(import.meta.dirname, '../..'), path);
  };
  try {
    write('shared.mts', 'await new Promise((resolve) => setTimeout(resolve, 20));');
    const testNamed = (name: string) =>
      `import './shared.mts'; import test from 'node:test'; test('${name}');`;
    const files = [
      write('one.mts', testNamed('of one')),
      write('broken.mts', "import './shared.mts'; throw new Error('it cannot be loaded');"),
      write('two.mts', testNamed('of two')),
    ];
    const [path = ''] = writeGroups([{ name: 'three', files, seconds: 1 }], scratch.path);
    const env = { ...process.env, NODE_TEST_CONTEXT: undefined };
    const run = spawnSync(process.execPath, ['--test', '--test-reporter=tap', path], {
      env,
      encoding: 'utf8',
    });
    const suites = run.stdout.split('\n').filter((line) => /^ *(not )?ok /.test(line));
    assert.deepEqual(suites, [
      '    ok 1 - of one',
      `ok 1 - ${files[0]}`,
      `not ok 2 - ${files[1]}`,
      '    ok 1 - of two',
      `ok 3 - ${files[2]}`,
    ]);
    assert.match(run.stdout, /it cannot be loaded/);
    assert.equal(run.status, 1);
  } finally {
    scratch.remove();
  }
});
