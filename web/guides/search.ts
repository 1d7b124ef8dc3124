import MiniSearch from 'minisearch';

/** The search: a dialog whose index is loaded and built when it is first opened. */
type Passage = { id: number; address: string; page: string; heading: string; text: string };
const maxResults = 20;
const excerptLength = 160;
/** Pages that mention most words, but explain few. */
const lists = /^\/guides\/(changelog|decisions\/|reference\/event-types)/;

const dialog = document.createElement('dialog');
dialog.className = 'search';
dialog.setAttribute('aria-label', 'Search the guides');
dialog.innerHTML = `<input type="search" placeholder="Search the guides" aria-label="Search the guides" autocomplete="off" spellcheck="false">
<p class="dimmed" role="status"></p><ul></ul>`;
document.body.append(dialog);
const input = dialog.querySelector('input')!;
const status = dialog.querySelector('p')!;
const list = dialog.querySelector('ul')!;
let index: Promise<MiniSearch<Passage>> | undefined;

export function openSearch(): void {
  if (!dialog.open) dialog.showModal();
  input.select();
  index ??= load();
  void show();
}

/**
 * The name of an error, a field or a setting is found as a whole and by its words, and a name such as Next.js without its
 * point, too.
 */
function tokenize(text: string): string[] {
  const names = text.match(/[\p{L}\p{N}_]+/gu) ?? [];
  const joined = (text.match(/\p{L}+\.js\b/giu) ?? []).map((name) => name.replace('.', ''));
  return names
    .flatMap((name) => (name.includes('_') ? [name, ...name.split('_').filter(Boolean)] : [name]))
    .concat(joined);
}

async function load(): Promise<MiniSearch<Passage>> {
  const response = await fetch(document.body.dataset.search ?? '');
  if (!response.ok) throw new Error(`The index could not be loaded: ${response.status}`);
  const rows = (await response.json()) as [string, string, string, string, string][];
  const search = new MiniSearch<Passage>({
    fields: ['page', 'heading', 'text'],
    tokenize,
    storeFields: ['address', 'page', 'heading', 'text'],
    searchOptions: {
      boost: { page: 3, heading: 4 },
      prefix: true,
      boostDocument: (_, __, stored) => (lists.test(String(stored?.address)) ? 0.3 : 1),
      fuzzy: (term) => (term.length > 4 ? 0.2 : false),
    },
  });
  search.addAll(
    rows.map(([path, page, anchor, heading, text], id) => ({
      id,
      page,
      heading,
      text,
      address: `/guides/${path}${anchor === '' ? '' : `#${anchor}`}`,
    })),
  );
  return search;
}

async function show(): Promise<void> {
  const typed = input.value.trim();
  const search = await index?.catch((error: unknown) => {
    index = undefined;
    status.textContent = error instanceof Error ? error.message : String(error);
  });
  if (search === undefined || typed !== input.value.trim()) return;
  const all = search.search(typed, { combineWith: 'AND' });
  const found = all.length > 0 ? all : search.search(typed);
  const typedWords = longestFirst(tokenize(typed.toLowerCase()));
  list.replaceChildren(
    ...found.slice(0, maxResults).map(({ address, page, heading, text, match }) => {
      const link = document.createElement('a');
      link.href = String(address);
      const title = document.createElement('strong');
      const words = longestFirst(Object.keys(match));
      title.append(...marked(heading === page ? String(page) : `${page} › ${heading}`, words));
      const excerpt = document.createElement('span');
      excerpt.append(...marked(excerptOf(String(text), [...typedWords, ...words]), words));
      link.append(title, excerpt);
      const item = document.createElement('li');
      item.append(link);
      return item;
    }),
  );
  status.textContent =
    typed === ''
      ? 'Type words, an error code or the name of a setting.'
      : found.length === 0
        ? 'No page has these words.'
        : '';
}

const longestFirst = (words: string[]) => words.toSorted((one, other) => other.length - one.length);

/** The text around the first of the words that is in it. */
function excerptOf(text: string, words: readonly string[]): string {
  const lower = text.toLowerCase();
  const word = words.find((word) => lower.includes(word));
  const first = word === undefined ? 0 : lower.indexOf(word);
  const from = first < 60 ? 0 : text.indexOf(' ', first - 60) + 1;
  const end = from + excerptLength;
  return `${from > 0 ? '… ' : ''}${text.slice(from, end)}${end < text.length ? ' …' : ''}`;
}

function marked(text: string, words: readonly string[]): (string | HTMLElement)[] {
  if (words.length === 0) return [text];
  const escaped = words.map((word) => RegExp.escape(word));
  return text.split(new RegExp(`(${escaped.join('|')})`, 'i')).map((part, at) => {
    if (at % 2 === 0) return part;
    const mark = document.createElement('mark');
    mark.textContent = part;
    return mark;
  });
}

input.addEventListener('input', show);
// A click on the backdrop.
dialog.addEventListener('click', ({ target }) => {
  if (target === dialog) dialog.close();
  // A result on the same page is an address that the browser does not load again.
  if ((target as Element).closest('a')) dialog.close();
});
dialog.addEventListener('keydown', (event) => {
  const links = [...list.querySelectorAll('a')];
  const at = links.indexOf(document.activeElement as HTMLAnchorElement);
  const isDown = event.key === 'ArrowDown';
  // In a field with text, a browser would only empty the field.
  if (event.key === 'Escape') dialog.close();
  if (event.key === 'Enter' && document.activeElement === input) links[0]?.click();
  if (!isDown && event.key !== 'ArrowUp') return;
  event.preventDefault();
  (links[at + (isDown ? 1 : -1)] ?? (isDown ? links[0] : input))?.focus();
});
