import assert from 'node:assert/strict';
import { test } from 'node:test';
import { refusedRequires } from './requires.ts';

test('a bundle of allowed modules is accepted', () => {
  const code = `const { z } = require('zod'); require('node:crypto'); require('stream'); require('trellis');
    exports.default = { exec() {} };`;
  assert.deepEqual(refusedRequires(code, ['trellis']), []);
});

test('what a bundle may not use is named with its place', () => {
  const code = `require('url');\n  require('fs');\nexports.default = () => import('zod');\nrequire('trellis')`;
  const refused = refusedRequires(code);
  assert.deepEqual(
    refused.map(({ module, line, column }) => ({ module, line, column })),
    [
      { module: 'fs', line: 2, column: 11 },
      { module: 'zod', line: 3, column: 32 },
      { module: 'trellis', line: 4, column: 9 },
    ],
  );
  assert.match(refused[0]!.message, /^A function cannot use ".+": only buffer, crypto, /);
});

/** The modules that are refused in a text. */
const requireCases: [string, string[]][] = [
  [`// require('fs')\nconst text = "require('fs')"; /require('fs')/`, []],
  ["`require('a') $" + "{require('b')} import('c')`", ['b']],
  ["require(`fs`); require.resolve('net'); require?.('os')", ['fs', 'net', 'os']],
  [String.raw`\u0072equire('\x66s')`, ['fs']],
  [`require(a ? 'b' : c ? 'd' : e)`, ['b', 'd']],
  [`import('node:zod', { with: { type: 'json' } }); import(\`crypto\`)`, ['node:zod', 'crypto']],
  [`let here = { require() {} }; here.require('a'); new require('b')`, []],
  // Bundles inside of a bundle have a `require` of their own.
  [`({ 1: [function (require, module) { require('./a') }] }); require('b')`, ['b']],
  [`(function r() { require('a'); { var require = 1 } }); (require) => require('b')`, []],
  [`(function () { { let require } require('a'); { function require() {} require('b') } })()`, ['a']],
  [`(function require() { require('a') }); try {} catch (require) { require('b') } require('c')`, ['c']],
  [`const { require } = x; require('a')`, []],
  [`class A { require() {} b = require('b'); static { var require; require('a') } }`, ['b']],
  // What a parser of old syntax would refuse.
  [`return new.target; using a = require('b'); /(?i:a)[\\p{L}--b]/v; <!-- require('c')`, ['b']],
  [`${'('.repeat(100_000)}require('a')`, []],
];

test('a require is found in all its forms, and only one of the bundle itself', () => {
  for (const [code, refused] of requireCases)
    assert.deepEqual(
      refusedRequires(code).map(({ module }) => module),
      refused,
      code.slice(0, 100),
    );
});

test('the first 100 of many are named, shortened', () => {
  const refused = refusedRequires(`require('${'x'.repeat(1_000)}');`.repeat(200));
  assert.deepEqual([refused.length, refused[0]!.module], [100, 'x'.repeat(200)]);
});

test('a bundle that is not JavaScript is refused with the line', () => {
  assert.throws(() => refusedRequires('\nconst = 1'), {
    name: 'SyntaxError',
    message: 'Unexpected token (line 2)',
  });
});
