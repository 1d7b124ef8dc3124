import './guides.css';

/** The parts of the guides that need a script: colours, the menu on narrow screens, copy buttons, the search. */
const choiceName = 'mantine-color-scheme-value';
const system = matchMedia('(prefers-color-scheme: dark)');
const root = document.documentElement;

function showScheme(): void {
  const choice = localStorage.getItem(choiceName) ?? 'auto';
  root.dataset.mantineColorScheme = choice === 'auto' ? (system.matches ? 'dark' : 'light') : choice;
}
system.addEventListener('change', showScheme);
// The dashboard in another tab has changed it.
addEventListener('storage', showScheme);
document.querySelector('.scheme')?.addEventListener('click', () => {
  const isDark = root.dataset.mantineColorScheme === 'dark';
  // A choice that matches the system follows it from then on.
  localStorage.setItem(choiceName, isDark === system.matches ? (isDark ? 'light' : 'dark') : 'auto');
  showScheme();
});

const burger = document.querySelector('.burger');
burger?.addEventListener('click', () => {
  const isOpen = document.body.classList.toggle('menu-open');
  burger.setAttribute('aria-expanded', String(isOpen));
});
document.querySelector('#site-pages [aria-current]')?.scrollIntoView({ block: 'nearest' });

/** Code of the pages names this service, and the sandbox beside it, which by default has the next port. */
const isLocal = ['localhost', '127.0.0.1', '[::1]'].includes(location.hostname) && location.port !== '';
const sandbox = isLocal ? `http://localhost:${Number(location.port) + 1}` : undefined;
const withAddresses = (code: string) =>
  code.replace(/http:\/\/localhost:(3003|3004)\b/g, (named, port) =>
    port === '3003' ? location.origin : (sandbox ?? named),
  );

for (const code of document.querySelectorAll('.code')) {
  const texts = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text !== null; text = texts.nextNode())
    text.textContent = withAddresses(text.textContent ?? '');
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = 'Copy';
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(code.querySelector('code')?.textContent ?? '');
    button.textContent = 'Copied';
    setTimeout(() => {
      button.textContent = 'Copy';
    }, 2_000);
  });
  code.append(button);
}

/** Marks the heading that is read in the list of headings. */
const entries = new Map(
  [...document.querySelectorAll<HTMLAnchorElement>('.on-page a')].map((entry) => [
    entry.hash.slice(1),
    entry,
  ]),
);
const headings = [...document.querySelectorAll('article :is(h2, h3)')];
function markHeading(): void {
  const above = headings.filter((heading) => heading.getBoundingClientRect().top < 120);
  const current = entries.get((above.at(-1) ?? headings[0])?.id ?? '');
  for (const entry of entries.values()) entry.classList.toggle('current', entry === current);
}
if (entries.size > 0) {
  addEventListener('scroll', markHeading, { passive: true });
  markHeading();
}

// A newer build has other files: the page of that build can load its search. Without the service, this page stays.
const reload = () =>
  fetch(location.href, { method: 'HEAD' }).then(
    ({ ok }) => ok && location.reload(),
    () => {},
  );
const openSearch = () => import('./search.ts').then((search) => search.openSearch(), reload);
for (const button of document.querySelectorAll('[data-search]:is(button)'))
  button.addEventListener('click', openSearch);
addEventListener('keydown', (event) => {
  const isTyping = (event.target as Element).matches('input, textarea, select');
  const isShortcut =
    (event.key === 'k' && (event.ctrlKey || event.metaKey)) || (event.key === '/' && !isTyping);
  if (!isShortcut) return;
  event.preventDefault();
  void openSearch();
});
