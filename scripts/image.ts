/**
 * Builds the contents of the container image: `node scripts/image.ts DIRECTORY` fills DIRECTORY/opt/trellis with
 * the package and what npm installs besides on this platform, all but Node: the Dockerfile adds it from its official image.
 */
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { copyModules, makePackage } from './package.ts';
import { runtimeFolders } from './package-manifest.ts';

const directory = process.argv[2];
if (directory === undefined) {
  console.error('Usage: node scripts/image.ts DIRECTORY');
  process.exitCode = 2;
} else {
  const home = resolve(directory, 'opt/trellis');
  await makePackage(home);
  const modules = join(import.meta.dirname, '../node_modules');
  const isPart = (folder: string) => !folder.startsWith('node-') && existsSync(join(modules, folder));
  await copyModules(runtimeFolders().added.filter(isPart), home);
  console.log(home);
}
