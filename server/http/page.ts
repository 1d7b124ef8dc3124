import { randomBytes } from 'node:crypto';
import { Html, html } from './html.ts';
import { pageStyle } from './page-style.ts';

/** The document around every page that the service writes itself, and the headers that guard it. */
export type Page = { status: number; headers: Record<string, string>; body: string };

/** A whole document. `data` ends up in `data-` attributes of the body, as JSON; `script` is fixed text. */
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

/** For every answer of a route whose query or answer is nobody else's to see. */
export const privateHeaders = { 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' };

/** A title with a mark and what belongs under it. */
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
