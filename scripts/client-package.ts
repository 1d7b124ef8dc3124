/**
 * Builds the package `@trellis-run/client` from `sdk/client`, `sdk/connect` and `sdk/react`: `node scripts/client-package.ts
 * [DIRECTORY]`, default `dist.client`; its contents are replaced. `npm pack` of the directory creates the file
 * that npm installs. The package has no dependencies and is JavaScript for platforms with web standards.
 */
import { execFile } from 'node:child_process';
import { cp, readdir, readFile, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { clearPackage, cloneManifest, registryFields } from './package-manifest.ts';

const root = join(import.meta.dirname, '..');
const run = promisify(execFile);

export const clientName = '@trellis-run/client';

/** The entry points of the package. */
const entries = { '.': 'client', './connect': 'connect', './react': 'react' };

/**
 * Replaces the contents of `directory` with the package. Throws the compiler's output. Also throws if the directory holds
 * anything other than an earlier package, and leaves it unchanged.
 */
export async function makeClientPackage(directory: string): Promise<void> {
  await clearPackage(directory, clientName);
  await compile(directory);
  await writeFile(join(directory, 'package.json'), `${JSON.stringify(manifest(), null, 2)}\n`);
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

function manifest(): object {
  const { version, license } = cloneManifest;
  return {
    ...{ name: clientName, version, license, ...registryFields(), type: 'module', sideEffects: false },
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
    files: Object.values(entries),
    peerDependencies: { react: '>=18' },
    peerDependenciesMeta: { react: { optional: true } },
  };
}

if (import.meta.main) {
  const directory = resolve(process.argv[2] ?? join(root, 'dist.client'));
  await makeClientPackage(directory);
  console.log(directory);
}
