/**
 * Builds the package of the service: `node scripts/package.ts [DIRECTORY]`, default `dist`; its contents are
 * replaced. It has the folders of a clone, compiled, since Node strips no types below node_modules;
 * shipped functions stay TypeScript and are bundled at start, as in a clone. It contains its dependencies in the versions that
 * were tested. `npm pack` of the directory creates the file that npm installs; see docs/operations/deployment.md.
 */
import { execFile } from 'node:child_process';
import { globSync } from 'node:fs';
import { chmod, cp, mkdir, writeFile } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import { promisify } from 'node:util';
import { isWebBuilt, webDirectory } from '../server/web-build.ts';
import { clearPackage, cloneManifest, packageManifest, runtimeFolders } from './package-manifest.ts';

const root = join(import.meta.dirname, '..');
const run = promisify(execFile);

/** Files that are copied unchanged, by folder. */
const copied: Record<string, string[]> = {
  '.': ['README.md', 'CHANGELOG.md', 'SECURITY.md', 'LICENSE', 'docs/**/*.{md,json,yaml}'],
  // For operators of the package; containers are built from a clone.
  deploy: ['trellis.service', 'systemd.env.example', 'helm/**/*.{yaml,json,tpl,txt}'],
  migrations: ['*.sql'],
  providers: ['*.yaml', 'ATTRIBUTION.md', 'parsed.jsonl', 'logos/*'],
  shipped: ['**/*.ts'],
  // Files that the code reads at run time.
  server: ['**/*.{json,html,css,svg}'],
  sandbox: ['**/*.{json,html,css,svg}'],
  sdk: ['**/*.{json,html,css,svg}'],
};

/**
 * Replaces the contents of `directory` with the package. Throws a compiler's output. Also throws if the directory holds
 * anything other than an earlier package, and leaves it unchanged.
 */
export async function makePackage(directory: string): Promise<void> {
  await clearPackage(directory, cloneManifest.name);
  await Promise.all([
    compileCode(directory),
    buildWeb(join(directory, 'web/dist')),
    copyModules(runtimeFolders().bundled, directory),
  ]);
  for (const [folder, patterns] of Object.entries(copied)) {
    const from = join(root, folder);
    for (const file of globSync(patterns, { cwd: from, exclude: ['**/*.test.ts'] }))
      await copy(join(from, file), join(directory, folder, file));
  }
  const launcher = join(directory, 'bin/trellis');
  await copy(join(root, 'deploy/launcher.sh'), launcher);
  await chmod(launcher, 0o755);
  await copy(join(root, 'deploy/healthy.js'), join(directory, 'bin/healthy.js'));
  await writeFile(join(directory, 'package.json'), `${JSON.stringify(packageManifest(), null, 2)}\n`);
}

async function compileCode(directory: string): Promise<void> {
  const compiler = join(root, 'node_modules/typescript/bin/tsc');
  const compile = (...args: string[]) =>
    run(process.execPath, [compiler, ...args, '--outDir', directory], { cwd: root }).catch(
      (error: { stdout?: string; message: string }) => {
        throw new Error(error.stdout || error.message, { cause: error });
      },
    );
  await compile('-p', 'tsconfig.build.json');
  // Modules that authors of functions import also have types.
  const types = ['--declaration', '--emitDeclarationOnly'];
  await compile('-p', 'tsconfig.types.json', ...types);
}

/** The build of the dashboard in the clone, if it is newer than its sources. */
async function buildWeb(directory: string): Promise<void> {
  if (isWebBuilt()) {
    await mkdir(dirname(directory), { recursive: true });
    await cp(webDirectory, directory, { recursive: true });
    return;
  }
  const vite = join(root, 'node_modules/vite/bin/vite.js');
  const args = ['build', join(root, 'web'), '--outDir', directory, '--emptyOutDir', '--logLevel', 'error'];
  await run(process.execPath, [vite, ...args], { cwd: root });
}

/** Files of dependencies that the service does not read: types, sources, source maps, pages; not the licences. */
const needless = /(?<!licen[cs]e|notice)\.(md|markdown|map|[cm]?tsx?)$/i;
const needlessFolders = [
  'test',
  'tests',
  'docs',
  'examples',
  'benchmark',
  'benchmarks',
  '.github',
  'node_modules',
];

/**
 * Copies folders below the clone's `node_modules`, each without packages in it, to `directory/node_modules`. The program of
 * esbuild stays here: an install script replaces it by that of the platform, and esbuild's library does not start it.
 */
export async function copyModules(folders: readonly string[], directory: string): Promise<void> {
  const modules = join(root, 'node_modules');
  for (const folder of folders) {
    const isNeeded = (path: string) => {
      const inside = relative(join(modules, folder), path);
      if (needlessFolders.includes(inside) || `${folder}/${inside}` === 'esbuild/bin') return false;
      // `trellis deploy` checks functions against the types of zod.
      return folder === 'zod' ? !inside.startsWith('src') : !needless.test(inside);
    };
    await cp(join(modules, folder), join(directory, 'node_modules', folder), {
      recursive: true,
      verbatimSymlinks: true,
      filter: isNeeded,
    });
  }
}

async function copy(from: string, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true });
  await cp(from, to);
}

if (import.meta.main) {
  const directory = resolve(process.argv[2] ?? join(root, 'dist'));
  await makePackage(directory);
  console.log(directory);
}
