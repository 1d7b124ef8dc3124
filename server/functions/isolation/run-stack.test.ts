import assert from 'node:assert/strict';
import { test } from 'node:test';
import { denseSourceMap, withSourceMap } from '../../../test/functions/hostile/load.ts';
import { locateOnThread } from './code-queue.ts';
import { mapped } from './run.ts';

const stack = 'Error: x\n    at f (function.js:1:38)\n    at g (function.js:1:40)';
const map = (mappings: string) => JSON.stringify({ version: 3, sources: ['a.ts'], names: [], mappings });
const stackOf = async (id: string, code: string, given = stack) =>
  (await mapped({ name: 'Error', message: 'x', stack: given }, { id, code })).stack!;

test('a map is sent to the thread once for each bundle, and again after other maps have replaced it', async () => {
  let sent = 0;
  const mapOf = (text: string) => () => {
    sent += 1;
    return Buffer.from(text).toString('base64');
  };
  const locate = (bundle: string, text = map('AAAA')) =>
    locateOnThread(bundle, { places: [{ row: 0, column: 0 }], mapOf: mapOf(text) });
  for (let n = 0; n < 3; n++) assert.deepEqual(await locate('once'), ['a.ts:1:1']);
  assert.equal(sent, 1);
  // Each map takes half the thread's capacity.
  for (const bundle of ['large-1', 'large-2', 'large-3']) await locate(bundle, denseSourceMap(600_000));
  assert.deepEqual(await locate('once'), ['a.ts:1:1']);
  assert.equal(sent, 5);
});

test('a map that is too large, broken, or none leaves the stack as it is in the bundle', async () => {
  const maps = {
    large: denseSourceMap(2_000_000),
    values: `{"version":3,"sources":[${'[],'.repeat(300_000)}1],"mappings":"AAAA"}`,
    deep: '['.repeat(1_000_000),
    broken: '{"version":3',
    none: '1',
    wrong: '{"version":3,"sources":1,"mappings":{"a":1}}',
  };
  for (const [name, text] of Object.entries(maps)) {
    assert.equal(await stackOf(name, withSourceMap('', text)), stack, name);
    assert.equal(await stackOf(name, withSourceMap('', text)), stack, name);
  }
  assert.match(
    await stackOf('good', withSourceMap('', map('AAAA'))),
    /at f \(a\.ts:1:1\)\n {4}at g \(a\.ts:1:1\)/,
  );
});

test('the name of a source is put in as it is, and cut where it is long', async () => {
  const named = (source: string) =>
    JSON.stringify({ version: 3, sources: [source], names: [], mappings: 'AAAA' });
  assert.match(await stackOf('dollars', withSourceMap('', named("$&$'$`.ts"))), /at f \(\$&\$'\$`\.ts:1:1\)/);
  assert.ok((await stackOf('long', withSourceMap('', named('x'.repeat(1e6))))).length < 3_000);
});

test('a stack is cut to a hundred lines of a thousand characters', async () => {
  const lines = (
    await stackOf('lines', '', `${'y'.repeat(2_000)}\n${'  at z (function.js:1:1)\n'.repeat(500)}`)
  ).split('\n');
  assert.deepEqual([lines.length, lines[0]!.length], [100, 1_000]);
});
