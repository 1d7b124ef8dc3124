import assert from 'node:assert/strict';
import { test } from 'node:test';
import { esbuildOf } from '../test/support/processes.ts';
import { build } from './child-environment.ts';

const bundleOf = async (text: string) =>
  (await build({ stdin: { contents: `exports.of = ${JSON.stringify(text)}` }, write: false })).outputFiles[0]!
    .text;

test('esbuild restarts after it was killed, before a build and during twenty', async (t) => {
  if (process.platform !== 'linux') return t.skip('reads /proc');
  await bundleOf('first');
  const first = await esbuildOf(process.pid);
  process.kill(first!, 'SIGKILL');
  assert.match(await bundleOf('after'), /"after"/);
  const second = await esbuildOf(process.pid);
  assert.notEqual(second, first);

  const builds = Array.from({ length: 20 }, (_, n) => bundleOf(`of ${n}`));
  process.kill(second!, 'SIGKILL');
  for (const [n, text] of (await Promise.all(builds)).entries()) assert.ok(text.includes(`"of ${n}"`));
  assert.notEqual(await esbuildOf(process.pid), second);
});

test('a build that fails because of its input is not repeated', async () => {
  await assert.rejects(
    build({ stdin: { contents: 'const = 1' }, logLevel: 'silent' }),
    /Expected identifier/,
  );
});
