// `@trellis-run/client` as somebody has it who installed it: compiled, below a node_modules.

import { mkdir, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { makeClientPackage } from '../../scripts/client-package.ts';

const root = join(import.meta.dirname, '../..');

/**
 * A `node_modules` in `directory` with `@trellis-run/client` and the clone's own copies of `names`. What imports them runs from
 * there without a network.
 */
export async function installInto(directory: string, names: readonly string[]): Promise<void> {
  const modules = join(directory, 'node_modules');
  await mkdir(modules, { recursive: true });
  await makeClientPackage(join(modules, '@trellis-run/client'));
  for (const name of names) {
    const link = join(modules, name);
    await mkdir(dirname(link), { recursive: true });
    await symlink(join(root, 'node_modules', name), link);
  }
}
