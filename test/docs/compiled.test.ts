// What the guide of the client shows in TypeScript compiles in a strict program.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { blocksOf, root } from './blocks.ts';

/** What the examples take from the program around them. */
const around = `
  declare const button: HTMLButtonElement, message: HTMLElement, url: string, spreadsheetId: string;
  declare const api: { createConnectSession(): Promise<string> };
  declare const sheet: import('trellis-client').Connection;
`;

test('the examples in TypeScript of the guide of the client compile', async () => {
  const blocks = blocksOf('docs/sdk.md').filter(({ language }) => /^tsx?$/.test(language));
  assert.ok(blocks.length >= 3);
  const place = await mkdtemp(join(tmpdir(), 'trellis-examples-'));
  try {
    const files = blocks.map(({ line, language }) => `line-${line}.${language}`);
    await Promise.all(blocks.map(({ text }, at) => writeFile(join(place, files[at]!), text)));
    await writeFile(join(place, 'around.d.ts'), around);
    const typesOf = (name: string) => [join(root, 'node_modules/@types', name)];
    const compilerOptions = {
      ...{ module: 'esnext', moduleResolution: 'bundler', jsx: 'react-jsx', skipLibCheck: true },
      ...{ noEmit: true, declaration: false, allowImportingTsExtensions: true, rootDir: '/' },
      // Their readers go on with what they declare.
      noUnusedLocals: false,
      paths: {
        'trellis-client': [join(root, 'sdk/client/index.ts')],
        'trellis-client/*': [join(root, 'sdk/*/index.ts')],
        react: typesOf('react/index.d.ts'),
        'react/jsx-runtime': typesOf('react/jsx-runtime.d.ts'),
      },
    };
    const config = {
      extends: join(root, 'tsconfig.client.json'),
      ...{ compilerOptions, include: [], exclude: [], files: ['around.d.ts', ...files] },
    };
    await writeFile(join(place, 'tsconfig.json'), JSON.stringify(config));
    const compiler = join(root, 'node_modules/typescript/bin/tsc');
    const read = promisify(execFile)(process.execPath, [compiler, '-p', place], { cwd: place });
    await read.catch(({ stdout }: { stdout: string }) => assert.fail(stdout));
  } finally {
    await rm(place, { recursive: true, force: true });
  }
});
