import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export const root = join(import.meta.dirname, '../..');

/** A fenced block of a page. */
export type Block = {
  page: string;
  line: number;
  language: string;
  text: string;
  /** The reason for not running it, from `<!-- not run: ... -->` before it. */
  notRun?: string | undefined;
  /** The expected error code, from `<!-- fails: ... -->` before it. */
  fails?: string | undefined;
};

/** The pages for users, in order, without the decision records. */
export function pages(): string[] {
  return ['README.md', ...globSync('docs/**/*.md', { cwd: root }).sort()].filter(
    (page) => !page.startsWith('docs/decisions/'),
  );
}

const fence = /(?:<!-- (not run|fails): ([^\n]*?) -->\n+)?^```(\w*)\n(.*?)^```$/gms;

/** All blocks of a page, in its order. */
export function blocksOf(page: string): Block[] {
  const text = readFileSync(join(root, page), 'utf8');
  return [...text.matchAll(fence)].map(
    ({ 0: whole, 1: kind, 2: said, 3: language = '', 4: block = '', index }) => ({
      page,
      line: text.slice(0, index + whole.indexOf('```')).split('\n').length,
      language,
      text: block,
      notRun: kind === 'not run' ? said : undefined,
      fails: kind === 'fails' ? said : undefined,
    }),
  );
}

/** The position of a block, for messages. */
export function placeOf({ page, line }: Block): string {
  return `${page}:${line}`;
}
