import type { Account } from '../accounts.ts';
import { html, htmlPage } from '../html.ts';
import type { Reply } from '../http.ts';
import type { AuthorizationRequest, PageError } from './request.ts';
import { isSignInScope, scopeSentence } from './scopes.ts';

/** The path that both forms post to. */
export const consentPath = '/o/oauth2/v2/consent';

/** The durations of access on the consent page. */
export const accessChoices: { seconds?: number; text: string }[] = [
  { text: 'until I revoke it' },
  { seconds: 3600, text: 'for one hour' },
  { seconds: 86_400, text: 'for one day' },
  { seconds: 604_800, text: 'for seven days' },
];

/** The page where the user selects or adds an account. `error` is shown above the field. */
export function accountPage(view: {
  projectName: string;
  accounts: Account[];
  ticket: string;
  typed: string;
  error?: string;
}): Reply {
  const { projectName, accounts, ticket, typed, error } = view;
  return htmlPage(error === undefined ? 200 : 400, {
    title: 'Choose an account',
    body: html`<h1>Choose an account</h1>
<p class="quiet">to continue to ${projectName}</p>
<form method="post" action="${consentPath}">
<input type="hidden" name="ticket" value="${ticket}">
${accounts.map(
  (
    account,
  ) => html`<button class="row" name="account" value="${account.email}"><span>${account.name}<small>${account.email}</small></span></button>
`,
)}</form>
<form method="post" action="${consentPath}">
<input type="hidden" name="ticket" value="${ticket}">
${error !== undefined && html`<p role="alert">${error}</p>`}
<div class="line"><input type="email" name="account" required placeholder="another@example.com" aria-label="Another address" value="${typed}"><button class="button">Use this address</button></div>
</form>`,
  });
}

/**
 * The consent page, with a checkbox for each scope that can be refused.
 *
 * The checkboxes are ticked, unlike Google's, so that a first user of the sandbox only has to continue. Without a tick, the
 * app gets fewer scopes, as from a user who overlooks the checkboxes.
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
<form method="post" action="${consentPath}">
<input type="hidden" name="ticket" value="${ticket}">
<input type="hidden" name="account" value="${account.email}">
${signIn.length > 0 && html`<p>It can: ${signIn.map(scopeSentence).join('; ').toLowerCase()}.</p>`}
${boxes.length > 0 && html`<p>Select what ${projectName} can access:</p>`}
${boxes.map(
  (
    scope,
  ) => html`<label class="row"><input type="checkbox" name="scope" value="${scope}" checked><span>${scopeSentence(scope)}<small>${scope}</small></span></label>
`,
)}<p class="line"><label for="for_s">Access lasts</label> <select id="for_s" name="for_s">${accessChoices.map(
      ({ seconds, text }) => html`<option value="${seconds}">${text}</option>`,
    )}</select></p>
<p class="quiet">You will be redirected to ${new URL(request.redirectUri).host}.</p>
<div class="actions"><button class="button" name="decision" value="deny">Cancel</button><button class="button primary" name="decision" value="allow">Continue</button></div>
</form>`,
  });
}

/** The error page that ends an authorization without a redirect to the client. */
export function errorPage(error: PageError): Reply {
  return htmlPage(error.status, {
    title: 'Access blocked',
    body: html`<h1>Access blocked</h1>
<p>${error.message}</p>
<p class="quiet">Error ${error.status}: ${error.code}</p>
<p class="quiet">Like Google, the sandbox shows this error here and does not redirect to the app.</p>`,
  });
}
