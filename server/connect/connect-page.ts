import { ownClientOf } from '../auth-modes/mode.ts';
import type { Brand } from '../brand.ts';
import { type Html, html } from '../http/html.ts';
import { notice, type Page, page } from '../http/page.ts';
import type { Integration } from '../integrations/store.ts';
import type { FormField } from '../providers/definition.ts';
import { connectScript } from './page-scripts.ts';
import { connectedNotice, type MissingScopes } from './pages.ts';
import { masked } from './save.ts';
import { allowsOtherAccount, planScopes } from './scopes.ts';
import { fixedConfig } from './session-input.ts';
import type { Session } from './sessions.ts';
import type { Target } from './target.ts';

/**
 * The connect page: whom it is for, what to choose, what will be asked, and the button that begins.
 *
 * Owns: its markup. Does not own: what the button does (`begin.ts`, `submit.ts`), words for faults (`fault.ts`).
 * Showing it changes nothing: a mail scanner that opens the link takes nothing from the person it was sent to.
 */
export type ConnectPageSettings = { brand: Brand; baseUrl: string; token: string };

/** Links to choose by. `choices` are the integrations that the session allows. */
export function choicePage(
  session: Session,
  choices: readonly Integration[],
  settings: ConnectPageSettings,
): Page {
  const title = 'What would you like to connect?';
  const main = html`<main>
<h1>${title}</h1>
${audience({ session, current: undefined }, settings)}
<div class="choices">${choices.map(
    (
      integration,
    ) => html`<a class="choice" href="${choiceUrl(integration, settings)}">${logo(integration, settings)}
<span class="name">${integration.displayName}</span>${badge(integration)}</a>`,
  )}</div>
${choices.length === 0 && html`<p class="notice bad">The application has nothing set up to connect. Tell the people who run it.</p>`}
</main>`;
  return page({ status: 200, title, main });
}

/** One integration: what is asked for, and the way to begin. */
export function beginPage(
  target: Target,
  settings: ConnectPageSettings & {
    canChooseAgain: boolean;
    /** Whether a trip of this session was begun and has not come back. */
    isUnderWay: boolean;
  },
): Page {
  const { session, integration, current } = target;
  const { provider } = integration;
  const { baseUrl, token, brand } = settings;
  const docs = session.settings.overrides?.[integration.key]?.docs_connect;
  const title = `${current ? 'Reconnect' : 'Connect'} ${integration.displayName}`;
  const main = html`<main>
<div class="head">${logo(integration, settings)}<h1>${title} ${badge(integration)}</h1></div>
${audience(target, settings)}
${expected(target)}
${settings.isUnderWay && provider.auth_mode === 'OAUTH2' && silence(provider.display_name)}
${asked(target)}
${wayIn(target, settings)}
<p class="notice bad" id="fault" role="alert" hidden></p>
<p class="notice wait" id="waiting" role="status" hidden>Waiting for ${provider.display_name}. Go on in the other window; this page notices when it is done.</p>
${provider.auth_mode === 'OAUTH2' && hints(integration, settings)}
${docs !== undefined && html`<p class="foot"><a href="${docs}" target="_blank" rel="noopener">How to do this</a></p>`}
${settings.canChooseAgain && html`<p class="foot"><a href="${pageUrl(settings)}">Connect something else</a></p>`}
</main>`;
  return page({
    status: 200,
    title,
    main,
    script: connectScript,
    data: {
      flow: {
        channel: brand.callbackChannel,
        success: `${brand.callbackMessage}_success`,
        failure: `${brand.callbackMessage}_error`,
        ack: `${brand.callbackMessage}_ack`,
        sessionUrl: `${pathOf(baseUrl)}/connect/session`,
        token,
      },
    },
  });
}

/** A session that has made its connection, to `provider`. */
export function usedPage({ provider, missing }: { provider: string; missing: MissingScopes }): Page {
  return page({ status: 200, ...connectedNotice({ provider, missing }) });
}

/** A session that has ended, is unknown, or a link without one. */
export function endedPage(why: 'expired' | 'unknown' | 'incomplete'): Page {
  const title = {
    expired: 'This link has expired',
    unknown: 'This link is not valid',
    incomplete: 'This link is not complete',
  }[why];
  const message = {
    expired: 'A link like this is good for 30 minutes. Nothing was connected.',
    unknown: 'It may have been withdrawn by the application, or have expired some time ago.',
    incomplete: 'The part that says who you are is missing. It may have been cut off when it was copied.',
  }[why];
  const nextStep = {
    expired: 'Go back to the application and ask for a new one.',
    unknown: 'Go back to the application and ask for a new one.',
    incomplete: 'Open it again exactly as the application gave it to you.',
  }[why];
  const body = html`<p>${message}</p><p><strong>${nextStep}</strong></p>`;
  return page({ status: 400, title, main: notice('error', { title, body }) });
}

