import { randomBytes } from 'node:crypto';
import type { Brand } from '../brand.ts';
import type { Explanation } from './fault.ts';
import { Html, html } from './html.ts';
import { callbackScript } from './page-scripts.ts';
import { pageStyle } from './page-style.ts';

/**
 * The frame of every page of this room, and the pages that tell a result.
 *
 * Owns: the document, its headers, the callback page's contract with whoever opened it. Does not own: the connect page
 * (`connect-page.ts`), words for faults (`fault.ts`).
 */
export type Page = { status: number; headers: Record<string, string>; body: string };

/** What the callback page posts to its opener and to the channel. */
type Message = { type: string; payload?: { message: string; errorType: string } };

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

/** A failed step, for a reader and, where the page was opened by a program, for that program. 4xx or 5xx. */
export function faultPage(
  explanation: Explanation,
  { brand, status }: { brand: Brand; status: number },
): Page {
  const { type, title, message, nextStep, evidence } = explanation;
  const body = html`<p>${message}</p>
<p><strong>${nextStep}</strong></p>
${evidence !== undefined && html`<p class="said">${evidence}</p>`}`;
  return page({
    status,
    title,
    main: notice('error', { title, body }),
    script: callbackScript,
    data: {
      result: result(brand, {
        message: {
          type: `${brand.callbackMessage}_error`,
          payload: {
            message: evidence === undefined ? message : `${message} (${evidence})`,
            errorType: type,
          },
        },
        closesItself: false,
      }),
    },
  });
}

/** Scopes that were asked for and not granted, each with a sentence on it. */
export type MissingScopes = readonly { scope: string; description: string | undefined }[];

/** The end of a trip that made or renewed a connection. It stays open where there is something to read. */
export function donePage({
  brand,
  provider,
  account,
  missing,
}: {
  brand: Brand;
  provider: string;
  account: string | undefined;
  missing: MissingScopes;
}): Page {
  const { title, main } = connectedNotice({ provider, account, missing });
  return page({
    status: 200,
    title,
    main,
    script: callbackScript,
    data: {
      result: result(brand, {
        message: { type: `${brand.callbackMessage}_success` },
        closesItself: missing.length === 0,
      }),
    },
  });
}

/** What to say of a connection that was made: all is well, or which boxes were not ticked. */
export function connectedNotice({
  provider,
  account,
  missing,
}: {
  provider: string;
  account?: string | undefined;
  missing: MissingScopes;
}): { title: string; main: Html } {
  const isWhole = missing.length === 0;
  const title = isWhole ? `${provider} is connected` : `${provider} is connected, but not fully`;
  const boxes = missing.length === 1 ? 'This box was not ticked' : 'These boxes were not ticked';
  const list = missing.map(
    ({ scope, description }) =>
      html`<li>${description ?? scope}${description !== undefined && html` <span class="soft">${scope}</span>`}</li>`,
  );
  const body = html`${account !== undefined && html`<p>The account is <strong>${account}</strong>.</p>`}
${
  !isWhole &&
  html`<p>${boxes} on the provider's page, so the application may not do everything it is meant to:</p>
<ul class="scopes unticked">${list}</ul>
<p>To allow it, connect again from the application and tick every box.</p>`
}
<p class="soft">You can close this window and go back to the application. Each link is good for one connection.</p>`;
  return { title, main: notice(isWhole ? 'success' : 'warning', { title, body }) };
}

function result(brand: Brand, given: { message: Message; closesItself: boolean }): Record<string, unknown> {
  return { channel: brand.callbackChannel, ack: `${brand.callbackMessage}_ack`, ...given };
}
