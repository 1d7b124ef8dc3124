import { randomBytes } from 'node:crypto';
import type { Reply } from './http.ts';

/** Text that is HTML already. */
export class Html {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** A template whose values are escaped unless they are `Html`. Lists are joined; undefined and false are empty. */
export function html(parts: TemplateStringsArray, ...values: unknown[]): Html {
  return new Html(parts.reduce((text, part, index) => text + render(values[index - 1]) + part));
}

function render(value: unknown): string {
  if (value instanceof Html) return value.text;
  if (Array.isArray(value)) return value.map(render).join('');
  if (value === undefined || value === false) return '';
  return String(value).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

const style = `
:root { color-scheme: light dark; --ground: #f3f4f1; --sheet: #fff; --ink: #1d2320; --quiet: #5d6762; --line: #d7dcd8; --accent: #1b6b4a; --on-accent: #fff; --notice: #fff3d6; --on-notice: #5a4208; }
@media (prefers-color-scheme: dark) { :root { --ground: #131715; --sheet: #1c211f; --ink: #e6ebe8; --quiet: #9aa6a0; --line: #343c38; --accent: #63c298; --on-accent: #0d1f17; --notice: #3a2f12; --on-notice: #f2dca4; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 27rem; margin: 6vh auto; padding: 1.75rem; background: var(--sheet); border: 1px solid var(--line); border-radius: 12px; }
main.wide { max-width: 62rem; margin: 2rem auto; }
@media (max-width: 30rem) { main, main.wide { margin: 0; border: 0; border-radius: 0; min-height: 100vh; padding: 1.25rem; } }
h1 { margin: 0 0 .25rem; font-size: 1.35rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .5rem; font-size: 1rem; }
p { margin: .5rem 0; }
.quiet { color: var(--quiet); }
.notice { margin: 0 0 1.25rem; padding: .5rem .75rem; border-radius: 8px; background: var(--notice); color: var(--on-notice); font-size: .875rem; }
.row { display: flex; gap: .75rem; width: 100%; padding: .7rem .25rem; border: 0; border-bottom: 1px solid var(--line); background: none; color: inherit; font: inherit; text-align: left; align-items: flex-start; }
button.row, label.row { cursor: pointer; }
button.row:hover, label.row:hover { background: var(--ground); }
.row small, td small { display: block; color: var(--quiet); overflow-wrap: anywhere; }
input[type=checkbox] { width: 1.1rem; height: 1.1rem; margin: .2rem 0 0; flex: none; accent-color: var(--accent); }
input[type=email], input[type=text], input[type=number], select { flex: 1; min-width: 0; padding: .5rem .65rem; border: 1px solid var(--line); border-radius: 8px; background: var(--ground); color: inherit; font: inherit; }
.line { display: flex; align-items: center; gap: .5rem; margin-top: 1rem; }
.actions { display: flex; justify-content: flex-end; gap: .5rem; margin-top: 1.5rem; }
.button { padding: .5rem 1rem; border: 1px solid var(--line); border-radius: 8px; background: none; color: inherit; font: inherit; font-weight: 600; cursor: pointer; }
.button.primary { background: var(--accent); border-color: var(--accent); color: var(--on-accent); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
a { color: var(--accent); }
code { font: .85em ui-monospace, monospace; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table code { overflow-wrap: normal; }
table { width: 100%; border-collapse: collapse; font-size: .875rem; }
th, td { padding: .4rem .75rem .4rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { color: var(--quiet); font-weight: 500; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
`;

/**
 * A whole page. It may not be framed or cached, and loads nothing.
 *
 * The policy has no `form-action`, since browsers also apply it to the redirect to the client that follows the consent form.
 * Every value is escaped, so no foreign form can be injected.
 */
export function htmlPage(status: number, page: { title: string; body: Html; wideStyle?: string }): Reply {
  const nonce = randomBytes(16).toString('base64url');
  const document = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${page.title} · Trellis sandbox</title>
<style nonce="${nonce}">${new Html(style)}${page.wideStyle !== undefined && new Html(page.wideStyle)}</style>
</head>
<body>
<main${page.wideStyle !== undefined && new Html(' class="wide"')}>
<p class="notice"><b>Trellis sandbox, not Google.</b> A provider for tests: its accounts and data are not real.</p>
${page.body}
</main>
</body>
</html>
`;
  return {
    status,
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'cache-control': 'no-store',
      'content-security-policy': `default-src 'none'; style-src 'nonce-${nonce}'; base-uri 'none'; frame-ancestors 'none'`,
      'x-frame-options': 'DENY',
      'x-content-type-options': 'nosniff',
      // With no-referrer, browsers would send "Origin: null" with the page's own forms.
      'referrer-policy': 'same-origin',
    },
    body: document.text,
  };
}
