/** The pages that the service writes itself: an HTML template, the document around a page, and its style sheet. */
import { randomBytes } from 'node:crypto';

/** Text that is already HTML. Only `html` makes it. */
export class Html {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

type Part = Html | string | number | false | undefined | readonly Part[];

/** HTML from a template: every value is escaped for text and quoted attributes, unless it is `Html`. */
export function html(strings: TemplateStringsArray, ...parts: Part[]): Html {
  return new Html(strings.map((text, index) => text + write(parts[index])).join(''));
}

function write(part: Part): string {
  if (part === undefined || part === false) return '';
  if (part instanceof Html) return part.text;
  if (typeof part === 'object') return part.map(write).join('');
  return String(part).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

export type Page = { status: number; headers: Record<string, string>; body: string };

/** A whole document with a strict content security policy. `data` becomes `data-` attributes of the body, as JSON. */
export function page(content: {
  status: number;
  title: string;
  main: Html;
  script?: string;
  data?: Record<string, unknown>;
}): Page {
  const nonce = randomBytes(18).toString('base64url');
  const data = Object.entries(content.data ?? {}).map(
    ([name, value]) => html` ${new Html(`data-${name}`)}="${JSON.stringify(value)}"`,
  );
  const document = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<link rel="icon" href="data:,">
<title>${content.title}</title>
<style nonce="${nonce}">${new Html(pageStyle)}</style>
</head>
<body${data}>
${content.main}
${content.script !== undefined && html`<script nonce="${nonce}">${new Html(content.script)}</script>`}
</body>
</html>
`;
  return { status: content.status, headers: headersFor(nonce), body: document.text };
}

function headersFor(nonce: string): Record<string, string> {
  const policy = [
    "default-src 'none'",
    `script-src 'nonce-${nonce}'`,
    `style-src 'nonce-${nonce}'`,
    "img-src 'self' data:",
    "connect-src 'self'",
    "form-action 'none'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ];
  return {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': policy.join('; '),
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    ...privateHeaders,
  };
}

/** For every response of a route whose query or response must stay private. */
export const privateHeaders = { 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' };

/** A title with a mark, and the body below it. */
export function notice(
  tone: 'success' | 'warning' | 'error',
  { title, body }: { title: string; body: Html },
): Html {
  const mark = { success: '✓', warning: '!', error: '×' }[tone];
  return html`<main class="${tone}">
<div class="head"><span class="mark" aria-hidden="true">${mark}</span><h1>${title}</h1></div>
${body}
</main>`;
}

/** For light and dark, from 320 pixels up. */
const pageStyle = `
:root {
  color-scheme: light dark;
  --ground: #f4f5f7; --card: #ffffff; --text: #16191d; --soft: #59616b; --line: #dde1e6;
  --accent: #2454d6; --on-accent: #ffffff; --focus: #2454d655;
  --good: #12704a; --good-ground: #e7f6ee; --warn: #8a5200; --warn-ground: #fff4df;
  --bad: #b3261e; --bad-ground: #fdecea; --badge: #6b3fc9; --badge-ground: #f0eafc;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #101316; --card: #191d22; --text: #eceff2; --soft: #a2abb5; --line: #2e343b;
    --accent: #8fb0ff; --on-accent: #0c1a3d; --focus: #8fb0ff66;
    --good: #6fd6a4; --good-ground: #12291f; --warn: #f2bd66; --warn-ground: #2d2312;
    --bad: #ff9d94; --bad-ground: #341815; --badge: #c5adff; --badge-ground: #271e3d;
  }
}
* { box-sizing: border-box; }
html { background: var(--ground); -webkit-text-size-adjust: 100%; }
body {
  margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 24px 16px;
  background: var(--ground); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main {
  width: 100%; max-width: 480px; background: var(--card); border: 1px solid var(--line);
  border-radius: 16px; padding: 28px; overflow-wrap: anywhere;
}
@media (max-width: 440px) { body { place-items: start center; } main { padding: 22px 18px; } }
h1 { font-size: 1.375rem; line-height: 1.25; margin: 0; }
h2 { font-size: 0.9375rem; margin: 24px 0 8px; }
p { margin: 10px 0 0; }
a { color: var(--accent); }
ul { margin: 0; padding: 0; list-style: none; }
[hidden] { display: none !important; }
.soft { color: var(--soft); font-size: 0.9375rem; }
.head { display: flex; gap: 14px; align-items: center; }
.head img, .choice img {
  width: 44px; height: 44px; padding: 5px; border-radius: 10px; background: #ffffff; flex: none;
}
.mark {
  width: 44px; height: 44px; border-radius: 50%; display: grid; place-items: center; flex: none;
  font-size: 22px; font-weight: 700; line-height: 1;
}
.success .mark { background: var(--good-ground); color: var(--good); }
.warning .mark { background: var(--warn-ground); color: var(--warn); }
.error .mark { background: var(--bad-ground); color: var(--bad); }
.badge {
  font-size: 0.75rem; font-weight: 600; padding: 2px 8px; border-radius: 999px; white-space: nowrap;
  background: var(--badge-ground); color: var(--badge); vertical-align: middle;
}
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 4px 14px; margin: 20px 0 0; font-size: 0.9375rem; }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; }
.choices { display: grid; gap: 10px; margin-top: 20px; }
.choice {
  display: flex; align-items: center; gap: 14px; padding: 12px 14px; text-decoration: none; color: inherit;
  border: 1px solid var(--line); border-radius: 12px; font-weight: 600;
}
.choice .name { flex: 1; min-width: 0; }
.choice .name .soft { display: block; font-weight: 400; }
.choice:hover { border-color: var(--accent); }
.scopes li { padding: 7px 0 7px 24px; position: relative; font-size: 0.9375rem; }
.scopes li::before { content: "✓"; position: absolute; left: 2px; color: var(--soft); }
.unticked li::before { content: "☐"; left: 0; color: var(--warn); }
.button {
  display: block; width: 100%; margin-top: 22px; padding: 12px 16px; text-align: center; font: inherit;
  font-weight: 600; text-decoration: none; border: 0; border-radius: 10px; cursor: pointer;
  background: var(--accent); color: var(--on-accent);
}
.button:hover { filter: brightness(1.07); }
.button[disabled] { opacity: 0.6; cursor: progress; }
label { display: block; margin-top: 16px; font-size: 0.9375rem; font-weight: 600; }
label .soft { display: block; font-weight: 400; margin: 1px 0 6px; }
input {
  width: 100%; padding: 10px 12px; font: inherit; font-weight: 400; color: inherit; background: var(--card);
  border: 1px solid var(--line); border-radius: 8px;
}
input[aria-invalid="true"] { border-color: var(--bad); }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 1px; border-color: var(--accent); }
.notice { margin: 18px 0 0; padding: 12px 14px; border-radius: 10px; font-size: 0.9375rem; }
.notice.bad { background: var(--bad-ground); color: var(--bad); }
.notice.wait { background: var(--warn-ground); color: var(--warn); }
.said {
  margin: 16px 0 0; padding: 10px 12px; border: 1px solid var(--line); border-radius: 8px; color: var(--soft);
  font: 0.8125rem/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre-wrap;
}
details { margin-top: 22px; border-top: 1px solid var(--line); padding-top: 14px; font-size: 0.9375rem; }
summary { cursor: pointer; color: var(--soft); }
details li { padding-top: 10px; }
.foot { margin-top: 22px; font-size: 0.875rem; color: var(--soft); }
`;
