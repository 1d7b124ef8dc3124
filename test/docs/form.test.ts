// The form of the documents: all pages are in the index, they are short, and their links lead somewhere.

import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { pages, root } from './blocks.ts';

const maxPageWords = 2_500;
const maxDecisionWords = 450;
const maxParagraphWords = 80;
const index = 'docs/README.md';
/** Scripts and tests write these pages, or large parts of them, from the code. */
const generated = [
  'docs/reference/cli.md',
  'docs/reference/event-types.md',
  'docs/reference/providers.md',
  'docs/reference/proxy-conformance.md',
  'docs/reference/sdk.md',
];
const decisions = globSync('docs/decisions/*.md', { cwd: root }).sort();
const all = [...pages(), ...decisions, 'CHANGELOG.md', 'SECURITY.md'];
const written = all.filter((page) => !generated.includes(page));

const read = (page: string) => readFileSync(join(root, page), 'utf8');
const withoutCode = (text: string) => text.replace(/^```.*?^```$/gms, '');
/** Without marks such as the bars of tables. */
const countWords = (text: string) => text.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length;

test('the index names every page', () => {
  const linked = linksOf(index).map(({ path }) => path);
  const missing = [...pages(), ...decisions].filter((page) => page !== index && !linked.includes(page));
  assert.deepEqual(missing, []);
});

test('no page is longer than 2,500 words, and no decision longer than a page', () => {
  const long = written
    .filter((page) => page !== 'CHANGELOG.md')
    .map((page) => ({ page, words: countWords(read(page)) }))
    .filter(({ page, words }) => words > (decisions.includes(page) ? maxDecisionWords : maxPageWords));
  assert.deepEqual(long, []);
});

test('no paragraph is longer than 80 words', () => {
  const long = written.flatMap((page) =>
    paragraphsOf(read(page))
      .map((paragraph) => ({ page, words: countWords(paragraph), begins: paragraph.slice(0, 60) }))
      .filter(({ words }) => words > maxParagraphWords),
  );
  assert.deepEqual(long, []);
});

test('every relative link leads to a file, and to a heading in it', () => {
  const dead = [...all, 'ARCHITECTURE.md', 'CONTRIBUTING.md'].flatMap((page) =>
    linksOf(page)
      .filter(({ path, anchor }) => !existsSync(join(root, path)) || !hasHeading(path, anchor))
      .map(({ url }) => `${page}: ${url}`),
  );
  assert.deepEqual(dead, []);
});

/** Paragraphs and items of lists; rows of tables are not paragraphs. */
function paragraphsOf(text: string): string[] {
  return withoutCode(text)
    .split(/\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )/)
    .filter((block) => !block.startsWith('|'));
}

/** Links to files of the repository, resolved from its root. */
function linksOf(page: string): { url: string; path: string; anchor: string | undefined }[] {
  return [...withoutCode(read(page)).matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, url]) => url!)
    .filter((url) => !/^[a-z]+:/.test(url))
    .map((url) => {
      const [path = '', anchor] = url.split('#');
      return { url, path: path === '' ? page : join(dirname(page), path), anchor };
    });
}

function hasHeading(path: string, anchor: string | undefined): boolean {
  if (anchor === undefined || !path.endsWith('.md')) return true;
  const headings = [...withoutCode(read(path)).matchAll(/^#{1,6} (.+)$/gm)].map(([, heading]) => heading!);
  return headings.some((heading) => anchorOf(heading) === anchor);
}

/** As GitHub makes it. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');
}
