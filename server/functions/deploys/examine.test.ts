// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  closeSync,
  constants,
  mkdirSync,
  mkdtempSync,
  openSync,
  readSync,
  rmSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { functionProcessesOf } from '../../../test/support/processes.ts';
import { sdkParts } from '../isolation/program.ts';
import { createRuntime, type Runtime } from '../isolation/runtime.ts';
import { describeHere, examineAll, type Given } from './examine.ts';

let runtime: Runtime;
/** Holds files that no deploy may read: plain files, a link, and a FIFO that loses its content to any reader. */
let directory: string;
let fifo: number;
const secret = 'tsk_dev_of_nobody';

before(() => {
  runtime = createRuntime(sdkParts, { maxProcesses: 2 });
  directory = mkdtempSync(join(tmpdir(), 'trellis-examine-'));
  for (const name of ['dev.key', 'a.json', 'a.js', 'a.ts', 'a.css', 'a.txt', 'index.js', 'package.json'])
    writeFileSync(join(directory, name), secret);
  writeFileSync(join(directory, 'tsconfig.json'), `{ "compilerOptions": { "jsx": "${secret}" } }`);
  mkdirSync(join(directory, 'below'));
  symlinkSync(join(directory, 'dev.key'), join(directory, 'below/link.json'));
  execFileSync('mkfifo', [join(directory, 'fifo.json')]);
  fifo = openSync(join(directory, 'fifo.json'), constants.O_RDWR | constants.O_NONBLOCK);
  writeSync(fifo, secret);
});
after(async () => {
  closeSync(fifo);
  await runtime.close();
  rmSync(directory, { recursive: true });
});

const action = 'exports.default = { type: "action", exec: async () => 1 };';

const given = (code: string, name = 'one'): Given => ({
  integrationKey: 'sheet',
  kind: 'action',
  name,
  code,
  source: null,
  features: [],
  sdkVersion: null,
  path: [name],
});

/** The definition's kind, or the first fault. */
async function examined(code: string): Promise<string> {
  const all = await examineAll([given(code)], { describe: describeHere(runtime), environmentId: 1 });
  return all.examined[0]?.definition.kind ?? all.faults[0]!.message;
}

/**
 * Ways to make a bundler open files: `<dir>` is a directory seen from the working directory, `<abs>` its whole path, `<root>`
 * the root directory, `<n>` a substitution.
 */
const attempts = [
  // Globs, which esbuild expands without asking a plugin.
  'import(`./<dir>/<n>`)',
  'import(`./<dir>/dev<n>`, { with: { type: "json" } })',
  'import(`./<dir>/dev<n>`, { assert: { type: "json" } })',
  'import("./<dir>/dev" + n, { with: { type: "text" } })',
  'import(`./<dir>/fifo<n>`, { with: { type: "bytes" } })',
  'import(`<abs>/<n>.json`)',
  'import(`./<root>dev/zer<n>`, { with: { type: "text" } })',
  'import(`./<root>proc/self/environ<n>`, { with: { type: "json" } })',
  'require("./<dir>/dev" + n)',
  'require(`./<dir>/<n>.json`)',
  'require("./<dir>/" + a + "/" + b)',
  'require(`./<dir>/**/<n>`)',
  'require.resolve("./<dir>/" + n)',
  'new Worker(new URL(`./<dir>/<n>.js`, import.meta.url))',
  // Whole names.
  'require("./<dir>/a.json")',
  'require("<abs>/fifo.json")',
  'require("./<dir>")',
  'require("<abs>/below/link.json")',
  'require("file://<abs>/dev.key")',
  'require("./<dir>/a.json?x#y")',
  'require("./<dir>/a.js\\0.json")',
  'require("\\x2e/<dir>/\\u0061.json")',
  '\\u0072equire("./<dir>/a.json")',
  'require("data:application/json,{}")',
  'require.resolve("<abs>/dev.key")',
  'require("dev.key"); require("/proc/self/environ"); require("/dev/zero")',
  'import("<abs>/fifo.json", { with: { type: "file" } })',
  'import("<abs>/a.json", { with: { type: "json" } })',
  'import("file://<abs>/dev.key")',
  'import("data:text/javascript,import%20%22<abs>/a.js%22")',
  'import.defer("<abs>/a.js")',
  'import.source("<abs>/a.js")',
  'new URL("<abs>/a.txt", import.meta.url)',
  'import.meta.resolve("<abs>/a.js"); import.meta.glob("<abs>/*")',
  // Syntax of modules and of TypeScript.
  'import x from "<abs>/a.json" with { type: "json" };',
  'import text from "<abs>/fifo.json" with { type: "text" };',
  'import defer * as x from "<abs>/a.js";',
  'import "<abs>/a.css";',
  'export * from "<abs>/a.js";',
  'import x = require("<abs>/a.ts");',
  '/// <reference path="<abs>/a.ts" />\n',
  // Comments and directives that tools read.
  '//# sourceMappingURL=file://<abs>/a.json\n',
  '//# sourceMappingURL=<dir>/fifo.json\n',
  '//# sourceMappingURL=data:application/json,{"version":3,"sources":["<abs>/dev.key"],"mappings":"AAAA"}\n',
  '//# sourceURL=<abs>/dev.key\n',
  '/** @jsxImportSource <abs> @jsxRuntime automatic */ var a;',
  '/* @import "<abs>/a.css"; */ const css = `@import "<abs>/a.css"; a { background: url(<abs>/a.txt) }`;',
  '"use <abs>/a.js"; "use client";',
  '#!<abs>/dev.key\n',
  // What runs at the load.
  'eval("require(\'<abs>/a.json\')")',
  'Function("return require")()("<abs>/a.json")',
  '(0, require)("<abs>/fifo.json")',
  'require(["<abs>", "dev.key"].join("/"))',
  'module.require("<abs>/a.json")',
  'module.constructor._load("<abs>/a.json")',
  'process.binding("fs").open("<abs>/fifo.json")',
  'process.getBuiltinModule("fs").readFileSync("<abs>/fifo.json")',
  'require("url").constructor.constructor("return process")().mainModule.require("<abs>/a.json")',
  'fetch("file://<abs>/fifo.json"); importScripts("<abs>/a.js")',
];

