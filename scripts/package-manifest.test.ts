import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { packageManifest } from './package-manifest.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..');

test('an installation ends with the missing library of Node, by a signal, since npx prints it only then', async (t) => {
  if (process.platform !== 'linux') return t.skip('the loader of Linux');
  const folder = await mkdtemp(join(tmpdir(), 'trellis-package-'));
  t.after(() => rm(folder, { recursive: true }));
  const node = join(folder, `node_modules/node-linux-${process.arch}/bin/node`);
  for (const path of [node, join(folder, 'bin/trellis'), join(folder, 'server/cli/main.js')])
    await mkdir(dirname(path), { recursive: true });
  await copyFile(join(root, 'deploy/launcher.sh'), join(folder, 'bin/trellis'));
  await symlink(process.execPath, node);
  await writeFile(join(folder, 'server/cli/main.js'), "console.log('started', process.argv[2]);");
  const { scripts } = packageManifest() as { scripts: { preinstall: string } };
  const preinstall = (env: NodeJS.ProcessEnv = {}) =>
    run('sh', ['-c', scripts.preinstall], { cwd: folder, env: { ...process.env, ...env } });

  assert.equal((await preinstall()).stdout, 'started --version\n');

  // The loader finds an unusable file first.
  await writeFile(join(folder, 'libatomic.so.1'), '');
  await assert.rejects(
    preinstall({ LD_LIBRARY_PATH: folder }),
    ({ signal, stderr }: { signal: string; stderr: string }) => {
      assert.equal(signal, 'SIGTERM');
      assert.match(stderr, /libatomic\.so\.1.*\n.*apt-get install libatomic1/);
      return true;
    },
  );

  // Without its optional dependencies the package can still be read for its types.
  await rm(join(folder, 'node_modules'), { recursive: true });
  const tools = join(folder, 'tools');
  await mkdir(tools);
  for (const name of ['sh', 'dirname', 'readlink', 'uname'])
    await symlink((await run('which', [name])).stdout.trim(), join(tools, name));
  const { stderr } = await preinstall({ PATH: tools });
  assert.match(stderr, /Node 26 is missing/);
});
