/**
 * Builds the contents of the container image: `node scripts/image.ts DIRECTORY` fills DIRECTORY/opt/trellis with
 * the package, its dependencies in the versions that were tested, and Node. The Dockerfile copies the directory; the same tree
 * runs without containers, see docs/operations/deployment.md.
 */
import { execFile } from 'node:child_process';
import { globSync } from 'node:fs';
import { rm, symlink } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { makePackage } from './package.ts';

/** Files of dependencies that the service does not need: sources of native code, types, maps, readmes of Node. */
const needless = [
  'node-*/{include,share,*.md}',
  '@esbuild/*/README.md',
  '**/*.{d.ts,d.mts,d.cts,map}',
  '.bin',
  '.package-lock.json',
];

const directory = process.argv[2];
if (directory === undefined) {
  console.error('Usage: node scripts/image.ts DIRECTORY');
  process.exitCode = 2;
} else {
  const home = resolve(directory, 'opt/trellis');
  await makePackage(home);
  // Packages run no scripts, as in an installation of the service by npm.
  await promisify(execFile)(
    'npm',
    ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline'],
    { cwd: home },
  );
  const modules = join(home, 'node_modules');
  // The types of zod and of the SDK are for `trellis deploy`, which checks those of functions.
  const exclude = ['zod/**'];
  for (const path of globSync(needless, { cwd: modules, exclude }))
    await rm(join(modules, path), { recursive: true, force: true });
  const node = globSync('node-*/bin/node', { cwd: modules })[0];
  if (node === undefined) throw new Error('npm brought no Node for this platform');
  await symlink(`../node_modules/${node}`, join(home, 'bin/node'));
  console.log(home);
}
