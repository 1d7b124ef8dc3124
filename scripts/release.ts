/**
 * Makes a release: `npm run release -- [--dry-run] [DIRECTORY]`, default `dist.release`; its contents are replaced. It makes
 * both packages, the archive of the chart, the list of components (SBOM), the release notes and the checksums, without network.
 * It then publishes all of them and the image by the commands that `--dry-run` only prints.
 */
import { execFile, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, join, relative, resolve } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { parse } from 'yaml';
import { makeClientPackage } from './client-package.ts';
import { makePackage } from './package.ts';
import { cloneManifest } from './package-manifest.ts';

const root = join(import.meta.dirname, '..');
const run = promisify(execFile);
const { version } = cloneManifest;
/** The name under which compose.yaml and the chart have the image. */
const image = 'ghcr.io/trellis-run/trellis';
const charts = 'oci://ghcr.io/trellis-run/charts';
const checksums = 'SHA256SUMS';
const notes = 'notes.md';

/** Makes the files of the release, and returns their paths. */
async function makeFiles(directory: string): Promise<string[]> {
  await rm(directory, { recursive: true, force: true });
  await mkdir(directory, { recursive: true });
  const made = (name: string) => join(directory, name);
  await packPackage(makePackage, directory);
  await packPackage(makeClientPackage, directory);
  await run('tar', [
    '-czf',
    made(`trellis-chart-${version}.tgz`),
    '-C',
    join(root, 'deploy/helm'),
    'trellis',
  ]);
  const { stdout } = await run('npm', ['run', '--silent', 'sbom'], {
    cwd: root,
    maxBuffer: 64 * 1024 * 1024,
  });
  await writeFile(made('sbom.cdx.json'), stdout);
  const files = (await readdir(directory)).sort();
  const lines = files.map(async (file) => {
    const digest = createHash('sha256').update(await readFile(made(file)));
    return `${digest.digest('hex')}  ${file}\n`;
  });
  await writeFile(made(checksums), (await Promise.all(lines)).join(''));
  await writeFile(made(notes), notesOf(await readFile(join(root, 'CHANGELOG.md'), 'utf8')));
  return [...files, checksums, notes].map(made);
}

async function packPackage(make: (to: string) => Promise<void>, directory: string): Promise<void> {
  const contents = join(directory, 'package');
  await make(contents);
  await run('npm', ['pack', '--silent', '--pack-destination', directory, contents], { cwd: root });
  await rm(contents, { recursive: true });
}

/** The section of the version, or of what is not released yet. */
function notesOf(changelog: string): string {
  const sections = changelog.split(/^## /m).slice(1);
  const found =
    sections.find((section) => section.startsWith(`[${version}]`)) ??
    sections.find((section) => section.startsWith('[Unreleased]'));
  return `${found?.slice(found.indexOf('\n')).trim()}\n`;
}

/** Why this state is not a release: undefined if all places name the version that is tagged. */
async function versionFault(): Promise<string | undefined> {
  const chart = parse(await readFile(join(root, 'deploy/helm/trellis/Chart.yaml'), 'utf8')) as object;
  if (!(await readFile(join(root, 'CHANGELOG.md'), 'utf8')).includes(`\n## [${version}] - `))
    return `CHANGELOG.md has no section [${version}]`;
  if (!Object.entries(chart).every(([name, text]) => !/^(appV|v)ersion$/.test(name) || text === version))
    return `the chart has another version than ${version}`;
  const { stdout: tags } = await run('git', ['tag', '--points-at', 'HEAD'], { cwd: root });
  return tags.split('\n').includes(`v${version}`) ? undefined : `this commit has no tag v${version}`;
}

/**
 * What publishes the files, in order: cosign, npm, docker, helm and gh with the rights of the workflow. The release comes last,
 * so that whatever it names is there.
 */
function publishCommands(files: readonly string[]): string[][] {
  const find = (name: string) => files.find((file) => basename(file).startsWith(name)) ?? '';
  const signature = `${find(checksums)}.sigstore.json`;
  const platforms = ['--platform=linux/amd64,linux/arm64', '--provenance=mode=max', '--sbom=true'];
  const revision = process.env.GITHUB_SHA ?? '';
  return [
    ['cosign', 'sign-blob', '--yes', '--bundle', signature, find(checksums)],
    ['npm', 'publish', find('trellis-run-trellis-')],
    ['npm', 'publish', find('trellis-run-client-')],
    [
      'docker',
      'buildx',
      'build',
      '--push',
      ...platforms,
      '--tag',
      `${image}:${version}`,
      '--build-arg',
      `VERSION=${version}`,
      '--build-arg',
      `REVISION=${revision}`,
      root,
    ],
    ['helm', 'push', find('trellis-chart-'), charts],
    [
      'gh',
      'release',
      'create',
      `v${version}`,
      '--verify-tag',
      '--title',
      `Trellis ${version}`,
      '--notes-file',
      find(notes),
      ...files.filter((file) => file !== find(notes)),
      signature,
    ],
  ];
}

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { 'dry-run': { type: 'boolean', default: false } },
});
const fault = await versionFault();
if (fault !== undefined && !options['dry-run']) {
  console.error(`Not a release: ${fault}`);
  process.exit(1);
}
const files = await makeFiles(resolve(positionals[0] ?? join(root, 'dist.release')));
for (const file of files) console.log(relative(root, file));
for (const [program, ...args] of publishCommands(files)) {
  console.log(`$ ${program} ${args.join(' ')}`);
  if (options['dry-run']) continue;
  const { status } = spawnSync(program!, args, { cwd: root, stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}
if (fault !== undefined) console.log(`Not a release yet: ${fault}`);
