/**
 * The authorization endpoint as a browser sees it: account page, consent page, error pages, and the form they post.
 *
 * What is decided is in request.ts (may it be shown) and consent.ts (who is asked what); this file owns the
 * tickets that tie a posted form to the page it was rendered in.
 */
import { randomBytes } from 'node:crypto';
import { type Account, type Accounts, isEmail } from '../accounts.ts';
import type { Clients } from '../clients.ts';
import { caseOf } from '../faults/cases.ts';
import type { Faults } from '../faults/faults.ts';
import type { About, Incoming, Reply } from '../http.ts';
import { refusalOf } from './admission.ts';
import type { Consent, Step } from './consent.ts';
import { ACCESS_CHOICES, accountPage, consentPage, errorPage } from './pages.ts';
import { type AuthorizationRequest, type Judgement, judgeRequest, type PageError } from './request.ts';

/** The path of the authorization endpoint. */
export const AUTHORIZATION_PATH = '/o/oauth2/v2/auth';

/** A page that was rendered and may be posted: once per step, by the browser it was rendered for. */
interface Ticket {
  request: AuthorizationRequest;
  query: string;
  browser: string;
  /** Set on the consent page: the decision must be this account's. */
  account?: Account;
}

const COOKIE = 'trellis_sandbox_browser';
const TICKET_LIMIT = 1000;

/** The two routes of the authorization page, over what the rest of the sandbox knows. */
export class Authorize {
  #clients: Clients;
  #accounts: Accounts;
  #faults: Faults;
  #consent: Consent;
  #save: () => Promise<void>;
  #tickets = new Map<string, Ticket>();

  constructor(parts: {
    clients: Clients;
    accounts: Accounts;
    faults: Faults;
    consent: Consent;
    save: () => Promise<void>;
  }) {
    this.#clients = parts.clients;
    this.#accounts = parts.accounts;
    this.#faults = parts.faults;
    this.#consent = parts.consent;
    this.#save = parts.save;
  }

  /** Judges an authorization query, error-page faults included; fills in `about` as far as the query tells. */
  judge(query: URLSearchParams, about: About): Judgement {
    const judgement = judgeRequest(query, this.#clients);
    if (!judgement.ok) return judgement;
    const { client, loginHint } = judgement.request;
    about.clientId = client.clientId;
    about.sub ??= this.#accounts.find(loginHint ?? '')?.sub;
    const error = this.#pageFault(about);
    return error === undefined ? judgement : { ok: false, error };
  }

  /** Judges a query for an account that has been chosen already: also whether that account may consent. */
  judgeFor(account: Account, at: { query: URLSearchParams; about: About }): Judgement {
    at.about.sub = account.sub;
    const judgement = this.judge(at.query, at.about);
    if (!judgement.ok) return judgement;
    const error = refusalOf(account, this.#clients.projectOf(judgement.request.client));
    return error === undefined ? judgement : { ok: false, error };
  }

  /** `GET` of the authorization endpoint. */
  async show(incoming: Incoming): Promise<Reply> {
    const judgement = this.judge(incoming.query, incoming.about);
    if (!judgement.ok) return errorPage(judgement.error);
    const { request } = judgement;
    const browser = browserOf(incoming) ?? randomBytes(24).toString('base64url');
    const page = { request, query: incoming.query.toString(), browser };
    return withCookie(await this.#render(this.#consent.begin(request, incoming.about), page), browser);
  }

  /** `POST` of either form. */
  async decide(incoming: Incoming): Promise<Reply> {
    const form = new URLSearchParams(incoming.body.toString());
    const text = form.get('ticket') ?? '';
    const ticket = this.#tickets.get(text);
    if (ticket === undefined || ticket.browser !== browserOf(incoming)) return errorPage(NO_TICKET);
    this.#tickets.delete(text);
    const { request } = ticket;
    const { about } = incoming;
    about.clientId = request.client.clientId;

    const email = form.get('account') ?? '';
    if (!isEmail(email)) {
      const complaint = 'Enter an e-mail address.';
      return accountPage({
        ...this.#accountView(ticket),
        ticket: this.#issue(ticket),
        typed: email,
        complaint,
      });
    }
    if (ticket.account === undefined) {
      const account = this.#accounts.add({ email });
      await this.#save();
      about.sub = account.sub;
      const error = this.#pageFault(about);
      if (error !== undefined) return errorPage(error);
      return this.#render(this.#consent.choose(request, { account, about }), ticket);
    }
    const { account } = ticket;
    about.sub = account.sub;
    const refusal = refusalOf(account, this.#clients.projectOf(request.client));
    if (refusal !== undefined) return errorPage(refusal);
    const decision = { account, about, ticked: form.getAll('scope'), forSeconds: forSecondsOf(form) };
    const location =
      form.get('decision') === 'allow' ? this.#consent.allow(request, decision) : this.#consent.deny(request);
    return this.#render({ kind: 'redirect', location }, ticket);
  }

  async #render(step: Step, page: Ticket): Promise<Reply> {
    if (step.kind === 'redirect') {
      await this.#save();
      return { status: 302, headers: { location: step.location, ...PRIVATE }, body: '' };
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
      projectName: this.#clients.projectOf(page.request.client).name,
      account: step.account,
      ticket: this.#issue({ ...page, account: step.account }),
      otherAccountUrl: `${AUTHORIZATION_PATH}?${again}`,
    });
  }

  #accountView(page: Ticket): { projectName: string; accounts: Account[] } {
    return {
      projectName: this.#clients.projectOf(page.request.client).name,
      accounts: this.#accounts.list(),
    };
  }

  #issue(ticket: Ticket): string {
    const text = randomBytes(24).toString('base64url');
    this.#tickets.set(text, ticket);
    if (this.#tickets.size > TICKET_LIMIT) this.#tickets.delete(this.#tickets.keys().next().value!);
    return text;
  }

  #pageFault(about: About): PageError | undefined {
    const fault = this.#faults.takeAt(['authorize'], about);
    const effect = fault && caseOf(fault.name).effect;
    return effect?.kind === 'page' ? effect : undefined;
  }
}

const NO_TICKET: PageError = {
  status: 400,
  code: 'invalid_request',
  message:
    'This page is no longer valid, or it was opened in another browser. Go back to the app and start again.',
};

const PRIVATE = { 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' };

// The consent page offers a few durations; anything else in the field is nobody's choice and means no limit.
function forSecondsOf(form: URLSearchParams): number | undefined {
  return ACCESS_CHOICES.find(({ seconds }) => String(seconds) === form.get('for_s'))?.seconds;
}

function browserOf(incoming: Incoming): string | undefined {
  for (const pair of (incoming.headers.cookie ?? '').split(';')) {
    const [name, value] = pair.trim().split('=');
    if (name === COOKIE && value !== undefined && /^[\w-]{32}$/.test(value)) return value;
  }
  return undefined;
}

// Another site cannot read the ticket out of the page; the cookie, which browsers keep from foreign posts, also
// stops a page that was fetched elsewhere from being posted in this browser.
function withCookie(reply: Reply, browser: string): Reply {
  const cookie = `${COOKIE}=${browser}; Path=/o/oauth2; HttpOnly; SameSite=Lax`;
  return { ...reply, headers: { ...reply.headers, 'set-cookie': cookie } };
}
