// Slow: it compiles and deploys folders.

import assert from 'node:assert/strict';
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { compile } from './compile.ts';
import { formatFault } from './files.ts';

const samples = join(import.meta.dirname, '../../test/functions/samples');

async function folderWith(t: TestContext, files: Record<string, string>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'trellis-functions-'));
  t.after(() => rm(folder, { recursive: true }));
  for (const [file, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    await writeFile(join(folder, file), text);
  }
  return folder;
}
const action = (exec: string) => `
import { createAction } from 'nango';
import { z } from 'zod';
export default createAction({
  description: 'Doubles.',
  input: z.object({ n: z.number() }),
  output: z.object({ n: z.number() }),
  exec: async (nango, input) => ${exec},
});
`;

test('functions in the standard layout are found, checked and bundled', async () => {
  const { functions, faults, warnings } = await compile(samples);
  assert.deepEqual([faults.map(formatFault), warnings], [[], []]);
  assert.deepEqual(
    functions.map(({ integrationKey, kind, name }) => `${integrationKey} ${kind} ${name}`),
    [
      'github sync issues',
      'google-sheet sync changed-rows',
      'google-sheet sync rows',
      'google-sheet sync tabs',
      'google-sheet action append-row',
      'google-sheet action create-spreadsheet',
      'google-sheet action read-range',
      'google-sheet action remember-range',
      'google-sheet on_event check-account',
      'google-sheet on_event first-look',
    ],
  );
  for (const { code, source, file } of functions) {
    const required = [...code.matchAll(/require\("([^"]+)"\)/g)].map(([, name]) => name!);
    assert.ok(
      required.every((name) => ['zod', 'crypto'].includes(name)),
      `${file}: ${required}`,
    );
    assert.match(source, /export default/);
  }
});

test('a type error is reported with file, line and column, and nothing of the folder is compiled', async (t) => {
  const folder = await folderWith(t, {
    'shop/actions/right.ts': action('({ n: input.n * 2 })'),
    'shop/actions/wrong.ts': action('({ n: input.m, more: await nango.get({ endpoint: 1 }) })'),
  });
  const { functions, faults } = await compile(folder);
  assert.deepEqual(functions, []);
  const lines = faults.map(formatFault);
  assert.ok(
    lines.some((line) => /^shop\/actions\/wrong\.ts:8:\d+: TS2339: .*'m' does not exist/.test(line)),
    lines.join('\n'),
  );
  assert.ok(
    lines.some((line) => /endpoint|not assignable to type 'string'/.test(line)),
    lines.join('\n'),
  );
  assert.ok(
    lines.every((line) => line.startsWith('shop/actions/wrong.ts:8:')),
    lines.join('\n'),
  );
});

test('the bundled code is the checked code, even if a file changes meanwhile', async (t) => {
  const file = 'crm/actions/double.ts';
  const folder = await folderWith(t, { [file]: action('({ n: input.n * 2 })') });
  const save = (exec: string) => writeFile(join(folder, file), action(exec));
  const broken = compile(folder);
  await wait(100);
  await save('input.missing');
  assert.match((await broken).faults.map(formatFault).join(), /'missing' does not exist/);
  const sound = compile(folder);
  await wait(100);
  await save('({ n: input.n * 3 })');
  const { functions, faults } = await sound;
  assert.deepEqual(faults, []);
  for (const text of [functions[0]!.code, functions[0]!.source]) assert.match(text, /input\.n \* 3/);

  /** As long as something is written again and again. */
  const compiledWhile = async (write: (n: number) => Promise<void>) => {
    let isOver = false;
    const restless = (async () => {
      for (let n = 0; !isOver; n++) {
        await write(n);
        await wait(20);
      }
    })();
    const compilation = await compile(folder);
    isOver = true;
    await restless;
    return compilation;
  };
  const logged = await compiledWhile((n) => writeFile(join(folder, 'crm/run.log'), `${n}`));
  assert.deepEqual([logged.functions.length, logged.faults], [1, []]);
  const never = await compiledWhile((n) => save(`({ n: input.n * ${n} })`));
  assert.deepEqual(never.functions, []);
  assert.match(never.faults.map(formatFault).join(), /changed during each compilation/);
});

test('a syntax error is reported with file, line and column', async (t) => {
  const folder = await folderWith(t, {
    'shop/actions/broken.ts': `import { x } from './nowhere.js';\nexport default x(;\n`,
  });
  const { faults } = await compile(folder);
  const lines = faults.map(formatFault);
  assert.ok(
    lines.some((line) => line.startsWith('shop/actions/broken.ts:2:18:')),
    lines.join('\n'),
  );
});

test("a project's own settings change nothing, and its other files are its own", async (t) => {
  const folder = await folderWith(t, {
    'tsconfig.json': '{"compilerOptions":{"verbatimModuleSyntax":true,"preserveValueImports":true}}',
    'README.md': 'not a function',
    'shop/actions/double.ts': action('({ n: input.n * 2 })').replace(
      'createAction }',
      'createAction, ProxyConfiguration }',
    ),
    'shop/actions/double.test.ts': 'this is no TypeScript',
    'shop/helpers/unused.ts': 'export const one: number = 1;',
    'node_modules/shop/actions/foreign.ts': 'export default 1;',
  });
  const { functions, faults } = await compile(folder);
  assert.deepEqual(faults.map(formatFault), []);
  assert.deepEqual(
    functions.map(({ file }) => file),
    ['shop/actions/double.ts'],
  );
});

test('a file with an invalid function name is reported, and a folder is not a function', async (t) => {
  const folder = await folderWith(t, {
    'shop/actions/two words.ts': action('({ n: input.n * 2 })'),
    'shop/actions/inner.ts/notes.txt': 'nothing',
  });
  const { faults } = await compile(folder);
  assert.deepEqual(faults.map(formatFault), [
    "shop/actions/two words.ts: the name of a function's file must be up to 255 of A-Z a-z 0-9 _ -",
  ]);
});

test('a folder without functions is empty, and a missing folder is an error', async (t) => {
  const folder = await folderWith(t, { 'shop/readme.txt': 'nothing' });
  assert.deepEqual(await compile(folder), { functions: [], faults: [], faulty: [], warnings: [] });
  await assert.rejects(compile(join(folder, 'none')), { code: 'ENOENT' });
});

test('a copy elsewhere, without packages beside it, compiles as well', async (t) => {
  const folder = await folderWith(t, {});
  await cp(samples, folder, { recursive: true });
  const { functions, faults } = await compile(folder);
  assert.deepEqual([functions.length, faults.map(formatFault)], [10, []]);
});

test('functions of `nango` have looser types, which keep models and methods', async (t) => {
  const folder = await folderWith(t, {
    'shop/syncs/loose.ts': `
import { createSync } from 'nango';
import type { NangoAction, NangoSync } from 'nango';
import type { ProxyConfiguration } from '@nangohq/runner-sdk';
import { z } from 'zod';
type Thrower = { ActionError: typeof import('@nangohq/runner-sdk').ActionError };
const refuse = (by: Thrower) => { throw new by.ActionError({ type: 'refused' }); };
const named = (context: NangoSync | NangoAction) => new context.ActionError<{ message: string }>({ message: 'no' });
export default createSync({
  description: 'Orders.',
  frequency: 'every hour',
  models: { Order: z.object({ id: z.string(), kind: z.enum(['a', 'b']), total: z.number() }) },
  metadata: z.void(),
  exec: async (nango) => {
    const request: ProxyConfiguration = { endpoint: '/orders', retries: 3 };
    const { headers } = await nango.get(request);
    const type = typeof headers['content-type'] === 'string' ? headers['content-type'] : headers['content-type'][0];
    const rows: { id: string; kind?: string; total?: number | null }[] = [{ id: type }];
    await nango.batchSave(rows, 'Order');
    await nango.batchUpdate([{ id: '1', total: null }], 'Order');
    await nango.batchDelete<{ id: string; kind: string }>([{ id: '1' }], 'Order');
    await nango.zodValidateInput({ zodSchema: z.object({}), input: {} });
    let response: Response | undefined;
    response = await nango.uncontrolledFetch({ url: new URL('https://example.com') });
    const token = await nango.getToken();
    const key: string = typeof token === 'string' ? token : 'apiKey' in token ? token.apiKey : '';
    // @ts-expect-error other types of the SDK refuse it
    await nango.updateMetadata({ key });
    if (!response.ok) refuse(nango);
    if (key === '') throw named(nango);
    throw new nango.ActionError('failed');
  },
});
`,
    'shop/syncs/wrong.ts': `
import { createSync } from 'nango';
import { z } from 'zod';
export default createSync({
  description: 'Orders.',
  frequency: 'every hour',
  models: { Order: z.object({ id: z.string() }) },
  exec: async (nango) => {
    await nango.batchSave([{ id: '1' }], 'Customer');
    await nango.batchSave([{ name: 'none' }], 'Order');
  },
});
`,
  });
  const { faults } = await compile(folder);
  assert.deepEqual(
    faults.map(({ file, line }) => [file, line]),
    [
      ['shop/syncs/wrong.ts', 9],
      ['shop/syncs/wrong.ts', 10],
    ],
    faults.map(formatFault).join('\n'),
  );
});

test('models, metadata and checkpoints are typed by their schemas', async (t) => {
  const folder = await folderWith(t, {
    'shop/syncs/typed.ts': `
import { createSync } from 'trellis';
import { z } from 'zod';
export default createSync({
  description: 'Orders.',
  frequency: 'every hour',
  models: { Order: z.object({ id: z.string(), total: z.number() }) },
  metadata: z.object({ shop: z.string() }),
  checkpoint: z.object({ page: z.number() }),
  exec: async (trellis) => {
    const { shop } = await trellis.getMetadata();
    shop.toUpperCase();
    const page: number = (await trellis.getCheckpoint())?.page ?? 0;
    await trellis.batchSave([{ id: shop, total: page }], 'Order');
    await trellis.batchSave([{ id: shop, total: 'much' }], 'Order');
    await trellis.batchSave([{ id: shop, total: 1 }], 'Customer');
    await trellis.saveCheckpoint({ page: 'two' });
    await trellis.setMetadata({ store: shop });
  },
});
`,
  });
  const { faults } = await compile(folder);
  assert.deepEqual(
    faults.map(({ line }) => line),
    [15, 16, 17, 18],
    faults.map(formatFault).join('\n'),
  );
});

test('without a compiler the folder is bundled, with a warning that types were not checked', async (t) => {
  const elsewhere = await folderWith(t, { 'package.json': '{"type":"module"}' });
  await cp(join(import.meta.dirname, '..'), join(elsewhere, 'sdk'), { recursive: true });
  await mkdir(join(elsewhere, 'node_modules'));
  for (const name of ['zod', 'esbuild', '@esbuild']) {
    const at = join(import.meta.dirname, '../../node_modules', name);
    await symlink(at, join(elsewhere, 'node_modules', name));
  }
  const there = (await import(join(elsewhere, 'sdk/compile/compile.ts'))) as { compile: typeof compile };
  const folder = await folderWith(t, { 'shop/actions/double.ts': action('({ n: input.m })') });
  const { functions, faults, warnings } = await there.compile(folder);
  assert.deepEqual([functions.length, faults, warnings.length], [1, [], 1]);
  assert.match(warnings[0]!, /types were not checked: install "typescript"/);
});