/** Whom it is for: the user that the session names, or the one of the connection that is renewed. */
function audience(
  { session, current }: Pick<Target, 'session' | 'current'>,
  { baseUrl }: ConnectPageSettings,
): Html {
  const endUser = session.settings.end_user ?? current?.endUser;
  const name = endUser?.display_name || endUser?.email || endUser?.id;
  const email = endUser?.email && endUser.email !== name ? ` (${endUser.email})` : '';
  const organization = endUser?.organization?.display_name;
  return html`<p class="soft">The application that sent you here asks for access to an account of yours. Go on only if you came from it yourself.</p>
<dl class="facts">
${name !== undefined && html`<dt>For</dt><dd>${name}${email}${organization ? `, ${organization}` : ''}</dd>`}
<dt>Application</dt><dd>${new URL(baseUrl).host}, ${session.environment}</dd>
</dl>`;
}

/** Which account to choose, as far as the session says. */
function expected(target: Target): Html | false {
  const { session, current } = target;
  const { require_same_account: isFixed, end_user: endUser } = session.settings;
  const before = current?.account?.email;
  if (before !== undefined && allowsOtherAccount(target)) {
    return html`<p>So far <strong>${masked(before)}</strong> is connected. If you choose another account, it takes its place.</p>`;
  }
  if (before !== undefined) {
    return html`<p>Choose the same account as before: <strong>${masked(before)}</strong>.</p>`;
  }
  if (!isFixed || !endUser?.email) return false;
  return html`<p>Choose the account <strong>${endUser.email}</strong>: no other one is accepted.</p>`;
}

function silence(provider: string): Html {
  return html`<p class="notice wait" role="status">You went to ${provider}, and nothing has come back yet. If it showed an error, look below; otherwise begin again.</p>`;
}

function asked(target: Target): Html | false {
  const { provider } = target.integration;
  if (provider.auth_mode !== 'OAUTH2') return false;
  const { asked: scopes, requested } = planScopes(target, undefined);
  if (scopes.length === 0) return false;
  const isAddition = scopes.length < requested.length;
  return html`<h2>${provider.display_name} will ask you to allow${isAddition && ', besides what you have allowed already'}</h2>
<ul class="scopes">${scopes.map((scope) => html`<li>${provider.scopes.catalogue[scope]?.description ?? scope}</li>`)}</ul>`;
}

function wayIn(target: Target, settings: ConnectPageSettings): Html {
  const { integration } = target;
  const { provider } = integration;
  const inputs = [...configInputs(target), ...credentialInputs(target)];
  const query = `connect_session_token=${encodeURIComponent(settings.token)}`;
  const key = encodeURIComponent(integration.key);
  if (provider.auth_mode === 'OAUTH2') {
    // Whole, so that the cookie is set for the host that the provider sends the browser back to.
    const url = `${settings.baseUrl}/oauth/connect/${key}?${query}`;
    const label = `Continue to ${provider.display_name}`;
    if (inputs.length === 0) return html`<a class="button" id="go" href="${url}">${label}</a>`;
    return html`<form data-go="${url}">${inputs}<button class="button">${label}</button></form>${needsScript}`;
  }
  const route = {
    API_KEY: 'api-auth/api-key',
    BASIC: 'api-auth/basic',
    OAUTH2_CC: 'oauth2/auth',
    NONE: 'auth/unauthenticated',
  };
  const url = `${pathOf(settings.baseUrl)}/${route[provider.auth_mode]}/${key}?${query}`;
  const unreachable = 'The service could not be reached. Check your connection and try again.';
  return html`<form data-post="${url}" data-unreachable="${unreachable}" autocomplete="off">${inputs}<button class="button">Connect</button></form>${needsScript}`;
}

const needsScript = html`<noscript><p class="notice bad">This form needs JavaScript. Switch it on for this page and load it again.</p></noscript>`;

const plainFields: Record<
  'API_KEY' | 'BASIC' | 'OAUTH2_CC',
  Record<string, Pick<FormField, 'title' | 'description' | 'secret'>>
