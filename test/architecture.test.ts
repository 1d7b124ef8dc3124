import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { test } from 'node:test';
import { errorCatalogue } from '../server/errors.ts';
import { eventTypes } from '../server/events/catalogue.ts';

/** A module may import itself and modules of lower layers, and no module of its own layer or a higher one. */
const layers: string[][] = [
  ['errors', 'version', 'brand', 'ttl-cache', 'work-thread', 'email-address', 'metrics', 'concurrency'],
  ['config'],
  ['tracing'],
  ['log'],
  ['outbound-addresses', 'outbound-connections'],
  ['http', 'db', 'outbound', 'vault'],
  ['activity', 'jobs', 'data-keys', 'nodes'],
  ['providers', 'environments'],
  ['users', 'auth-modes', 'events'],
  ['integrations', 'deliveries'],
  ['connections'],
  ['connect', 'proxy', 'records'],
  ['functions'],
  ['webhooks', 'setup'],
  [
    ...['main', 'app', 'cli', 'doctor', 'backup', 'moving', 'data-dir', 'whole-file', 'web-build'],
    ...['functions-folder', 'shipped-functions'],
  ],
];
const root = join(import.meta.dirname, '..');
const files = globSync('server/**/*.ts', { cwd: root });
const sources = files.filter((file) => !/\.(test|fixture)\.ts$/.test(file));
const read = (file: string) => readFileSync(join(root, file), 'utf8');
const moduleOf = (file: string) => file.split('/')[1]!.replace(/\.ts$/, '');
const layerOf = (module: string) => layers.findIndex((modules) => modules.includes(module));

test('modules import only modules of lower layers', () => {
  const wrong: string[] = [];
  for (const file of sources) {
    for (const [, target] of read(file).matchAll(/from '(\.{1,2}\/[^']+)'/g)) {
      const imported = relative(root, join(root, dirname(file), target!));
      const [from, to] = [moduleOf(file), moduleOf(imported)];
      if (!imported.startsWith('server/')) {
        if (imported === 'sdk/child-environment.ts') continue;
        if (layerOf(from) < layers.length - 1 || !/^(sandbox|sdk)\//.test(imported))
          wrong.push(`${file} → ${imported}`);
      } else if (from !== to && layerOf(to) >= layerOf(from) && layerOf(from) < layers.length - 1) {
        wrong.push(`${file} → ${imported}`);
      }
    }
  }
  assert.deepEqual(wrong, []);
});

