import type { Account, Accounts } from '../accounts.ts';
import type { Clients } from '../clients.ts';
import type { Clock } from '../clock.ts';
import type { Faults } from '../faults/faults.ts';
import type { Grants } from '../grants.ts';
import type { About } from '../http.ts';
import type { Code, Codes } from './codes.ts';
import { refusalOf } from './page-errors.ts';
import type { AuthorizationRequest, PageError } from './request.ts';
import { inAnswerOrder, isSignInScope } from './scopes.ts';

/** The next step of a request: selection of an account, its consent, a redirect, or an error page. */
export type Step =
  | { kind: 'choose' }
  | { kind: 'consent'; account: Account }
  | { kind: 'redirect'; location: string }
  | { kind: 'refuse'; error: PageError };

/** The decision on the consent page: ticked scopes (full names) and duration. */
interface Decision {
  account: Account;
  ticked: string[];
  /** Time-based access: the lifetime of the refresh token in seconds; absent: no limit. */
  forSeconds?: number | undefined;
}

/** The issuer of the fault `wrong_iss`, in a reserved domain (RFC 2606). */
const foreignIssuer = 'https://issuer.invalid';

/** The parts of the sandbox that a consent uses. */
type ConsentParts = {
  clients: Clients;
  accounts: Accounts;
  grants: Grants;
  codes: Codes;
  faults: Faults;
  clock: Clock;
  issuer: string;
};

/**
 * Decides the steps of a consent and builds the redirect. The page and the control route for scripts both use it, so a script
 * gets the same redirect as a person.
 */
export class Consent {
  readonly #parts: ConsentParts;

  constructor(parts: ConsentParts) {
    this.#parts = parts;
  }

  /**
   * The first step of a request. All accounts count as signed in to the browser, so the account is known if the hint names it
   * or if it is the only one.
   */
  begin(request: AuthorizationRequest, about: About): Step {
    const hinted = request.loginHint === undefined ? undefined : this.#parts.accounts.find(request.loginHint);
    const all = this.#parts.accounts.list();
    const account = hinted ?? (request.loginHint === undefined && all.length === 1 ? all[0] : undefined);
    if (request.prompts.has('none')) return this.#beginSilently(request, { account, about });
    if (account === undefined || request.prompts.has('select_account')) return { kind: 'choose' };
    return this.choose(request, { account, about });
  }

  /** The step after the selection of an account: without `prompt=consent`, granted scopes need no further consent. */
  choose(request: AuthorizationRequest, by: { account: Account; about: About }): Step {
    const { account, about } = by;
    const error = refusalOf(account, this.#parts.clients.projectOf(request.client));
    if (error !== undefined) return { kind: 'refuse', error };
    if (this.#needsConsent(request, account)) return { kind: 'consent', account };
    return {
      kind: 'redirect',
      location: this.#redirectWithCode(request, { account, about, consentShown: false, ticked: [] }),
    };
  }

  /** The redirect after the user allowed access. */
  allow(request: AuthorizationRequest, decision: Decision & { about: About }): string {
    const { about, forSeconds } = decision;
    about.sub = decision.account.sub;
    about.clientId = request.client.clientId;
    if (this.#parts.faults.applies('consent_denied', about)) return this.deny(request);
    const account = this.#parts.faults.applies('consent_other_account', about)
      ? this.#anotherThan(decision.account)
      : decision.account;
    const ticked = this.#parts.faults.applies('consent_fewer_scopes', about) ? [] : decision.ticked;
    const consentShown = this.#needsConsent(request, account);
    if (consentShown && request.prompts.has('none')) {
      return this.#redirect(request, { error: 'consent_required' });
    }
    const granted = request.scopes.filter((scope) => isSignInScope(scope) || ticked.includes(scope));
    if (consentShown && granted.length === 0) return this.deny(request);
    return this.#redirectWithCode(request, { account, about, consentShown, ticked: granted, forSeconds });
  }

  /** The redirect after the user denied access. */
  deny(request: AuthorizationRequest): string {
    return this.#redirect(request, { error: 'access_denied' });
  }

  // OpenID Connect Core 1.0 §3.1.2.6 defines these errors; Google returns no others by redirect.
  #beginSilently(request: AuthorizationRequest, by: { account: Account | undefined; about: About }): Step {
    const { account, about } = by;
    if (account === undefined) {
      return { kind: 'redirect', location: this.#redirect(request, { error: 'login_required' }) };
    }
    if (this.#needsConsent(request, account)) {
      return { kind: 'redirect', location: this.#redirect(request, { error: 'consent_required' }) };
    }
    return this.choose(request, { account, about });
  }

  #anotherThan(account: Account): Account {
    return this.#parts.accounts.list().find(({ sub }) => sub !== account.sub) ?? account;
  }

  #needsConsent(request: AuthorizationRequest, account: Account): boolean {
    if (request.prompts.has('consent')) return true;
    const granted = this.#grantedBefore(request, account);
    return !request.scopes.every((scope) => granted.includes(scope));
  }

  #grantedBefore(request: AuthorizationRequest, account: Account): string[] {
    return this.#parts.grants.scopesOf({ projectNumber: request.client.projectNumber, sub: account.sub });
  }

  #redirectWithCode(
    request: AuthorizationRequest,
    decision: Decision & { about: About; consentShown: boolean },
  ): string {
    const { account, about, consentShown, ticked, forSeconds } = decision;
    const { client } = request;
    const granted = consentShown ? ticked : request.scopes;
    if (consentShown) {
      this.#parts.grants.record({
        projectNumber: client.projectNumber,
        sub: account.sub,
        granted,
        // A scope that is not ticked is also revoked, or include_granted_scopes would return what the user has just refused.
        // This is an assumption: Google does not document it.
        refused: request.scopes.filter((scope) => !granted.includes(scope)),
        at: this.#parts.clock.now(),
      });
    }
    const before = request.includeGranted ? this.#grantedBefore(request, account) : [];
    const scopes = inAnswerOrder([...granted, ...before]);
    const code: Code = {
      client,
      sub: account.sub,
      redirectUri: request.redirectUri,
      scopes,
      offline: request.offline,
      consentShown,
    };
    if (forSeconds !== undefined) code.forSeconds = forSeconds;
    if (request.nonce !== undefined) code.nonce = request.nonce;
    if (request.challenge !== undefined) code.challenge = request.challenge;
    const index = this.#parts.accounts.list().findIndex(({ sub }) => sub === account.sub);
    const foreign = this.#parts.faults.applies('wrong_iss', about);
    return this.#redirect(request, {
      ...(foreign ? { iss: foreignIssuer } : {}),
      code: this.#parts.codes.issue(code),
      scope: scopes.join(' '),
      authuser: String(index),
      ...(account.hostedDomain === undefined ? {} : { hd: account.hostedDomain }),
      prompt: consentShown ? 'consent' : 'none',
    });
  }

  // RFC 9207: errors and codes both have `iss`.
  #redirect(request: AuthorizationRequest, parameters: Record<string, string>): string {
    const location = new URL(request.redirectUri);
    if (request.state !== undefined) location.searchParams.append('state', request.state);
    for (const [name, value] of Object.entries({ iss: this.#parts.issuer, ...parameters })) {
      location.searchParams.append(name, value);
    }
    return location.href;
  }
}
