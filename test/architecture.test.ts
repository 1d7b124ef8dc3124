import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { test } from 'node:test';
import { errorCatalogue } from '../server/errors.ts';
import { eventTypes } from '../server/events/event-types.ts';

const root = join(import.meta.dirname, '..');
const files = globSync('server/**/*.ts', { cwd: root });
const sources = files.filter((file) => !/\.(test|fixture)\.ts$/.test(file));
const read = (file: string) => readFileSync(join(root, file), 'utf8');
/** The table of ARCHITECTURE.md, from the lowest layer. A module imports itself and modules of lower layers. */
const layers = [...read('ARCHITECTURE.md').matchAll(/^\| \d+ \| (.*) \|$/gm)]
  .map(([, modules]) => [...modules!.matchAll(/`([a-z-]+)(?:\/|\.ts)`/g)].map(([, name]) => name!))
  .reverse();
/** What a module may import from outside of `server/`. */
const importsFromOutside: Record<string, RegExp> = {
  main: /^sandbox\//,
  cli: /^(sdk|tools|sandbox\/profiles)\//,
  'functions-folder': /^sdk\/compile\//,
};
const moduleOf = (file: string) => file.split('/')[1]!.replace(/\.ts$/, '');
const layerOf = (module: string) => layers.findIndex((modules) => modules.includes(module));

test('modules import only modules of lower layers', () => {
  const wrong: string[] = [];
  for (const file of sources) {
    for (const [, target] of read(file).matchAll(/from '(\.{1,2}\/[^']+)'/g)) {
      const imported = relative(root, join(root, dirname(file), target!));
      const [from, to] = [moduleOf(file), moduleOf(imported)];
      if (imported.startsWith('server/')) {
        if (from !== to && layerOf(to) >= layerOf(from)) wrong.push(`${file} → ${imported}`);
      } else if (imported !== 'sdk/child-environment.ts' && !importsFromOutside[from]?.test(imported)) {
        wrong.push(`${file} → ${imported}`);
      }
    }
  }
  assert.deepEqual(wrong, []);
});

/** The files of `server/` that each file imports, with or without the files of which it imports only types. */
function importsOf({ withTypes }: { withTypes: boolean }): Map<string, string[]> {
  const isOfTypes = (clause: string) =>
    clause.startsWith('type ') || /^\{\s*type [^,}]+(,\s*type [^,}]+)*,?\s*\}$/.test(clause);
  return new Map(
    sources.map((file) => [
      file,
      [...read(file).matchAll(/^(?:import|export) ([^;]*?) ?from '(\.[^']+)'/gm)]
        .filter(([, clause]) => withTypes || !isOfTypes(clause!))
        .map(([, , target]) => relative(root, join(root, dirname(file), target!))),
    ]),
  );
}

/** Groups of files that import each other, directly or through others. */
function cyclesOf(imports: ReadonlyMap<string, readonly string[]>): string[][] {
  const reachable = new Map<string, Set<string>>();
  for (const file of imports.keys()) {
    const found = new Set(imports.get(file));
    for (const next of found) for (const target of imports.get(next) ?? []) found.add(target);
    reachable.set(file, found);
  }
  const inCycle = [...imports.keys()].filter((file) => reachable.get(file)!.has(file));
  const groups = inCycle.map((file) =>
    inCycle.filter((other) => reachable.get(file)!.has(other) && reachable.get(other)!.has(file)).sort(),
  );
  return [...new Map(groups.map((group) => [group.join(' '), group])).values()];
}

test('no files import values of each other, and no more than two import types of each other', () => {
  assert.deepEqual(cyclesOf(importsOf({ withTypes: false })), []);
  assert.deepEqual(
    cyclesOf(importsOf({ withTypes: true })).filter((group) => group.length > 2),
    [],
  );
});

/** `tools/` works on the tables of these modules; everything else it does by public interfaces. */
const modulesForTools = [
  'activity',
  'auth-modes',
  'brand',
  'concurrency',
  'connections',
  'db',
  'deliveries',
  'environments',
  'errors',
  'events',
  'functions',
  'http',
  'integrations',
  'outbound',
  'providers',
  'records',
  'vault',
];

test('tools import the named modules of the service, and the CLI alone imports tools', () => {
  const used = new Set<string>();
  const importers: string[] = [];
  for (const file of globSync('{server,tools,sandbox,sdk}/**/*.ts', { cwd: root })) {
    if (/\.(test|fixture)\.ts$/.test(file)) continue;
    for (const [, target] of read(file).matchAll(/(?:from |import\()'(\.{1,2}\/[^']+)'/g)) {
      const imported = relative(root, join(root, dirname(file), target!));
      if (file.startsWith('tools/') && !imported.startsWith('tools/')) used.add(imported);
      if (!file.startsWith('tools/') && imported.startsWith('tools/')) importers.push(file);
    }
  }
  const modules = [...used].map((path) => (path.startsWith('server/') ? moduleOf(path) : path));
  assert.deepEqual([...new Set(modules)].sort(), [...modulesForTools].sort());
  assert.deepEqual(
    importers.filter((file) => !file.startsWith('server/cli/')),
    [],
  );
});

