// The previous release, which the upgrade tests start beside this version.

import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');

/** A commit or a tag. Set it to the new tag after each release. UPGRADE_FROM names another one. */
const previousRelease = 'e69b9e2de44ba241512e242a95e941233419cd60';
export const upgradeFrom = process.env.UPGRADE_FROM ?? previousRelease;

/** What npm reports if it does not reach its registry. */
const unreachable = /\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ENOTCACHED)\b/;

/** `main` is the program of an installed release; `missing` is why it cannot be installed here. */
export type Installed = { main: string; missing?: never } | { missing: string };

/**
 * Installs the files of the release and the packages of its own lockfile into a new directory. Needs the commit in this
 * clone, and the registry of npm for packages that npm has not cached.
 */
export function installRelease(directory: string, release = upgradeFrom): Installed {
  if (spawnSync('git', ['cat-file', '-e', `${release}^{commit}`], { cwd: root }).status !== 0)
    return { missing: `this clone has no commit ${release}; git fetch --unshallow gets it` };
  mkdirSync(directory);
  execFileSync('sh', ['-c', 'git archive "$1" | tar -x -C "$2"', 'sh', release, directory], { cwd: root });
  const npm = spawnSync(
    'npm',
    ['ci', '--omit=dev', '--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund'],
    { cwd: directory, encoding: 'utf8' },
  );
  if (npm.status === 0) return { main: join(directory, 'server/cli/main.ts') };
  if (unreachable.test(npm.stderr)) return { missing: 'npm does not reach the packages of that release' };
  throw new Error(`npm ci of ${release} failed: ${npm.error?.message ?? npm.stderr}`);
}
