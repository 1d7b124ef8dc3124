// The examples of the pages work: each command runs against a service, in the order of its page; each piece of code is
// parsed by its language; each shown answer has the fields of the real one.
// Slow: it runs the commands of every page.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { transform } from 'esbuild';
import { parseAllDocuments } from 'yaml';
import { operationsOf, readDocument } from '../support/openapi.ts';
import { type Block, blocksOf, pages, placeOf, root } from './blocks.ts';
import { openReader, type Reader } from './reader.ts';
import { missingIn, withoutValues } from './shape.ts';

let reader: Reader;
before(async () => {
  reader = await openReader();
});
after(() => reader.close());

const shells = ['sh', 'bash'];
const languages = [
  ...shells,
  'js',
  'ts',
  'tsx',
  'jsx',
  'html',
  'vue',
  'svelte',
  'json',
  'sql',
  'yaml',
  'python',
  'http',
  'ini',
  'nginx',
  '',
];
/** The JSON right after a command, with at most a sentence between, is its answer. */
const isAnswer = (shown: Block, { line, text }: Block) => shown.line - (line + text.split('\n').length) <= 4;
const isRun = ({ notRun }: Block) => notRun === undefined;

for (const page of pages()) {
  const blocks = blocksOf(page);
  const commands = blocks.filter((block) => shells.includes(block.language) && isRun(block));
  if (!blocks.some(({ language }) => language === 'js') && commands.length === 0) continue;
  test(`${page}: the commands work as they stand`, async () => {
    const terminal = await reader.sitDown(page);
    try {
      for (const [at, block] of blocks.entries()) {
        if (block.language === 'ts' && isRun(block)) await terminal.save(block.text);
        if (block.language === 'js' && isRun(block)) {
          const { output, code } = await terminal.execute(block.text);
          assert.equal(code, 0, `${placeOf(block)}\n${block.text}\n${output.slice(0, 2_000)}`);
        }
        if (!commands.includes(block)) continue;
        const { output, code } = await terminal.type(block.text);
        const said = `${placeOf(block)}\n${block.text}\n${output.slice(0, 2_000)}`;
        assert.equal(code, 0, said);
        const error = /"error" ?: ?\{ ?"code" ?: ?"([a-z_]+)"/.exec(output)?.[1];
        assert.equal(error, block.fails, said);
        const shown = blocks[at + 1];
        if (shown?.language === 'json' && isRun(shown) && isAnswer(shown, block))
          assert.deepEqual(missingIn(output, shown.text), [], `${placeOf(shown)} differs:\n${said}`);
      }
    } finally {
      await terminal.close();
    }
  });
}

test('every block names its language', () => {
  const unknown = all().filter(({ language }) => !languages.includes(language));
  assert.deepEqual(unknown.map(placeOf), []);
});

test('every piece of code is parsed by its language', async () => {
  for (const block of all().filter(isRun)) {
    const { language, text } = block;
    if (language === 'json') assert.equal(withoutValues(text).trim(), '', placeOf(block));
    if (language === 'yaml')
      assert.deepEqual(
        parseAllDocuments(text).flatMap(({ errors }) => errors),
        [],
        placeOf(block),
      );
    if (language === 'js' || language === 'ts' || language === 'tsx')
      await assert.doesNotReject(transform(text, { loader: language, format: 'esm' }), placeOf(block));
    if (language === 'sql') await reader.explain(text);
  }
});

test('every block that is not run has a reason', () => {
  const left = all().filter(({ notRun }) => notRun !== undefined);
  assert.deepEqual(left.filter(({ notRun = '' }) => notRun.length < 8).map(placeOf), []);
});

test('every route is mentioned in some page', async () => {
  const text = pages().map(read).join('\n');
  const { paths } = await readDocument(reader.service);
  const unsaid = operationsOf(paths).filter(({ path }) => !mentions(text, path));
  assert.deepEqual([...new Set(unsaid.map(({ path }) => path))], []);
});

function all(): Block[] {
  return pages().flatMap(blocksOf);
}

function read(page: string): string {
  return readFileSync(join(root, page), 'utf8');
}

/** Names of parameters may differ. */
function mentions(text: string, path: string): boolean {
  const pattern = path
    .replace(/\/$/, '')
    .split('/')
    .map((part) => (part.startsWith('{') ? '[^/\\s`]+' : part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')))
    .join('/');
  return new RegExp(`${pattern}(?![\\w-])`).test(text);
}
