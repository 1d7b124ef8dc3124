// The TypeScript examples of the guides for applications compile in a strict program.
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
  declare const process: { env: Record<string, string | undefined> };
  declare module '@/lib/auth' {
    export function userOf(request: object): Promise<string | undefined>;
  }
  declare module '@/lib/trellis' {
    export const trellis: import('@trellis-run/client').Trellis;
    export function connectionOf(user: string): Promise<import('@trellis-run/client').Connection | undefined>;
  }
  declare module 'express' {
    type Request = { body: Uint8Array; headers: Record<string, string | string[] | undefined> };
    type Response = { status(code: number): Response; send(body: string): Response; end(): Response };
    type Handler = (request: Request, response: Response) => unknown;
    function express(): { post(path: string, ...handlers: Handler[]): void; listen(port: number): void };
    namespace express {
      function raw(options: { type: string }): Handler;
    }
    export default express;
  }
`;

const guides = ['sdk', 'sdk-connect', 'embedding', 'add-to-your-app', 'webhooks-tutorial'];
const pages = guides.map((name) => `docs/guides/${name}.md`);

test('the examples in TypeScript of the guides for applications compile', async () => {
  const blocks = pages.flatMap(blocksOf).filter(({ language }) => /^tsx?$/.test(language));
  assert.ok(blocks.length >= 3);
  const place = await mkdtemp(join(tmpdir(), 'trellis-examples-'));
  try {
    const files = blocks.map(({ page, line, language }) => `${basename(page, '.md')}-${line}.${language}`);
    await Promise.all(blocks.map(({ text }, at) => writeFile(join(place, files[at]!), text)));
    await writeFile(join(place, 'around.d.ts'), around);
    const typesOf = (name: string) => [join(root, 'node_modules/@types', name)];
    const compilerOptions = {
      module: 'esnext',
      moduleResolution: 'bundler',
      jsx: 'react-jsx',
      skipLibCheck: true,
      noEmit: true,
      declaration: false,
      allowImportingTsExtensions: true,
      rootDir: '/',
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
      compilerOptions,
      include: [],
      exclude: [],
      files: ['around.d.ts', ...files],
    };
    await writeFile(join(place, 'tsconfig.json'), JSON.stringify(config));
    const compiler = join(root, 'node_modules/typescript/bin/tsc');
    const read = promisify(execFile)(process.execPath, [compiler, '-p', place], { cwd: place });
    await read.catch(({ stdout }: { stdout: string }) => assert.fail(stdout));
  } finally {
    await rm(place, { recursive: true, force: true });
  }
});