test('the quota imports nothing of the proxy, which calls it', () => {
  const wrong = sources
    .filter((file) => file.startsWith('server/proxy/quota/'))
    .filter((file) => /from '\.\.\/[^.]/.test(read(file)));
  assert.deepEqual(wrong, []);
});

/** The layers within a module, from the lowest folder or file up. */
const layersWithin: Record<string, string[][]> = {
  functions: [['isolation'], ['context'], ['deploys'], ['runs'], ['syncs', 'actions']],
  connections: [
    ['store'],
    ['health'],
    ['revocation'],
    ['refresh'],
    ['verify'],
    ['disconnect', 'import'],
    ['routes'],
  ],
};
test('folders within functions and connections import only lower ones', () => {
  const wrong: string[] = [];
  for (const file of sources) {
    const [, module = '', from = ''] = /^server\/([a-z]+)\/([a-z-]+)/.exec(file) ?? [];
    const within = layersWithin[module];
    const layerWithin = (part: string) => within?.findIndex((parts) => parts.includes(part)) ?? -1;
    if (layerWithin(from) < 0) continue;
    const targets = /from '\.{1,2}\/([a-z-]+)(?:\.ts|\/)/g;
    const inFolder = file.split('/').length > 3;
    for (const [text, to] of read(file).matchAll(targets)) {
      const isOfModule = text.includes("'../") === inFolder;
      if (isOfModule && layerWithin(to!) >= layerWithin(from)) wrong.push(`${file} → ${to}`);
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
    cwd: root,
    exclude: (name: string) => name === 'node_modules',
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
      assert.equal(
        version,
        name === '@trellis-run/client' ? 'file:../../dist.client' : dependencies[name],
        file,
      );
  }
});

test('ARCHITECTURE.md has at most 120 lines, and each path in it exists', () => {
  const text = read('ARCHITECTURE.md');
  assert.ok(text.trimEnd().split('\n').length <= 120);
  const named = [...text.matchAll(/`([a-z-]+(?:\/[a-z-]+)*(?:\/|\.(?:ts|sql)))`/g)].map(([, path]) => path!);
  const wrong = named.filter(
    (path) =>
      ![
        '',
        'server',
        'server/connections',
        'server/functions',
        'server/proxy',
        'server/records',
        'server/webhooks',
      ].some((folder) => existsSync(join(root, folder, path))) &&
      !/^(routes|page-routes|wire)\.ts$/.test(path),
  );
  assert.deepEqual(wrong, []);
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
  for (const file of globSync('{server,tools,sdk,sandbox}/**/*.ts', { cwd: root })) {
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

test('only outbound.ts opens sockets to the world, by its own pool, and the tunnels of its proxy', () => {
  const socketApis = /from '(undici|node:https|node:tls)'|globalThis\.fetch|http\.request\(/;
  const callsFetch = (text: string) => /(?<![.\w])fetch\(/.test(text);
  const wrong = sources.filter(
    (file) =>
      // A guarded fetch that is passed in has the type Fetch.
      socketApis.test(read(file)) || (callsFetch(read(file)) && !/\bFetch\b|\bfetchFor\b/.test(read(file))),
  );
  assert.deepEqual(wrong, ['server/outbound/outbound.ts', 'server/outbound/proxy-tunnel.ts']);
});

test('every error code is documented, and no other', () => {
  const documented = [...read('docs/reference/errors.md').matchAll(/^\| `([a-z_]+)` \| ([\d, ]+) \|/gm)];
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
    [...settingsText.matchAll(/(?:\(|settings,)\s*'([A-Z][A-Z_]+)'/g)].map(([, name]) => name!),
  );
  used.delete('NODE_ENV');
  const documented = new Set(
    [...read('docs/reference/settings.md').matchAll(/^\| `([A-Z][A-Z_]+)` \|/gm)].map(([, name]) => name!),
  );
  assert.deepEqual([...documented].sort(), [...used].sort());
  const secrets = [...settingsText.matchAll(/\.secret\('([A-Z][A-Z_]+)'\)/g)].map(([, name]) => name!);
  const [, list = ''] =
    /^## Secrets from files$([\s\S]*?)^## /m.exec(read('docs/reference/settings.md')) ?? [];
  const fromFiles = [...list.matchAll(/`([A-Z][A-Z_]+)_FILE`/g)].map(([, name]) => name!);
  assert.deepEqual(fromFiles.sort(), secrets.sort());
  // Every setting that is a secret by its name.
  assert.deepEqual(
    [...used].filter((name) => /(_KEYS?|TOKEN|SECRET|PASSWORD|PASSPHRASE|HEADERS)$/.test(name)).sort(),
    secrets.filter((name) => !/_URLS?$|^TRELLIS_OUTBOUND_PROXY$/.test(name)).sort(),
  );
});

/** The table `errand`, the columns `withheld` and `withheld_until`, and the names of a job and of spans stay. */
const storedNames = /\b(errands?|withheld)\b/gi;
const filesOfStoredNames = [
  'ARCHITECTURE.md',
  'docs/decisions/0021-remote-calls-between-nodes.md',
  'docs/operations/monitoring.md',
  'docs/operations/nodes.md',
  'server/app/jobs.ts',
  'server/connect/reconnect.test.ts',
  'server/connections/refresh/probe.test.ts',
  'server/connections/store/list.test.ts',
  'server/connections/store/list.ts',
  'server/connections/store/store.ts',
  'server/connections/store/save.ts',
  'server/connections/health/status-transitions.ts',
  'server/connections/store/suspension.ts',
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
// The descriptions of scopes in openapi.yaml are the providers'.
const exemptFiles = ['server/db/tables.ts', 'test/architecture.test.ts', 'providers/openapi.yaml'];

test('texts and names are in plain technical English', () => {
  const words = /\b(rooms?|doors?|beliefs?|errands?|withheld|whoever|lets? go|at hand|anew|fates?|mended)\b/i;
  const wrong = globSync(
    [
      '{server,tools,web,sandbox,sdk,shipped,scripts,bench,test,docs,examples,providers,deploy}/**/*.{ts,tsx,mts,mjs,js,md,yaml,yml,sh,css,html}',
      '*.md',
    ],
    // A test beside this one may build the web application, into a directory of its own.
    { cwd: root, exclude: (name: string) => /(^|\/)(node_modules|dist|dist\.\d+)$/.test(name) },
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
