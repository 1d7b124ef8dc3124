/** The HTML around the text of a page: header, navigation, headings of the page, previous and next page. */
import { addressOf, type GuidePage, type Section } from './index.ts';
import { escapeHtml, type Rendered } from './markdown.ts';

const link = (path: string, text: string, attributes = '') =>
  `<a href="${addressOf(path)}"${attributes}>${escapeHtml(text)}</a>`;

export function headOf({ path, title, about }: GuidePage): string {
  const markdown = `${addressOf(path === '' ? 'index' : path)}.md`;
  return `<title>${escapeHtml(title)} · Trellis guides</title>
<meta name="description" content="${escapeHtml(about)}">
<link rel="alternate" type="text/markdown" href="${markdown}">`;
}

export function bodyOf(page: GuidePage & Rendered, { sections }: { sections: readonly Section[] }): string {
  const pages = sections.flatMap(({ pages }) => pages);
  const at = pages.findIndex(({ path }) => path === page.path);
  const turn = (to: GuidePage | undefined, rel: 'prev' | 'next') =>
    to === undefined
      ? '<span></span>'
      : `<a rel="${rel}" href="${addressOf(to.path)}"><small>${rel === 'prev' ? 'Previous' : 'Next'}</small>${escapeHtml(to.title)}</a>`;
  const headings = page.headings.filter(({ level }) => level === 2 || level === 3);
  const onPage = headings
    .map(({ level, id, text }) => `<li class="level-${level}"><a href="#${id}">${escapeHtml(text)}</a></li>`)
    .join('\n');
  const html = page.html.replace(
    '</h1>',
    (end) =>
      `${end}${headings.length < 2 ? '' : `<details class="on-page-narrow"><summary>On this page</summary><ul>${onPage}</ul></details>`}`,
  );
  const sectionOf = sections.find(({ pages }) => pages.some(({ path }) => path === page.path));
  return frame(
    navigation(sections, page.path),
    `<main id="site-content" tabindex="-1">
${sectionOf === undefined ? '' : `<p class="where">${escapeHtml(sectionOf.title)}</p>`}
<article>
${html}</article>
<footer>
<p><a href="${addressOf(page.path === '' ? 'index' : page.path)}.md">This page as Markdown</a></p>
<nav class="turn" aria-label="Previous and next page">${turn(pages[at - 1], 'prev')}${turn(pages[at + 1], 'next')}</nav>
</footer>
</main>
<aside class="on-page">${headings.length < 2 ? '' : `<nav aria-label="On this page"><h2>On this page</h2><ul>${onPage}</ul></nav>`}</aside>`,
  );
}

export function notFoundBody(sections: readonly Section[]): string {
  return frame(
    navigation(sections, undefined),
    `<main id="site-content" tabindex="-1">
<article><h1>Page not found</h1>
<p>No page of the guides has this address. Search for it, or go to ${link('', 'the index of all pages')}.</p>
<p><button type="button" class="search-button" data-search>Search the guides</button></p></article>
</main>
<aside class="on-page"></aside>`,
  );
}

function navigation(sections: readonly Section[], current: string | undefined): string {
  const groups = sections.map(({ title, pages }, index) => {
    const isOpen = index === 0 || pages.some(({ path }) => path === current);
    const links = pages.map(
      ({ path, title }) => `<li>${link(path, title, path === current ? ' aria-current="page"' : '')}</li>`,
    );
    return `<details${isOpen ? ' open' : ''}><summary>${escapeHtml(title)}</summary><ul>${links.join('\n')}</ul></details>`;
  });
  return `<nav id="site-pages" aria-label="Pages">
<ul><li>${link('', 'All pages', current === '' ? ' aria-current="page"' : '')}</li></ul>
${groups.join('\n')}
<ul class="apart"><li><a href="/docs/">API reference</a></li><li><a href="/app">Dashboard</a></li></ul>
</nav>`;
}

const magnifier =
  '<svg width="16" height="16" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" aria-hidden="true"><circle cx="10" cy="10" r="7"/><path d="M21 21l-6-6"/></svg>';
const halfMoon =
  '<svg width="18" height="18" viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" stroke-linejoin="round" aria-hidden="true"><circle cx="12" cy="12" r="9"/><path d="M12 3v18a9 9 0 0 0 0-18" fill="currentColor"/></svg>';
const mark =
  '<svg width="28" height="28" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" fill="#2454d6"/><path d="M10 7v18M22 7v18M7 12h18M7 20h18" stroke="#fff" stroke-width="2.6" stroke-linecap="round" fill="none"/></svg>';

function frame(navigation: string, content: string): string {
  return `<a class="skip" href="#site-content">Skip to the content</a>
<header>
<button type="button" class="burger" aria-label="Pages" aria-controls="site-pages" aria-expanded="false"><span></span></button>
<a class="brand" href="/guides">${mark}<span>Trellis <span class="dimmed">guides</span></span></a>
<button type="button" class="search-button" data-search>${magnifier}<span>Search</span><kbd>/</kbd></button>
<a class="to-app" href="/app">Dashboard</a>
<button type="button" class="scheme" aria-label="Switch between light and dark">${halfMoon}</button>
</header>
<div class="columns">
${navigation}
${content}
</div>`;
}
