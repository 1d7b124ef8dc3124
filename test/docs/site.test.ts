// The guides as the build makes them: each link of each page leads to a page, a file or a heading.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { guides } from '../../web/dashboard/guides.ts';
import { bodyOf, notFoundBody } from '../../web/guides/site/layout.ts';
import { llmsOf, readSite } from '../../web/guides/site/plugin.ts';

let site: Awaited<ReturnType<typeof readSite>>;
/** HTML of each page, by its address. */
let documents: Map<string, string>;
before(async () => {
  site = await readSite();
  documents = new Map(
    site.pages.map((page) => [page.path === '' ? '/guides' : `/guides/${page.path}`, bodyOf(page, site)]),
  );
});

const elsewhere = ['/app', '/docs/', '/docs', '/llms.txt', '/openapi.json'];
const idsOf = (html: string) => new Set([...html.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id));

test('every link of every page leads to a page and to a heading in it', () => {
  const sources = [...documents.keys()].map((address) => (address === '/guides' ? '/guides/index' : address));
  const files = new Set([
    ...sources.map((address) => `${address}.md`),
    ...[...site.files].map((file) => file.replace(/^docs/, '/guides')),
  ]);
  const dead = [...documents, ['/guides/not-found', notFoundBody(site.sections)] as const].flatMap(
    ([page, html]) =>
      [...html.matchAll(/ href="([^"]+)"/g)]
        .map(([, href = '']) => href)
        .filter((href) => !/^[a-z]+:/.test(href) && !elsewhere.includes(href) && !files.has(href))
        .filter((href) => {
          const [address = '', anchor] = href.split('#');
          const target = address === '' ? html : documents.get(address);
          return target === undefined || (anchor !== undefined && !idsOf(target).has(anchor));
        })
        .map((href) => `${page}: ${href}`),
  );
  assert.deepEqual(dead, []);
});

test('every link of the dashboard leads to a page and to a heading in it', () => {
  const dead = Object.entries(guides).filter(([, { path }]) => {
    const [page = '', anchor] = path.split('#');
    const target = documents.get(`/guides/${page}`);
    return target === undefined || (anchor !== undefined && !idsOf(target).has(anchor));
  });
  assert.deepEqual(dead, []);
});

test('the links of the Markdown of a page lead to the Markdown of pages', () => {
  const sources = new Set(
    [...documents.keys()].map((address) => `${address === '/guides' ? '/guides/index' : address}.md`),
  );
  const dead = site.pages.flatMap(({ path, markdown }) =>
    [...markdown.replace(/^```.*?^```$/gms, '').matchAll(/\]\((\/[^)#]*)/g)]
      .map(([, address = '']) => address)
      .filter((address) => address.endsWith('.md') || !/\.(json|yaml)$/.test(address))
      .filter((address) => !sources.has(address))
      .map((address) => `${path}: ${address}`),
  );
  assert.deepEqual(dead, []);
});

test('no two elements of a page have one id', () => {
  const double = [...documents].filter(
    ([, html]) => [...html.matchAll(/ id="/g)].length !== idsOf(html).size,
  );
  assert.deepEqual(
    double.map(([address]) => address),
    [],
  );
});

test('code has classes for its colours, since the policy of the pages allows no style attribute', () => {
  const all = [...documents.values()].join('');
  assert.doesNotMatch(all, / style="/);
  assert.match(documents.get('/guides/quickstart') ?? '', /<span class="is-function">curl<\/span>/);
});

test('llms.txt has one line for each page', () => {
  const listed = [...llmsOf(site.sections).matchAll(/^- \[.+\]\(__BASE_URL__\/guides\/(.+)\.md\)/gm)];
  assert.deepEqual(
    listed.map(([, path]) => path),
    site.pages.slice(1).map(({ path }) => path),
  );
});
