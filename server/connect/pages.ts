import type { Brand } from '../brand.ts';
import { type Html, html } from '../http/html.ts';
import { notice, type Page, page } from '../http/page.ts';
import type { Announcement } from './begin.ts';
import type { Explanation } from './fault.ts';
import { askScript, callbackScript } from './page-scripts.ts';

/**
 * The page that asks before an attempt begins, the pages that show a result, and the callback page's contract with the
 * window that opened it. Does not own: the document around them (`http/page.ts`), the connect page (`web/connect/`), words for faults
 * (`fault.ts`).
 */
/** What the callback page posts to its opener and to the channel. */
type Message = { type: string; payload?: { message: string; errorType: string } };

/**
 * Says who asks for access to an account and for whom the connection will be, as the connect page does. Its button leads
 * to the address of the page itself, this time from a page of ours.
 */
export function askPage(
  { appName, environment, integration, isReconnect, endUser }: Announcement,
  { baseUrl }: { baseUrl: string },
): Page {
  const { provider, displayName } = integration;
  const title = `${isReconnect ? 'Reconnect' : 'Connect'} ${displayName}`;
  const { host, pathname } = new URL(baseUrl);
  const logo = `${pathname.replace(/\/$/, '')}/providers/logos/${provider.logo}`;
  const { name, email, organization } = endUser ?? {};
  const address = email && email !== name ? ` (${email})` : '';
  return page({
    status: 200,
    title,
    main: html`<main>
<div class="head"><img src="${logo}" alt=""><h1>${title}${integration.isTest && html` <span class="badge">Test</span>`}</h1></div>
<p class="soft">${appName ?? 'The application'} asks for access to your ${provider.display_name} account. Go on only if you came from there yourself.</p>
<dl class="facts">
${name ? html`<dt>For</dt><dd>${name}${address}${organization ? `, ${organization}` : ''}</dd>` : ''}
<dt>Through</dt><dd>${host}, ${environment}</dd>
</dl>
<a class="button" href="">Continue to ${provider.display_name}</a>
</main>`,
    script: askScript,
  });
}

/** A failed step, for a reader and, where the page was opened by a program, for that program. 4xx or 5xx. */
export function faultPage(
  explanation: Explanation,
  { brand, connectPath, status }: { brand: Brand; connectPath: string; status: number },
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
        connectPath,
      }),
    },
  });
}

/** Scopes that were asked for and not granted, each with a sentence on it. */
export type MissingScopes = readonly { scope: string; description: string | undefined }[];

/** The end of a trip that made or renewed a connection. It stays open where there is something to read. */
export function donePage({
  brand,
  connectPath,
  provider,
  account,
  isOtherAccount,
  missing,
}: {
  brand: Brand;
  connectPath: string;
  provider: string;
  account: string | undefined;
  isOtherAccount: boolean;
  missing: MissingScopes;
}): Page {
  const { title, main } = connectedNotice({ provider, account, isOtherAccount, missing });
  return page({
    status: 200,
    title,
    main,
    script: callbackScript,
    data: {
      result: result(brand, {
        message: { type: `${brand.callbackMessage}_success` },
        closesItself: missing.length === 0,
        connectPath,
      }),
    },
  });
}

/** What to say of a connection that was made: all is well, or which boxes were not ticked. */
function connectedNotice({
  provider,
  account,
  isOtherAccount = false,
  missing,
}: {
  provider: string;
  account?: string | undefined;
  isOtherAccount?: boolean;
  missing: MissingScopes;
}): { title: string; main: Html } {
  const isWhole = missing.length === 0;
  const title = isWhole ? `${provider} is connected` : `${provider} is connected, but not fully`;
  const boxes = missing.length === 1 ? 'This box was not ticked' : 'These boxes were not ticked';
  const list = missing.map(
    ({ scope, description }) =>
      html`<li>${description ?? scope}${description !== undefined && html` <span class="soft">${scope}</span>`}</li>`,
  );
  const body = html`${account !== undefined && html`<p>The account is <strong>${account}</strong>${isOtherAccount && ', in place of the one that was connected before'}.</p>`}
${
  !isWhole &&
  html`<p>${boxes} on the provider's page, so the application may not do everything it is meant to:</p>
<ul class="scopes unticked">${list}</ul>
<p>To allow it, close this window, ask for it where you came from, and tick every box.</p>`
}
<p class="soft">You can close this window and go back to the application. Each link is good for one connection.</p>`;
  return { title, main: notice(isWhole ? 'success' : 'warning', { title, body }) };
}

function result(
  brand: Brand,
  given: { message: Message; closesItself: boolean; connectPath: string },
): Record<string, unknown> {
  return {
    returnKey: `${brand.word}_connect_return`,
    channel: brand.callbackChannel,
    ack: `${brand.callbackMessage}_ack`,
    ...given,
  };
}
