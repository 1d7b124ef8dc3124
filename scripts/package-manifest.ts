/** What the packages of the service and of the client say of themselves, by the package.json and package-lock.json of the clone. */
import { readFileSync } from 'node:fs';
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');

type Manifest = Readonly<Record<string, unknown>> & {
  name: string;
  version: string;
  dependencies: Record<string, string>;
};

/** `devOptional`: what only development needs, and a peer dependency that no installation of the service needs. */
type Locked = { dev?: boolean; devOptional?: boolean; os?: string[] };

const read = (name: string) => JSON.parse(readFileSync(join(root, name), 'utf8')) as unknown;
export const cloneManifest = read('package.json') as Manifest;

/** The service needs the binary of esbuild for its platform, so npm installs esbuild and its binary. */
const installed = ['esbuild'];

/**
 * The folders of the dependencies below `node_modules`: those that the package contains, and those that npm installs on this
 * platform besides.
 */
export function runtimeFolders(): { bundled: string[]; added: string[] } {
  const { packages } = read('package-lock.json') as { packages: Record<string, Locked> };
  const folders = Object.entries(packages)
    .filter(([path, { dev, devOptional }]) => path !== '' && dev !== true && devOptional !== true)
    .map(([path, { os }]) => ({ name: path.replace('node_modules/', ''), isOfPlatform: os !== undefined }));
  const isAdded = ({ name, isOfPlatform }: (typeof folders)[number]) =>
    isOfPlatform || installed.includes(name);
  return {
    bundled: folders.filter((folder) => !isAdded(folder)).map(({ name }) => name),
    added: folders.filter(isAdded).map(({ name }) => name),
  };
}

/**
 * Run before the scripts of the dependencies, which use the Node of the package: they would fail without a message if it does
 * not start. npx prints what a script wrote only if a signal ended the script.
 */
const preinstall = 'sh bin/trellis --version || [ $? != 127 ] || kill $$';

/**
 * The package.json of the service, without development dependencies. npm reads `engines` for the Node that runs npm: the
 * service brings its own.
 */
export function packageManifest(): object {
  const { name, version, description, license, dependencies, optionalDependencies } = cloneManifest;
  return {
    name,
    version,
    description,
    license,
    ...registryFields(),
    type: 'module',
    engines: { node: '>=18' },
    os: ['linux', 'darwin'],
    cpu: ['x64', 'arm64'],
    bin: { trellis: 'bin/trellis' },
    scripts: { preinstall },
    types: './sdk/functions/index.d.ts',
    exports: {
      '.': { types: './sdk/functions/index.d.ts', default: './sdk/functions/index.js' },
      './package.json': './package.json',
    },
    files: [
      'bin',
      'deploy',
      'docs',
      'migrations',
      'providers',
      'sandbox',
      'sdk',
      'server',
      'shipped',
      'tools',
      'web',
      'CHANGELOG.md',
      'SECURITY.md',
    ],
    dependencies,
    bundleDependencies: Object.keys(dependencies).filter((name) => !installed.includes(name)),
    optionalDependencies,
  };
}

/**
 * What both packages tell npm's registry. It accepts a signed provenance only if the package names the repository whose
 * workflow built it; GitHub sets that address in its workflows.
 */
export function registryFields(
  {
    GITHUB_SERVER_URL: server = 'https://github.com',
    GITHUB_REPOSITORY: repository,
  }: NodeJS.ProcessEnv = process.env,
): object {
  const page = `${server}/${repository}`;
  return {
    ...(repository !== undefined && {
      repository: { type: 'git', url: `git+${page}.git` },
      homepage: `${page}#readme`,
      bugs: `${page}/issues`,
    }),
    publishConfig: { access: 'public', provenance: true },
  };
}

/** Removes an earlier package of this name. Throws if the directory holds anything else, and leaves it unchanged. */
export async function clearPackage(directory: string, name: string): Promise<void> {
  const found = await readdir(directory).catch((): string[] => []);
  const manifest = await readFile(join(directory, 'package.json'), 'utf8').catch(() => '{}');
  if (found.length > 0 && (JSON.parse(manifest) as { name?: string }).name !== name)
    throw new Error(`${directory} is not empty and is not a package of ${name}`);
  await rm(directory, { recursive: true, force: true });
}