> = {
  API_KEY: { apiKey: { title: 'API key', description: 'As the provider issued it.', secret: true } },
  BASIC: {
    username: { title: 'User name', description: '', secret: false },
    password: { title: 'Password', description: '', secret: true },
  },
  OAUTH2_CC: {
    client_id: { title: 'Client ID', description: '', secret: false },
    client_secret: { title: 'Client secret', description: 'As the provider issued both.', secret: true },
  },
};

function credentialInputs({ integration, current }: Target): Html[] {
  const { provider } = integration;
  if (provider.auth_mode === 'OAUTH2' || provider.auth_mode === 'NONE') return [];
  // A connection that brought its own client is renewed by one of its own.
  const hasOwnClient = current !== undefined && ownClientOf(current.credentials) !== undefined;
  if (provider.auth_mode === 'OAUTH2_CC' && integration.client !== undefined && !hasOwnClient) return [];
  return Object.entries(plainFields[provider.auth_mode]).map(([name, plain]) =>
    input(name, {
      required: provider.auth_mode === 'BASIC' ? undefined : true,
      ...plain,
      ...provider.credentials[name],
    }),
  );
}

/** Fields that neither the application fixed nor the connection has. */
function configInputs({ session, integration, current }: Target): Html[] {
  const known = {
    ...current?.connectionConfig,
    ...fixedConfig(session.settings.integrations_config_defaults?.[integration.key]),
  };
  return Object.entries(integration.provider.connection_config)
    .filter(([name]) => !Object.hasOwn(known, name))
    .map(([name, field]) => input(`params[${name}]`, field));
}

function input(
  name: string,
  field: Pick<FormField, 'title' | 'description' | 'secret'> & {
    /** Undefined: it may be left empty, and nothing is said about it. */
    required: boolean | undefined;
    example?: string | undefined;
  },
): Html {
  return html`<label>${field.title}${field.required === false && ' (optional)'}
${field.description !== '' && html`<span class="soft">${field.description}</span>`}
<input name="${name}" type="${field.secret ? 'password' : 'text'}"${field.example !== undefined && html` placeholder="${field.example}"`}${field.required && html` required`} autocomplete="off" spellcheck="false"></label>`;
}

/** Most refusals are shown on the provider's own page and never come back to us. */
function hints(
  integration: Integration,
  { baseUrl, isUnderWay }: ConnectPageSettings & { isUnderWay: boolean },
): Html {
  const { display_name: provider } = integration.provider;
  const cases = [
    [
      '“Access blocked”, or the application is being tested',
      'Its makers have to add your account to their list of testers, or to publish it.',
    ],
    [
      'A rule of your organization (admin_policy_enforced, org_internal)',
      'Ask your administrator to allow it.',
    ],
    [
      'redirect_uri_mismatch, invalid_client or deleted_client',
      `The application is not set up correctly. Tell its makers; the redirect address to register is ${baseUrl}/oauth/callback.`,
    ],
    ['disallowed_useragent', 'Open this link in an ordinary browser instead of inside another application.'],
    ['rate_limit_exceeded', 'Too many people are signing in at the moment. Try again later.'],
  ] as const;
  return html`<details id="hints"${isUnderWay && html` open`}><summary>Did nothing come back, or did ${provider} show an error?</summary>
<ul>${cases.map(([seen, meaning]) => html`<li><strong>${seen}.</strong> ${meaning}</li>`)}
<li><strong>Nothing at all.</strong> Close the other window and press the button again: it can be pressed as often as needed.</li></ul>
</details>`;
}

function logo({ provider }: Integration, { baseUrl }: ConnectPageSettings): Html {
  return html`<img src="${pathOf(baseUrl)}/providers/logos/${provider.logo}" alt="" width="40" height="40">`;
}

function badge({ isTest }: Integration): Html | false {
  return (
    isTest &&
    html`<span class="badge" title="A provider for trying things out: no real account is used">test</span>`
  );
}

/** What stands in front of our paths: the page may have been opened by another name of this host. */
function pathOf(baseUrl: string): string {
  return new URL(baseUrl).pathname.replace(/\/$/, '');
}

function pageUrl({ baseUrl, token }: ConnectPageSettings): string {
  return `${pathOf(baseUrl)}/connect/?session_token=${encodeURIComponent(token)}`;
}

function choiceUrl({ key }: Integration, settings: ConnectPageSettings): string {
  return `${pageUrl(settings)}&integration=${encodeURIComponent(key)}`;
}
