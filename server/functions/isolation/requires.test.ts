import assert from 'node:assert/strict';
import { test } from 'node:test';
import { refusedRequires } from './requires.ts';

test('a bundle of allowed modules is accepted', async () => {
  const code = `const { z } = require('zod'); require('node:crypto'); require('stream'); require('trellis');
    exports.default = { exec() {} };`;
  assert.deepEqual(await refusedRequires(code, ['trellis']), []);
});

test('what a bundle may not use is named with its place', async () => {
  const code = `require('url');\n  require('fs');\nexports.default = () => import('zod');\nrequire('trellis')`;
  const refused = await refusedRequires(code);
  assert.deepEqual(
    refused.map(({ module, line, column }) => ({ module, line, column })).sort((a, b) => a.line! - b.line!),
    [
      { module: 'fs', line: 2, column: 11 },
      { module: 'zod', line: 3, column: 32 },
      { module: 'trellis', line: 4, column: 9 },
    ],
  );
  assert.match(refused[0]!.message, /^A function cannot use ".+": only buffer, crypto, /);
});

test('a comment or a string that looks like a require is none', async () => {
  assert.deepEqual(await refusedRequires(`// require('fs')\nconst text = "require('fs')";`), []);
});

test('a bundle that is no JavaScript is told so', async () => {
  await assert.rejects(refusedRequires('const = 1'), SyntaxError);
});
