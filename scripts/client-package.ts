/**
 * Builds the package `trellis-client` from `sdk/client`, `sdk/connect` and `sdk/react`: `node scripts/client-package.ts
 * [DIRECTORY]`, default `dist.client`; its contents are replaced. `npm pack` of the directory creates the file
 * that npm installs. The package has no dependencies and is JavaScript for platforms with web standards.
 */
import { execFile } from 'node:child_process';
import { cp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';

const root = join(import.meta.dirname, '..');
const run = promisify(execFile);

/** The entry points of the package. */
const entries = { '.': 'client', './connect': 'connect', './react': 'react' };

/**
 * Replaces the contents of `directory` with the package. Throws the compiler's output. Also throws if the directory holds
 * anything other than an earlier package, and leaves it unchanged.
 */
export async function makeClientPackage(directory: string): Promise<void> {
  const found = await readFile(join(directory, 'package.json'), 'utf8').catch(() => '{}');
  const isEmpty = (await readdir(directory).catch((): string[] => [])).length === 0;
  if (!isEmpty && (JSON.parse(found) as { name?: string }).name !== 'trellis-client')
    throw new Error(`${directory} is not empty and is not a package of the client`);
  await rm(directory, { recursive: true, force: true });
  await compile(directory);
  await writeFile(join(directory, 'package.json'), `${JSON.stringify(await manifest(), null, 2)}\n`);
  await cp(join(root, 'LICENSE'), join(directory, 'LICENSE'));
  await cp(join(root, 'sdk/client/README.md'), join(directory, 'README.md'));
}

async function compile(directory: string): Promise<void> {
  const compiler = join(root, 'node_modules/typescript/bin/tsc');
  const args = [compiler, '-p', 'tsconfig.client.json', '--outDir', directory];
  await run(process.execPath, args, { cwd: root }).catch((error: { stdout?: string; message: string }) => {
    throw new Error(error.stdout || error.message, { cause: error });
  });
  for (const file of await readdir(directory, { recursive: true })) {
    if (!file.endsWith('.d.ts')) continue;
    // The compiler rewrites .ts to .js in code only, and older compilers find no declarations for a .ts import.
    const text = await readFile(join(directory, file), 'utf8');
    await writeFile(join(directory, file), text.replace(/(from '\.{1,2}\/[^']+)\.ts'/g, "$1.js'"));
  }
}

async function manifest(): Promise<object> {
  const clone = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as Record<string, string>;
  const { version, license } = clone;
  return {
    ...{ name: 'trellis-client', version, license, type: 'module', sideEffects: false },
    description:
      'Client of Trellis, the self-hosted integration service: connections, proxy, synced records.',
    engines: { node: '>=20' },
    // For compilers with moduleResolution `node`, which ignore `exports`.
    ...{ main: './client/index.js', types: './client/index.d.ts' },
    typesVersions: {
      '*': { connect: ['./connect/index.d.ts'], react: ['./react/index.d.ts'] },
    },
    exports: {
      ...Object.fromEntries(
        Object.entries(entries).map(([name, folder]) => [
          name,
          { types: `./${folder}/index.d.ts`, default: `./${folder}/index.js` },
        ]),
      ),
      './package.json': './package.json',
    },
    peerDependencies: { react: '>=18' },
    peerDependenciesMeta: { react: { optional: true } },
  };
}

if (import.meta.main) {
  const directory = resolve(process.argv[2] ?? join(root, 'dist.client'));
  await makeClientPackage(directory);
  console.log(directory);
}
