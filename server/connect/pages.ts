/**
 * The page that asks before an authorization begins, the pages that show its result, and their scripts. Does not own: the
 * document around them (`http/pages/page.ts`), the connect page (`web/connect/`), explanations of faults (`failures.ts`).
 */
import type { Brand } from '../brand.ts';
import type { FieldError } from '../errors.ts';
import { html, notice, type Page, page } from '../http/pages/page.ts';
import type { Announcement } from './begin.ts';
import type { Explanation } from './failures.ts';

/** The message that the callback page posts to its opener and to the channel. */
type Message = {
  type: string;
  payload?: { message: string; errorType: string; errors?: FieldError[] | undefined };
};

/**
 * Names the application that requests access and the end user of the connection, as the connect page does. Its button
 * leads to the address of the page itself, now from a page of the service.
 */
export function confirmPage(
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
    script: confirmScript,
  });
}

/** A failed step, for a reader and, if a program opened the page, for that program. 4xx or 5xx. */
export function faultPage(
  explanation: Explanation,
  { brand, connectPath, status }: { brand: Brand; connectPath: string; status: number },
): Page {
  const { type, title, message, nextStep, evidence, errors } = explanation;
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
            errors,
          },
        },
        closesItself: false,
        connectPath,
      }),
    },
  });
}

/** Scopes that were requested and not granted, each with a description. */
export type MissingScopes = readonly { scope: string; description: string | undefined }[];

/**
 * The page after an authorization that made or renewed a connection, with the scopes that were not granted. The page stays
 * open if there are such scopes.
 */
export function donePage(given: {
  brand: Brand;
  connectPath: string;
  provider: string;
  account: string | undefined;
  isOtherAccount: boolean;
  missing: MissingScopes;
}): Page {
  const { brand, connectPath, provider, account, isOtherAccount, missing } = given;
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
  return page({
    status: 200,
    title,
    main: notice(isWhole ? 'success' : 'warning', { title, body }),
    script: callbackScript,
    data: {
      result: result(brand, {
        message: { type: `${brand.callbackMessage}_success` },
        closesItself: isWhole,
        connectPath,
      }),
    },
  });
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

/**
 * The script of the callback page, sent with a nonce. Its input is in a `data-` attribute of the body, so that no value is
 * ever put into script text.
 *
 * The script reports the result to the window's opener, over `window.opener` and, for browsers in which the provider's
 * pages have cut that link, over a BroadcastChannel. The message holds no secret, so any origin may receive it. A message
 * on the channel names no attempt, so an acknowledgement on it does not close a page with a fault: it may be meant for
 * another page. A connect page that went to the provider in its own tab has stored the search of its address in the tab's
 * storage: the script returns to that page, which finds the result there. The token, the code and the state are removed
 * from the address, so that no history keeps them.
 */
const callbackScript = `
const { channel, ack, message, closesItself, connectPath, returnKey } = JSON.parse(document.body.dataset.result);
const broadcast = new BroadcastChannel(channel);
const closeOnAck = (event) => { if (event.data && event.data.type === ack) window.close(); };
if (!message.payload) broadcast.addEventListener('message', closeOnAck);
window.addEventListener('message', closeOnAck);
const { opener } = window;
if (opener) opener.postMessage(message, '*');
broadcast.postMessage(message);
if (opener && closesItself) setTimeout(() => window.close(), 500);
history.replaceState(null, '', location.pathname);
const wayBack = () => {
  try {
    const kept = JSON.parse(sessionStorage.getItem(returnKey));
    sessionStorage.setItem(returnKey, JSON.stringify({ ...kept, told: message }));
    return connectPath + kept.search;
  } catch {
    // No page waits in this tab, or its storage is off.
  }
};
const back = wayBack();
if (back) location.replace(back);
`;

/**
 * The script of the page that asks before an attempt begins, sent with a nonce. It removes the token from the address, and
 * the page from the tab's history: a user who goes back from the provider reaches the page before. Without the script the
 * link works, too.
 *
 * A second click while the first request is under way does nothing: an aborted request may have bound the session to a
 * cookie that this browser then never receives. A user who stops the first request can click again.
 */
const confirmScript = `
const whole = location.href;
const link = document.querySelector('a.button');
link.href = whole;
history.replaceState(null, '', location.pathname);
let isOnTheWay = false;
link.addEventListener('click', (event) => {
  event.preventDefault();
  if (isOnTheWay) return;
  isOnTheWay = true;
  location.replace(whole);
});
window.navigation?.addEventListener('navigateerror', () => { isOnTheWay = false; });
`;
