/**
 * Builds the package `@trellis-run/client` from `sdk/client`, `sdk/connect`, `sdk/react` and `sdk/element`: `node
 * scripts/client-package.ts [DIRECTORY]`, default `dist.client`; its contents are replaced. `npm pack` of the directory
 * creates the file that npm installs. The package has no dependencies and is JavaScript for platforms with web standards.
 */
import { execFile } from 'node:child_process';
import { cp, readdir, readFile, writeFile } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { clearPackage, cloneManifest, registryFields } from './package-manifest.ts';

const root = join(import.meta.dirname, '..');
const run = promisify(execFile);

export const clientName = '@trellis-run/client';

/** The entry points of the package. */
const entries = { '.': 'client', './connect': 'connect', './react': 'react', './element': 'element' };

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
    name: clientName,
    version,
    license,
    ...registryFields(),
    type: 'module',
    // It defines the custom element.
    sideEffects: ['./element/index.js'],
    description:
      'Client of Trellis, the self-hosted integration service: connections, proxy, synced records.',
    engines: { node: '>=20' },
    // For compilers with moduleResolution `node`, which ignore `exports`.
    main: './client/index.js',
    types: './client/index.d.ts',
    typesVersions: {
      '*': Object.fromEntries(
        Object.values(entries)
          .filter((folder) => folder !== 'client')
          .map((folder) => [folder, [`./${folder}/index.d.ts`]]),
      ),
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

/**
 * The npm tarball of the package in `directory`: its files below `package/` in the format ustar (POSIX.1-1988), compressed.
 * Equal packages have equal bytes. `npm pack` needs a PATH, which a build within the service does not have.
 */
export async function packClient(directory: string): Promise<Buffer> {
  const parts: Buffer[] = [];
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name));
  for (const file of files.sort()) {
    const content = await readFile(file);
    const padding = Buffer.alloc((512 - (content.length % 512)) % 512);
    parts.push(tarHeader(`package/${relative(directory, file)}`, content.length), content, padding);
  }
  return gzipSync(Buffer.concat([...parts, Buffer.alloc(1024)]), { level: 9 });
}

function tarHeader(name: string, size: number): Buffer {
  const header = Buffer.alloc(512);
  if (header.write(name, 0, 'latin1') > 99) throw new Error(`${name} is too long for a tar header`);
  const octal = (value: number, digits: number) => `${value.toString(8).padStart(digits, '0')}\0`;
  header.write(octal(0o644, 7) + octal(0, 7) + octal(0, 7) + octal(size, 11), 100, 'latin1');
  // npm's own date for files, which is the same in each package.
  header.write(`${octal(Date.UTC(1985, 9, 26, 8, 15) / 1000, 11)}${' '.repeat(8)}0`, 136, 'latin1');
  header.write('ustar\x0000', 257, 'latin1');
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return header;
}

if (import.meta.main) {
  const directory = resolve(process.argv[2] ?? join(root, 'dist.client'));
  await makeClientPackage(directory);
  console.log(directory);
}