test('the quota imports nothing of the proxy, which calls it', () => {
  const wrong = sources
    .filter((file) => file.startsWith('server/proxy/quota/'))
    .filter((file) => /from '\.\.\/[^.]/.test(read(file)));
  assert.deepEqual(wrong, []);
});

/** The layers within `functions/`, from the processes of customer code up to the modules that request runs. */
test('modules within functions import only lower ones', () => {
  const within = [['isolation'], ['context'], ['deploys'], ['runs'], ['syncs', 'actions']];
  const layerWithin = (module: string) => within.findIndex((modules) => modules.includes(module));
  const wrong: string[] = [];
  for (const file of sources) {
    const [, from] = /^server\/functions\/([a-z]+)\//.exec(file) ?? [];
    if (from === undefined) continue;
    for (const [, to] of read(file).matchAll(/from '\.\.\/([a-z]+)\//g)) {
      if (layerWithin(to!) >= layerWithin(from)) wrong.push(`${file} → ${to}`);
    }
  }
  assert.deepEqual(wrong, []);
});

test('every module has a layer, and neither sandbox nor SDK imports anything of the service', () => {
  assert.deepEqual(
    [...new Set(sources.map(moduleOf))].filter((module) => layerOf(module) < 0),
    [],
  );
  const wrong = globSync('{sandbox,sdk}/**/*.ts', { cwd: root }).filter((file) =>
    /from '[./]*\/server\//.test(read(file)),
  );
  assert.deepEqual(wrong, []);
});

test('examples import packages and files of their own, so that they can be copied from here', () => {
  const own = globSync('examples/*/**/*.{ts,mjs,js}', {
    ...{ cwd: root, exclude: (name: string) => name === 'node_modules' },
  });
  assert.ok(own.length > 0);
  const wrong = own.filter((file) => {
    const [, example] = file.split('/');
    return [...read(file).matchAll(/(?:from|import\() ?'(\.[^']*)'/g)].some(
      ([, target]) => !join(dirname(file), target!).startsWith(`examples/${example}/`),
    );
  });
  assert.deepEqual(wrong, []);
});

test('what examples take from npm is what the service has of it', () => {
  const { dependencies } = JSON.parse(read('package.json')) as { dependencies: Record<string, string> };
  for (const file of globSync('examples/*/package.json', { cwd: root })) {
    const wanted = (JSON.parse(read(file)) as { dependencies: Record<string, string> }).dependencies;
    for (const [name, version] of Object.entries(wanted))
      assert.equal(version, name === 'trellis-client' ? 'file:../../dist.client' : dependencies[name], file);
  }
});

test('only config.ts reads the environment', () => {
  const readers = sources.filter(
    (file) => /process\.env\b/.test(read(file)) && file !== 'server/config/config.ts',
  );
  assert.deepEqual(readers, []);
});

test('every child process gets its environment from childEnvironment', () => {
  const starters =
    /(?<![.\w])(?:spawn|spawnSync|execFile|execFileSync|exec|execSync|fork)\(|promisify\(execFile\)\(/g;
  const wrong: string[] = [];
  for (const file of globSync('{server,sdk,sandbox}/**/*.ts', { cwd: root })) {
    if (/\.(test|fixture)\.ts$/.test(file)) continue;
    const text = read(file);
    // esbuild starts a process of its own, with the environment of the service.
    if (/import (?!type )[^;]*from 'esbuild'|import\('esbuild'\)/.test(text)) wrong.push(`${file}: esbuild`);
    if (!text.includes('child_process')) continue;
    // No other name for what starts one.
    if (
      /child_process'\)|\* as \w+ from 'node:child_process'|import \{[^}]* as [^}]*\} from 'node:child_process'/.test(
        text,
      )
    )
      wrong.push(`${file}: child_process`);
    for (const { index } of text.matchAll(starters)) {
      const call = text.slice(index, text.indexOf(';\n', index));
      if (!/\benv: childEnvironment\(/.test(call)) wrong.push(`${file}: ${call.split('\n')[0]}`);
    }
  }
  assert.deepEqual(wrong, ['sdk/child-environment.ts: esbuild']);
});

test('only outbound.ts opens sockets to the world, by its own pool', () => {
  const socketApis = /from '(undici|node:https|node:tls)'|globalThis\.fetch|http\.request\(/;
  const callsFetch = (text: string) => /(?<![.\w])fetch\(/.test(text);
  const wrong = sources
    // A script of a page runs in the browser; a guarded fetch that is passed in has the type Fetch.
    .filter((file) => !file.endsWith('/page-scripts.ts'))
    .filter(
      (file) =>
        socketApis.test(read(file)) || (callsFetch(read(file)) && !/\bFetch\b|\bfetchFor\b/.test(read(file))),
    );
  assert.deepEqual(wrong, ['server/outbound-connections.ts', 'server/outbound.ts']);
});

test('every error code is documented, and no other', () => {
  const documented = [...read('docs/errors.md').matchAll(/^\| `([a-z_]+)` \| ([\d, ]+) \|/gm)];
  const written = new Map(documented.map(([, code, statuses]) => [code!, statuses!.trim()]));
  const entries: [string, { status: number; also?: readonly number[] }][] = Object.entries(errorCatalogue);
  const known = new Map(entries.map(([code, { status, also = [] }]) => [code, [status, ...also].join(', ')]));
  assert.deepEqual(Object.fromEntries([...written].sort()), Object.fromEntries([...known].sort()));
});

test('every error code and every event type is raised somewhere', () => {
  const text = sources
    .filter((file) => file !== 'server/errors.ts' && !/^server\/events\/[a-z]+-types\.ts$/.test(file))
    .map(read)
    .join('\n');
  const names = [...Object.keys(errorCatalogue), ...eventTypes];
  assert.deepEqual(
    names.filter((name) => !text.includes(`'${name}'`)),
    [],
  );
});

test('every setting is documented, and no other', () => {
  const settingsText = files
    .filter((file) => /^server\/config\/[a-z-]+\.ts$/.test(file) && !file.endsWith('.test.ts'))
    .map(read)
    .join('\n');
  const used = new Set(
    [...settingsText.matchAll(/(?:read\(|name: )'([A-Z][A-Z_]+)'/g)].map(([, name]) => name!),
  );
  used.delete('NODE_ENV');
  const documented = new Set(
    [...read('docs/operations.md').matchAll(/^\| `([A-Z][A-Z_]+)` \|/gm)].map(([, name]) => name!),
  );
  assert.deepEqual([...documented].sort(), [...used].sort());
});

test('no source file outgrows 400 lines', () => {
  const long = globSync('{server,sandbox,sdk,bench,scripts,examples}/**/*.{ts,mjs}', {
    ...{ cwd: root, exclude: (name: string) => name === 'node_modules' },
  })
    .filter((file) => !/\.test\.ts$|tables\.ts$/.test(file))
    .filter((file) => read(file).split('\n').length > 401);
  assert.deepEqual(long, []);
});

/** The table `errand`, the columns `withheld` and `withheld_until`, and the names of a job and of spans stay. */
const storedNames = /\b(errands?|withheld)\b/gi;
const filesOfStoredNames = [
  'ARCHITECTURE.md',
  'docs/decisions/0021-errands-between-nodes.md',
  'docs/operations/monitoring.md',
  'docs/operations/nodes.md',
  'server/app/jobs.ts',
  'server/connect/reconnect.test.ts',
  'server/connections/probe.test.ts',
  'server/connections/rows.ts',
  'server/connections/save.ts',
  'server/connections/status-transitions.ts',
  'server/connections/store.ts',
  'server/connections/suspension.ts',
  'server/functions/runs/remote-runner.test.ts',
  'server/functions/runs/remote-runner.ts',
  'server/nodes/remote-call-crash.test.ts',
  'server/nodes/remote-call-server.ts',
  'server/nodes/remote-calls.test.ts',
  'server/nodes/remote-calls.ts',
  'test/chaos/chaos.ts',
  'test/journeys/nodes.test.ts',
  'test/support/rows-by-version.ts',
];
/** The name of a directory is a hash of this text. */
const hashedText = '`room ${';
const exemptFiles = ['server/db/tables.ts', 'test/architecture.test.ts'];

test('texts and names are in plain technical English', () => {
  const words = /\b(rooms?|doors?|beliefs?|errands?|withheld|whoever|lets? go|at hand|anew|fates?|mended)\b/i;
  const wrong = globSync(
    [
      '{server,web,sandbox,sdk,shipped,scripts,bench,test,docs,examples,providers,deploy}/**/*.{ts,tsx,mts,mjs,js,md,yaml,yml,sh,css,html}',
      '*.md',
    ],
    { cwd: root, exclude: (name: string) => ['node_modules', 'dist'].includes(name.split('/').at(-1)!) },
  )
    .filter((file) => !exemptFiles.includes(file))
    .flatMap((file) =>
      read(file)
        .split('\n')
        .map((line) => line.replace(hashedText, ''))
        .map((line) => (filesOfStoredNames.includes(file) ? line.replaceAll(storedNames, '') : line))
        .filter((line) => words.test(line))
        .map((line) => `${file}: ${line.trim()}`),
    );
  assert.deepEqual(wrong, []);
});