test('no deploy opens a file or reveals whether it exists', async (t) => {
  if (process.platform !== 'linux') return t.skip('macOS has no such FIFO');
  const outcomesIn = async (place: string) => {
    const dir = relative(process.cwd(), place);
    const root = `${relative(process.cwd(), '/')}/`;
    const filled: Record<string, string> = {
      '<dir>': dir,
      '<abs>': place,
      '<root>': root,
      '<n>': '$' + '{n}',
    };
    const bundles = attempts.map((attempt, at) =>
      given(`${action} ${attempt.replace(/<(?:dir|abs|root|n)>/g, (name) => filled[name]!)}`, `${at}`),
    );
    const outcome = await examineAll(bundles, { describe: describeHere(runtime), environmentId: 1 });
    assert.equal(
      outcome.examined.length + new Set(outcome.faults.map(({ path }) => path[0])).size,
      bundles.length,
    );
    return JSON.stringify(outcome, (key, value) => (key === 'digest' || key === 'code' ? undefined : value))
      .replaceAll(dir, '<dir>')
      .replaceAll(place, '<abs>');
  };
  const present = await outcomesIn(directory);
  const absent = await outcomesIn(directory.replace('trellis-examine', 'nothing-is-here'));
  assert.equal(present, absent);
  assert.ok(!present.includes(secret));
  const left = Buffer.alloc(100);
  assert.equal(left.toString('utf8', 0, readSync(fifo, left)), secret);
});

/** Texts that keep a parser busy, fill its memory or its stack. */
const exhausting: Record<string, string> = {
  deep: '('.repeat(3_000_000),
  templates: '`${'.repeat(1_000_000),
  arrows: 'a=>'.repeat(1_000_000),
  chain: `a = ${'1+'.repeat(1_000_000)}1;`,
};

test('a text that exhausts the check is refused or accepted, and the next one is examined', async () => {
  for (const [name, text] of Object.entries(exhausting)) {
    const outcome = await examined(`${text}\n;${action}`);
    assert.match(outcome, name === 'chain' ? /^action$/ : /cannot be loaded: RangeError/, name);
    assert.equal(await examined(action), 'action', name);
  }
});

test('a bundle that a kill interrupts, at its check or at its load, is not refused: the deploy is to be tried again', async (t) => {
  if (process.platform !== 'linux') return t.skip('reads /proc');
  // Takes seconds to parse, and to load.
  for (const code of [`${'f(1);'.repeat(1_500_000)}${action}`, `for (;;); ${action}`]) {
    const killed = assert.rejects(examined(code), {
      code: 'unavailable',
      message: /process of the run ended .+Try again\.$/,
    });
    while (runtime.counts().running === 0) await new Promise(setImmediate);
    if (code.startsWith('for')) await setTimeout(1_000);
    for (const pid of await functionProcessesOf(process.pid)) process.kill(pid, 'SIGKILL');
    await killed;
    // The pool may not know yet that an idle process was killed too.
    const again = () => examined(action).catch(({ code }) => code as string);
    let outcome = await again();
    while (outcome === 'unavailable') outcome = await again();
    assert.equal(outcome, 'action');
  }
});

test('a place in a stack that the code made up is not read out of a long line', async () => {
  const stack = (line: string) =>
    `${action} throw Object.assign(new Error('x'), { stack: 'Error: x\\n' + ${line} + '\\n    at f (a b.ts:1:2)' });`;
  for (const line of [
    `'    at f (' + 'a'.repeat(2_000) + ':1:1)'`,
    `'    at ' + ':1'.repeat(6_000) + ' '`,
    `' \\n'.repeat(50)`,
  ])
    assert.equal(await examined(stack(line)), 'sheet/actions/one: cannot be loaded: Error: x (b.ts:1:2)');
});

/** How many of 30 bundles are examined, and how many faults are told. */
async function examinedOf(code: string): Promise<{ described: number; faults: number }> {
  let described = 0;
  const describe = describeHere(runtime);
  const { faults } = await examineAll(
    Array.from({ length: 30 }, () => given(code)),
    {
      describe: (of) => {
        described += 1;
        return describe(of);
      },
      environmentId: 1,
    },
  );
  return { described, faults: faults.length };
}

test('a deploy is not examined further once it has 100 faults, or a bundle that used up its limits', async () => {
  assert.deepEqual(await examinedOf(`require('fs');`.repeat(100)), { described: 2, faults: 100 });
  const { described, faults } = await examinedOf(
    'const all = []; for (;;) all.push(new Array(1e6).fill(1));',
  );
  assert.ok(described <= 3 && faults <= 3, `${described} ${faults}`);
});
