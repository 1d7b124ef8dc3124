/**
 * Adds the guides to the build: a document for each page, made of `guides/index.html` as Vite has built it, the Markdown that
 * it was made from, `llms.txt`, and the text for the search.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { Plugin } from 'vite';
import { registryFields } from '../../../scripts/package-manifest.ts';
import { createLinks, type GuidePage, indexFile, read, readSections, root, type Section } from './index.ts';
import { bodyOf, headOf, notFoundBody } from './layout.ts';
import { createRenderer, type Rendered } from './markdown.ts';

const index: GuidePage = {
  file: indexFile,
  path: '',
  title: 'Documentation',
  about: 'The index of all pages.',
};

type Site = {
  sections: Section[];
  pages: (GuidePage & Rendered & { markdown: string })[];
  /** Files of `docs/` that pages link, such as the dashboard for Grafana. */
  files: Set<string>;
};

/** Text between `<!-- repository -->` and `<!-- /repository -->` is only for readers of the repository. */
export async function readSite(): Promise<Site> {
  const sections = readSections();
  const pages = [index, ...sections.flatMap(({ pages }) => pages)];
  const { homepage } = registryFields() as { homepage?: string };
  const repository = homepage?.replace('#readme', '');
  const paths = new Map(pages.map(({ file, path }) => [file, path]));
  const targetOf = createLinks({ paths, ...(repository !== undefined && { repository }) });
  const render = await createRenderer();
  const files = new Set<string>();
  const resolve = (from: string) => (url: string) => {
    const target = targetOf(from, url);
    if (target !== undefined && 'file' in target) files.add(target.file);
    return target?.address;
  };
  return {
    sections,
    files,
    pages: pages.map((page) => {
      const text = read(page.file).replace(/<!-- repository -->.*?<!-- \/repository -->\n*/gs, '');
      return { ...page, ...render(text, resolve(page.file)), markdown: markdownOf(text, resolve(page.file)) };
    }),
  };
}

/** The source of a page with links that lead to the sources of other pages. */
function markdownOf(text: string, resolve: (url: string) => string | undefined): string {
  const parts = text.replace(/<!-- (?:not run|fails): .*? -->\n+/gs, '').split(/^(```.*?^```$)/gms);
  const linked = (part: string) =>
    part.replace(/(\[[^\]]*\])\(([^)\s]+)\)/g, (_, words: string, url: string) => {
      const address = resolve(url);
      return address === undefined ? words.slice(1, -1) : `${words}(${toMarkdown(address)})`;
    });
  return parts.map((part) => (part.startsWith('```') ? part : linked(part))).join('');
}

const toMarkdown = (address: string) =>
  address.replace(/^\/guides(\/[^#.]+)?(?=#|$)/, (_, path: string = '/index') => `/guides${path}.md`);

/** By the convention of https://llmstxt.org. The service fills in its address. */
export function llmsOf(sections: readonly Section[]): string {
  const lines = sections.map(
    ({ title, pages }) =>
      `## ${title}\n\n${pages.map(({ path, title, about }) => `- [${title}](__BASE_URL__/guides/${path}.md)${about && `: ${about}`}`).join('\n')}\n`,
  );
  const { description } = JSON.parse(read('package.json')) as { description: string };
  return `# Trellis\n\n> ${description}\n\nThe HTTP interface as OpenAPI 3.1: __BASE_URL__/openapi.json\n\n${lines.join('\n')}`;
}

export function guides(): Plugin {
  let site: Site;
  let search: string;
  let theme: string;
  return {
    name: 'guides',
    apply: 'build',
    async buildStart() {
      site = await readSite();
      const passages = site.pages
        .slice(1)
        .flatMap(({ path, title, passages }) =>
          passages.map(({ id, text, body, level }) => [path, title, level === 1 ? '' : id, text, body]),
        );
      const emit = (name: string, source: string) => this.emitFile({ type: 'asset', name, source });
      search = emit('guides-search.json', JSON.stringify(passages));
      theme = emit('theme.js', readFileSync(join(import.meta.dirname, '../theme.js'), 'utf8'));
    },
    writeBundle({ dir = '' }) {
      const write = (name: string, text: string | Buffer) => {
        mkdirSync(dirname(join(dir, 'guides', name)), { recursive: true });
        writeFileSync(join(dir, 'guides', name), text);
      };
      const document = readFileSync(join(dir, 'guides/index.html'), 'utf8')
        .replace(/<meta property="csp-nonce".*?>/, '')
        .replaceAll(' nonce="__NONCE__"', '')
        // Runs before the page is shown; Vite bundles only modules, which run later.
        .replace('<!--head-->', `<script src="/${this.getFileName(theme)}"></script>\n<!--head-->`)
        .replace('__SEARCH__', this.getFileName(search));
      const writePage = (name: string, head: string, body: string) => {
        const html = document.replace('<!--head-->', () => head).replace('<!--body-->', () => body);
        write(`${name}.html`, html);
        write(`${name}.html.gz`, gzipSync(html));
      };
      for (const page of site.pages) {
        const name = page.path === '' ? 'index' : page.path;
        writePage(name, headOf(page), bodyOf(page, site));
        write(`${name}.md`, page.markdown);
      }
      writePage('not-found', `<title>Page not found · Trellis guides</title>`, notFoundBody(site.sections));
      for (const file of site.files) write(file.slice('docs/'.length), readFileSync(join(root, file)));
      write('llms.txt', llmsOf(site.sections));
    },
  };
}
