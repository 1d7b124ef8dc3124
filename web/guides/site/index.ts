/**
 * The pages of the guides: every Markdown file of the repository that a table or list of `docs/README.md` names, in that
 * order. The index itself is the first page.
 */
import { readFileSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

export const root = join(import.meta.dirname, '../../..');
export const indexFile = 'docs/README.md';

export type GuidePage = {
  /** In the repository, such as `docs/guides/connect.md`. */
  file: string;
  /** Below `/guides/`, such as `connect`; empty for the index. */
  path: string;
  title: string;
  /** One phrase; may be empty. */
  about: string;
};
export type Section = { title: string; pages: GuidePage[] };

export const read = (file: string) => readFileSync(join(root, file), 'utf8');

/** The sections of the index with their pages. */
export function readSections(): Section[] {
  return read(indexFile)
    .split(/^## /m)
    .slice(1)
    .map((text) => ({
      title: capitalized(text.slice(0, text.indexOf('\n')).replace(/^Guides: /, '')),
      pages: [...text.matchAll(/^(?:\| |- )\[([^\]]+)\]\(([^)\s]+\.md)\)(?: \| (.+?) \|)?$/gm)].map(
        ([, title = '', link = '', about = '']) => {
          const file = join('docs', link);
          return { file, path: pathOf(file), title, about };
        },
      ),
    }))
    .filter(({ pages }) => pages.length > 0);
}

/** `docs/guides/connect.md` is at `connect`, `docs/reference/errors.md` at `reference/errors`. */
export function pathOf(file: string): string {
  if (file === indexFile) return '';
  return join(dirname(file), basename(file, '.md').toLowerCase()).replace(/^docs\/(guides\/)?/, '');
}

/** The address of a page, a file or a heading of the guides. */
export const addressOf = (path: string) => `/guides${path === '' ? '' : `/${path}`}`;

const capitalized = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

export type Target = { address: string } | { file: string; address: string } | undefined;

/**
 * Where a link of a page leads: to a page, to another file of `docs/` that becomes part of the site (`file`), to another
 * host, or to the repository if its address is known. Undefined if the link has no target outside a clone.
 */
export function createLinks({
  paths,
  repository,
}: {
  paths: ReadonlyMap<string, string>;
  repository?: string;
}) {
  return (from: string, url: string): Target => {
    if (/^[a-z]+:/.test(url)) return { address: url };
    const [path = '', anchor] = url.split('#');
    const file = path === '' ? from : join(dirname(from), path);
    const hash = anchor === undefined ? '' : `#${anchor}`;
    const page = paths.get(file);
    if (page !== undefined) return { address: addressOf(page) + hash };
    if (file.startsWith('docs/') && statSync(join(root, file)).isFile())
      return { file, address: addressOf(file.slice('docs/'.length)) };
    return repository === undefined ? undefined : { address: `${repository}/blob/main/${file}${hash}` };
  };
}
