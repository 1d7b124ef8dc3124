/**
 * The authorization endpoint for browsers: account page, consent page, error pages, and their forms.
 *
 * request.ts validates a request and consent.ts decides the next step; this file owns the tickets that bind a posted form to
 * its page.
 */
import { randomBytes } from 'node:crypto';
import { type Account, type Accounts, isEmail } from '../accounts.ts';
import type { Clients } from '../clients.ts';
import { caseOf } from '../faults/cases.ts';
import type { Faults } from '../faults/faults.ts';
import type { About, Incoming, Reply } from '../http.ts';
import type { Consent, Step } from './consent.ts';
import { refusalOf } from './page-errors.ts';
import { accessChoices, accountPage, consentPage, errorPage } from './pages.ts';
import {
  type AuthorizationRequest,
  type PageError,
  type ValidationResult,
  validateRequest,
} from './request.ts';

/** The path of the authorization endpoint. */
export const authorizationPath = '/o/oauth2/v2/auth';

/** A rendered page whose form may be posted once, by the browser that received it. */
interface Ticket {
  request: AuthorizationRequest;
  query: string;
  browser: string;
  /** On the consent page: the account that decides. */
  account?: Account;
}

const cookieName = 'trellis_sandbox_browser';
const ticketLimit = 1000;

/** The parts of the sandbox that the authorization endpoint uses. */
type AuthorizeParts = {
  clients: Clients;
  accounts: Accounts;
  faults: Faults;
  consent: Consent;
  save: () => Promise<void>;
};

/** The two routes of the authorization pages. */
export class Authorize {
  readonly #parts: AuthorizeParts;
  #tickets = new Map<string, Ticket>();

  constructor(parts: AuthorizeParts) {
    this.#parts = parts;
  }

  /** Validates an authorization query and applies error page faults; adds client and account to `about`. */
  validate(query: URLSearchParams, about: About): ValidationResult {
    const result = validateRequest(query, this.#parts.clients);
    if (!result.ok) return result;
    const { client, loginHint } = result.request;
    about.clientId = client.clientId;
    about.sub ??= this.#parts.accounts.find(loginHint ?? '')?.sub;
    const error = this.#pageFault(about);
    return error === undefined ? result : { ok: false, error };
  }

  /** Validates a query for a selected account, and whether this account may consent. */
  validateFor(account: Account, at: { query: URLSearchParams; about: About }): ValidationResult {
    at.about.sub = account.sub;
    const result = this.validate(at.query, at.about);
    if (!result.ok) return result;
    const error = refusalOf(account, this.#parts.clients.projectOf(result.request.client));
    return error === undefined ? result : { ok: false, error };
  }

  /** `GET` of the authorization endpoint. */
  async show(incoming: Incoming): Promise<Reply> {
    const result = this.validate(incoming.query, incoming.about);
    if (!result.ok) return errorPage(result.error);
    const { request } = result;
    const browser = browserOf(incoming) ?? randomBytes(24).toString('base64url');
    const page = { request, query: incoming.query.toString(), browser };
    return withCookie(await this.#render(this.#parts.consent.begin(request, incoming.about), page), browser);
  }

  /** `POST` of either form. */
  async decide(incoming: Incoming): Promise<Reply> {
    const form = new URLSearchParams(incoming.body.toString());
    const text = form.get('ticket') ?? '';
    const ticket = this.#tickets.get(text);
    if (ticket === undefined || ticket.browser !== browserOf(incoming)) return errorPage(noTicket);
    this.#tickets.delete(text);
    const { request } = ticket;
    const { about } = incoming;
    about.clientId = request.client.clientId;

    const email = form.get('account') ?? '';
    if (!isEmail(email)) {
      const error = 'Enter an e-mail address.';
      return accountPage({
        ...this.#accountView(ticket),
        ticket: this.#issue(ticket),
        typed: email,
        error,
      });
    }
    if (ticket.account === undefined) {
      const account = this.#parts.accounts.add({ email });
      await this.#parts.save();
      about.sub = account.sub;
      const error = this.#pageFault(about);
      if (error !== undefined) return errorPage(error);
      return this.#render(this.#parts.consent.choose(request, { account, about }), ticket);
    }
    const { account } = ticket;
    about.sub = account.sub;
    const refusal = refusalOf(account, this.#parts.clients.projectOf(request.client));
    if (refusal !== undefined) return errorPage(refusal);
    const decision = { account, about, ticked: form.getAll('scope'), forSeconds: forSecondsOf(form) };
    const location =
      form.get('decision') === 'allow'
        ? this.#parts.consent.allow(request, decision)
        : this.#parts.consent.deny(request);
    return this.#render({ kind: 'redirect', location }, ticket);
  }

  async #render(step: Step, page: Ticket): Promise<Reply> {
    if (step.kind === 'redirect') {
      await this.#parts.save();
      return { status: 302, headers: { location: step.location, ...privateHeaders }, body: '' };
    }
    if (step.kind === 'refuse') return errorPage(step.error);
    if (step.kind === 'choose') {
      const typed = page.request.loginHint ?? '';
      return accountPage({ ...this.#accountView(page), ticket: this.#issue(page), typed });
    }
    const again = new URLSearchParams(page.query);
    again.delete('login_hint');
    again.set('prompt', page.request.prompts.has('consent') ? 'consent select_account' : 'select_account');
    return consentPage({
      request: page.request,
      projectName: this.#parts.clients.projectOf(page.request.client).name,
      account: step.account,
      ticket: this.#issue({ ...page, account: step.account }),
      otherAccountUrl: `${authorizationPath}?${again}`,
    });
  }

  #accountView(page: Ticket): { projectName: string; accounts: Account[] } {
    return {
      projectName: this.#parts.clients.projectOf(page.request.client).name,
      accounts: this.#parts.accounts.list(),
    };
  }

  #issue(ticket: Ticket): string {
    const text = randomBytes(24).toString('base64url');
    this.#tickets.set(text, ticket);
    if (this.#tickets.size > ticketLimit) this.#tickets.delete(this.#tickets.keys().next().value!);
    return text;
  }

  #pageFault(about: About): PageError | undefined {
    const fault = this.#parts.faults.takeAt(['authorize'], about);
    const effect = fault && caseOf(fault.name).effect;
    return effect?.kind === 'page' ? effect : undefined;
  }
}

const noTicket: PageError = {
  status: 400,
  code: 'invalid_request',
  message: 'This page has expired, or it was opened in another browser. Go back to the app and start again.',
};

const privateHeaders = { 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' };

// A value that the consent page does not offer means no limit.
function forSecondsOf(form: URLSearchParams): number | undefined {
  return accessChoices.find(({ seconds }) => String(seconds) === form.get('for_s'))?.seconds;
}

function browserOf(incoming: Incoming): string | undefined {
  for (const pair of (incoming.headers.cookie ?? '').split(';')) {
    const [name, value] = pair.trim().split('=');
    if (name === cookieName && value !== undefined && /^[\w-]{32}$/.test(value)) return value;
  }
  return undefined;
}

// Prevents CSRF: another site cannot read the ticket in the page. A page that an attacker fetched cannot be posted in this
// browser, since browsers do not send the cookie with a form of another site (SameSite).
function withCookie(reply: Reply, browser: string): Reply {
  const cookie = `${cookieName}=${browser}; Path=/o/oauth2; HttpOnly; SameSite=Lax`;
  return { ...reply, headers: { ...reply.headers, 'set-cookie': cookie } };
}
