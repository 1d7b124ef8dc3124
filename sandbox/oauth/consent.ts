import type { Account, Accounts } from '../accounts.ts';
import type { Clients } from '../clients.ts';
import type { Clock } from '../clock.ts';
import type { Faults } from '../faults/faults.ts';
import type { Grants } from '../grants.ts';
import type { About } from '../http.ts';
import { refusalOf } from './admission.ts';
import type { Code, Codes } from './codes.ts';
import type { AuthorizationRequest, PageError } from './request.ts';
import { inAnswerOrder, isSignInScope } from './scopes.ts';

/** What a request needs next: an account, that account's consent, this redirect, or the page on which it ends. */
export type Step =
  | { kind: 'choose' }
  | { kind: 'consent'; account: Account }
  | { kind: 'redirect'; location: string }
  | { kind: 'refuse'; error: PageError };

/** What a person decides on the consent page: boxes ticked (full scope names), and for how long. */
interface Decision {
  account: Account;
  ticked: string[];
  /** Time-based access: the refresh token dies after this many seconds; absent: no such limit. */
  forSeconds?: number | undefined;
}

/** The address that `wrong_iss` names; reserved, so that nobody ever answers there (RFC 2606). */
const FOREIGN_ISSUER = 'https://issuer.invalid';

/**
 * Decides who is asked what, and makes the redirect once it is decided. The page and the control route that
 * walks consent for a script both go through here, so a script gets what a person would get.
 */
export class Consent {
  #clients: Clients;
  #accounts: Accounts;
  #grants: Grants;
  #codes: Codes;
  #faults: Faults;
  #clock: Clock;
  #issuer: string;

  constructor(parts: {
    clients: Clients;
    accounts: Accounts;
    grants: Grants;
    codes: Codes;
    faults: Faults;
    clock: Clock;
    issuer: string;
  }) {
    this.#clients = parts.clients;
    this.#accounts = parts.accounts;
    this.#grants = parts.grants;
    this.#codes = parts.codes;
    this.#faults = parts.faults;
    this.#clock = parts.clock;
    this.#issuer = parts.issuer;
  }

  /**
   * The first step of a request. Every account of the sandbox counts as signed in in this browser, so the
   * account is clear when the hint names one or when there is only one.
   */
  begin(request: AuthorizationRequest, about: About): Step {
    const hinted = request.loginHint === undefined ? undefined : this.#accounts.find(request.loginHint);
    const all = this.#accounts.list();
    const account = hinted ?? (request.loginHint === undefined && all.length === 1 ? all[0] : undefined);
    if (request.prompts.has('none')) return this.#beginSilently(request, { account, about });
    if (account === undefined || request.prompts.has('select_account')) return { kind: 'choose' };
    return this.choose(request, { account, about });
  }

  /** The step after an account was chosen: without `prompt=consent`, a project is asked for only once. */
  choose(request: AuthorizationRequest, by: { account: Account; about: About }): Step {
    const { account, about } = by;
    const error = refusalOf(account, this.#clients.projectOf(request.client));
    if (error !== undefined) return { kind: 'refuse', error };
    if (this.#needsConsent(request, account)) return { kind: 'consent', account };
    return {
      kind: 'redirect',
      location: this.#redirectWithCode(request, { account, about, consentShown: false, ticked: [] }),
    };
  }

  /** The redirect of a person who decided so and went on. */
  allow(request: AuthorizationRequest, decision: Decision & { about: About }): string {
    const { about, forSeconds } = decision;
    about.sub = decision.account.sub;
    about.clientId = request.client.clientId;
    if (this.#faults.strikes('consent_denied', about)) return this.deny(request);
    const account = this.#faults.strikes('consent_other_account', about)
      ? this.#anotherThan(decision.account)
      : decision.account;
    const ticked = this.#faults.strikes('consent_fewer_scopes', about) ? [] : decision.ticked;
    const consentShown = this.#needsConsent(request, account);
    if (consentShown && request.prompts.has('none')) {
      return this.#redirect(request, { error: 'consent_required' });
    }
    const granted = request.scopes.filter((scope) => isSignInScope(scope) || ticked.includes(scope));
    if (consentShown && granted.length === 0) return this.deny(request);
    return this.#redirectWithCode(request, { account, about, consentShown, ticked: granted, forSeconds });
  }

  /** The redirect of a person who said no. */
  deny(request: AuthorizationRequest): string {
    return this.#redirect(request, { error: 'access_denied' });
  }

  // OpenID Connect Core 1.0 §3.1.2.6 names these errors; they are the only ones Google sends back by redirect.
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
    return this.#accounts.list().find(({ sub }) => sub !== account.sub) ?? account;
  }

  #needsConsent(request: AuthorizationRequest, account: Account): boolean {
    if (request.prompts.has('consent')) return true;
    const granted = this.#grantedBefore(request, account);
    return !request.scopes.every((scope) => granted.includes(scope));
  }

  #grantedBefore(request: AuthorizationRequest, account: Account): string[] {
    return this.#grants.scopesOf({ projectNumber: request.client.projectNumber, sub: account.sub });
  }

  #redirectWithCode(
    request: AuthorizationRequest,
    decision: Decision & { about: About; consentShown: boolean },
  ): string {
    const { account, about, consentShown, ticked, forSeconds } = decision;
    const { client } = request;
    const granted = consentShown ? ticked : request.scopes;
    if (consentShown) {
      this.#grants.record({
        projectNumber: client.projectNumber,
        sub: account.sub,
        granted,
        // A box left empty also takes back what the project had, or include_granted_scopes would hand out
        // what the person has just refused. Assumed: Google's page is not documented here.
        refused: request.scopes.filter((scope) => !granted.includes(scope)),
        at: this.#clock.now(),
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
    const index = this.#accounts.list().findIndex(({ sub }) => sub === account.sub);
    const foreign = this.#faults.strikes('wrong_iss', about);
    return this.#redirect(request, {
      ...(foreign ? { iss: FOREIGN_ISSUER } : {}),
      code: this.#codes.issue(code),
      scope: scopes.join(' '),
      authuser: String(index),
      ...(account.hostedDomain === undefined ? {} : { hd: account.hostedDomain }),
      prompt: consentShown ? 'consent' : 'none',
    });
  }

  // RFC 9207: `iss` goes with errors as with codes.
  #redirect(request: AuthorizationRequest, parameters: Record<string, string>): string {
    const location = new URL(request.redirectUri);
    if (request.state !== undefined) location.searchParams.append('state', request.state);
    for (const [name, value] of Object.entries({ iss: this.#issuer, ...parameters })) {
      location.searchParams.append(name, value);
    }
    return location.href;
  }
}
