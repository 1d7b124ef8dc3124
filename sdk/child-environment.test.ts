import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { esbuildOf } from '../test/support/processes.ts';
import { build } from './child-environment.ts';

const bundleOf = async (text: string) =>
  (await build({ stdin: { contents: `exports.of = ${JSON.stringify(text)}` }, write: false })).outputFiles[0]!
    .text;

/** The process of esbuild after the former one was killed, which the system lists until its parent has read its end. */
async function successorOf(former: number): Promise<number> {
  for (;;) {
    const pid = await esbuildOf(process.pid);
    if (pid !== undefined && pid !== former) return pid;
    await sleep(10);
  }
}

test('esbuild restarts after it was killed, before a build and during twenty', async (t) => {
  if (process.platform !== 'linux') return t.skip('reads /proc');
  await bundleOf('first');
  const first = await esbuildOf(process.pid);
  process.kill(first!, 'SIGKILL');
  assert.match(await bundleOf('after'), /"after"/);
  const second = await successorOf(first!);

  const builds = Array.from({ length: 20 }, (_, n) => bundleOf(`of ${n}`));
  process.kill(second, 'SIGKILL');
  for (const [n, text] of (await Promise.all(builds)).entries()) assert.ok(text.includes(`"of ${n}"`));
  await successorOf(second);
});

test('a build that fails because of its input is not repeated', async () => {
  await assert.rejects(
    build({ stdin: { contents: 'const = 1' }, logLevel: 'silent' }),
    /Expected identifier/,
  );
});
