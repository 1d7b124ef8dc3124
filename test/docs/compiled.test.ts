// The TypeScript examples of the client's guide compile in a strict program.
// Slow: it runs the commands of every page.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { blocksOf, root } from './blocks.ts';

/** Declarations of the program around the examples. */
const around = `
  declare const button: HTMLButtonElement, message: HTMLElement, url: string, spreadsheetId: string;
  declare const api: { createConnectSession(): Promise<string> };
  declare const sheet: import('@trellis-run/client').Connection;
`;

const pages = ['docs/guides/sdk.md', 'docs/guides/sdk-connect.md'];

test('the examples in TypeScript of the guide of the client compile', async () => {
  const blocks = pages.flatMap(blocksOf).filter(({ language }) => /^tsx?$/.test(language));
  assert.ok(blocks.length >= 3);
  const place = await mkdtemp(join(tmpdir(), 'trellis-examples-'));
  try {
    const files = blocks.map(({ page, line, language }) => `${basename(page, '.md')}-${line}.${language}`);
    await Promise.all(blocks.map(({ text }, at) => writeFile(join(place, files[at]!), text)));
    await writeFile(join(place, 'around.d.ts'), around);
    const typesOf = (name: string) => [join(root, 'node_modules/@types', name)];
    const compilerOptions = {
      ...{ module: 'esnext', moduleResolution: 'bundler', jsx: 'react-jsx', skipLibCheck: true },
      ...{ noEmit: true, declaration: false, allowImportingTsExtensions: true, rootDir: '/' },
      // The examples declare names for the reader's own code.
      noUnusedLocals: false,
      paths: {
        '@trellis-run/client': [join(root, 'sdk/client/index.ts')],
        '@trellis-run/client/*': [join(root, 'sdk/*/index.ts')],
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
