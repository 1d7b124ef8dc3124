// What the commands of an example's README have for npm in a test without a network: `install` links the packages that it
// names out of the clone, at the versions that it names; `start` is npm's; the client was made beforehand.

import { spawn } from 'node:child_process';
import { mkdir, readFile, realpath, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';

type Manifest = {
  version: string;
  scripts: Record<string, string>;
  dependencies: Record<string, string>;
};

const manifest = async (directory: string) =>
  JSON.parse(await readFile(join(directory, 'package.json'), 'utf8')) as Manifest;

async function install(): Promise<void> {
  const clone = join(process.cwd(), '../..');
  for (const [name, wanted] of Object.entries((await manifest('.')).dependencies)) {
    const from = wanted.startsWith('file:')
      ? wanted.slice('file:'.length)
      : join(clone, 'node_modules', name);
    const { version } = await manifest(from);
    if (!wanted.startsWith('file:') && wanted !== version) throw new Error(`${name} is ${version} here`);
    const link = join('node_modules', name);
    await mkdir(dirname(link), { recursive: true });
    await symlink(await realpath(from), link);
  }
}

const command = process.argv.slice(2).join(' ');
if (command === 'install') await install();
else if (command === 'start') {
  const { scripts } = await manifest('.');
  const child = spawn('sh', ['-c', `exec ${scripts.start}`], { stdio: 'inherit' });
  // Ctrl-C reaches both; this one waits for the other's end.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => {});
  child.on('exit', (code) => process.exit(code ?? 1));
} else if (command !== 'run pack:client') throw new Error(`npm ${command} is not known here`);
