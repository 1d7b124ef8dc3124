import type { Account } from '../accounts.ts';
import { html, htmlPage } from '../html.ts';
import type { Reply } from '../http.ts';
import type { AuthorizationRequest, PageError } from './request.ts';
import { isSignInScope, scopeSentence } from './scopes.ts';

/** The path that both forms post to. */
export const CONSENT_PATH = '/o/oauth2/v2/consent';

/** How long access may last, as the consent page offers it. */
export const ACCESS_CHOICES: { seconds?: number; text: string }[] = [
  { text: 'Until I take it back' },
  { seconds: 3600, text: 'For an hour' },
  { seconds: 86_400, text: 'For a day' },
  { seconds: 604_800, text: 'For seven days' },
];

/** The page on which a person picks an account or adds one. `complaint` is shown above the field. */
export function accountPage(view: {
  projectName: string;
  accounts: Account[];
  ticket: string;
  typed: string;
  complaint?: string;
}): Reply {
  const { projectName, accounts, ticket, typed, complaint } = view;
  return htmlPage(complaint === undefined ? 200 : 400, {
    title: 'Choose an account',
    body: html`<h1>Choose an account</h1>
<p class="quiet">to continue to ${projectName}</p>
<form method="post" action="${CONSENT_PATH}">
<input type="hidden" name="ticket" value="${ticket}">
${accounts.map(
  (
    account,
  ) => html`<button class="row" name="account" value="${account.email}"><span>${account.name}<small>${account.email}</small></span></button>
`,
)}</form>
<form method="post" action="${CONSENT_PATH}">
<input type="hidden" name="ticket" value="${ticket}">
${complaint !== undefined && html`<p role="alert">${complaint}</p>`}
<div class="line"><input type="email" name="account" required placeholder="another@example.com" aria-label="Another address" value="${typed}"><button class="button">Use this address</button></div>
</form>`,
  });
}

/**
 * The consent page: what may be refused has a box.
 *
 * The boxes start ticked, although Google's start empty: who tries the sandbox for the first time should arrive
 * by going on. Taking a tick away shows what an app gets from a person who overlooks the boxes.
 */
export function consentPage(view: {
  request: AuthorizationRequest;
  projectName: string;
  account: Account;
  ticket: string;
  otherAccountUrl: string;
}): Reply {
  const { request, projectName, account, ticket, otherAccountUrl } = view;
  const boxes = request.scopes.filter((scope) => !isSignInScope(scope));
  const signIn = request.scopes.filter(isSignInScope);
  return htmlPage(200, {
    title: `${projectName} wants access`,
    body: html`<h1>${projectName} wants access to your account</h1>
<p class="quiet">${account.email} · <a href="${otherAccountUrl}">use another account</a></p>
<form method="post" action="${CONSENT_PATH}">
<input type="hidden" name="ticket" value="${ticket}">
<input type="hidden" name="account" value="${account.email}">
${signIn.length > 0 && html`<p>It will: ${signIn.map(scopeSentence).join('; ').toLowerCase()}.</p>`}
${boxes.length > 0 && html`<p>Select what it may do:</p>`}
${boxes.map(
  (
    scope,
  ) => html`<label class="row"><input type="checkbox" name="scope" value="${scope}" checked><span>${scopeSentence(scope)}<small>${scope}</small></span></label>
`,
)}<p class="line"><label for="for_s">Access lasts</label> <select id="for_s" name="for_s">${ACCESS_CHOICES.map(
      ({ seconds, text }) => html`<option value="${seconds}">${text}</option>`,
    )}</select></p>
<p class="quiet">After this you go to ${new URL(request.redirectUri).host}.</p>
<div class="actions"><button class="button" name="decision" value="deny">Cancel</button><button class="button primary" name="decision" value="allow">Continue</button></div>
</form>`,
  });
}

/** The page on which an authorization ends without a word to the client. */
export function errorPage(error: PageError): Reply {
  return htmlPage(error.status, {
    title: 'Access blocked',
    body: html`<h1>Access blocked</h1>
<p>${error.message}</p>
<p class="quiet">Error ${error.status}: ${error.code}</p>
<p class="quiet">Like Google, the sandbox shows this here and sends nothing back to the app.</p>`,
  });
}
