import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

const run = promisify(execFile);
const script = join(import.meta.dirname, 'pin-node.mjs');

test('a library that the pinned Node lacks is named with the package to install', async (t) => {
  await run(process.execPath, [script]);
  if (process.platform !== 'linux') return t.skip('the loader of Linux');
  const folder = await mkdtemp(join(tmpdir(), 'trellis-libraries-'));
  t.after(() => rm(folder, { recursive: true }));
  // The loader finds an unusable file first. The variable is set for the pinned Node alone.
  await writeFile(join(folder, 'libatomic.so.1'), '');
  const hide = `data:text/javascript,process.env.LD_LIBRARY_PATH=${JSON.stringify(folder)}`;
  await assert.rejects(run(process.execPath, ['--import', hide, script]), (error: { stderr: string }) => {
    assert.match(error.stderr, /^Node 26 needs the library libatomic\.so\.1\. .*apt-get install libatomic1 /);
    return true;
  });
});

test('npm runs no install script of a package, which would fail without that library before its name is printed', async () => {
  const { stdout } = await run('npm', ['config', 'get', 'ignore-scripts'], {
    cwd: join(import.meta.dirname, '..'),
  });
  assert.equal(stdout.trim(), 'true');
});
