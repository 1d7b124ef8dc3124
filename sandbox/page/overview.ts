/** The overview page: its sections, and the HTML parts that they share. It shows no token and no secret. */

import type { Account, Standing } from '../accounts.ts';
import type { Call } from '../calls.ts';
import type { Project } from '../clients.ts';
import type { Clock } from '../clock.ts';
import type { ControlParts } from '../control/parts.ts';
import { caseOf, type FaultName, faultCases } from '../faults/cases.ts';
import type { Fault } from '../faults/faults.ts';
import type { Grant } from '../grants.ts';
import { Html, html, htmlPage } from '../html.ts';
import type { Reply } from '../http.ts';
import { damageKinds } from '../sheets/damage.ts';
import { diesAt, type RefreshToken, refreshTokenLimit } from '../tokens.ts';

/** Renders the page; status 400 if it shows the error of a form. */
export async function overviewPage(parts: ControlParts, view: View & { error?: string }): Promise<Reply> {
  const { error } = view;
  const { accounts, tokens, faults, calls } = parts;
  const spreadsheets = await parts.spreadsheets.list();
  const inForce = faults.list().length;
  const figures: [number, string, boolean][] = [
    [inForce, 'active faults', inForce > 0],
    [accounts.list().length, 'accounts', false],
    [tokens.listLiveRefresh().length, 'live refresh tokens', false],
    [spreadsheets.length, 'spreadsheets', false],
    [Object.values(calls.list()).reduce((sum, count) => sum + count, 0), 'calls since start', false],
  ];
  return htmlPage(error === undefined ? 200 : 400, {
    title: 'Overview',
    wideStyle: overviewStyle,
    body: html`<h1>Test provider</h1>
<p class="quiet">Change the provider by hand here, or by a script with the routes under <code>/_sandbox</code>.</p>
<nav aria-label="Sections">${[
      'clock',
      'faults',
      'accounts',
      'apps',
      'grants',
      'spreadsheets',
      'calls',
      'events',
    ].map((id) => html`<a href="#${id}">${id.charAt(0).toUpperCase() + id.slice(1)}</a> `)}</nav>
${error !== undefined && html`<p class="alert" role="alert">${error}</p>`}
<ul class="figures">${figures.map(
      ([count, name, isHot]) =>
        html`<li${isHot && new Html(' class="hot"')}><b>${count}</b><span>${name}</span></li>`,
    )}</ul>
${clockSection(parts, view)}
${faultsSection(parts, view)}
${accountsSection(parts, view)}
${appsSection(parts, view)}
${grantsSection(parts, view)}
${spreadsheetsSection(spreadsheets, view)}
${callsSection(parts)}
${eventsSection(parts)}`,
  });
}

const steps: [hours: string, text: string][] = [
  ['1', '+ 1 hour'],
  ['24', '+ 1 day'],
  ['168', '+ 7 days'],
  ['4416', '+ 6 months'],
];

function clockSection({ clock }: { clock: Clock }, view: View): Html {
  const ahead = clock.offsetSeconds();
  return section(
    {
      id: 'clock',
      title: 'Clock',
      text: 'All tokens, codes and quotas use this clock. It only moves forward, and a restart of the sandbox resets it.',
    },
    html`<p><b>${time(clock.now())}</b> UTC ${ahead > 0 && html`<span class="tag bad">${span(ahead * 1000)} ahead</span>`}</p>
<div class="buttons">${steps.map(([hours, text]) => button({ act: 'advance', view, fixed: { hours } }, text))}${form(
      { act: 'advance', view },
      (typed) =>
        html`<input type="number" name="hours" value="${typed('hours')}" min="0.01" step="any" required placeholder="hours" aria-label="Hours to move the clock by"> <button class="button small">Move</button>`,
    )}</div>`,
  );
}

const groups: [point: string, title: string][] = [
  ['authorize', 'Authorization page'],
  ['consent', 'Consent'],
  ['exchange', 'Exchange of the code'],
  ['refresh', 'Refresh'],
  ['token', 'Token endpoint, any grant'],
  ['revoke', 'Revocation'],
  ['api', 'API'],
];
const times: [string, string][] = [
  ['1', 'once'],
  ['3', '3 times'],
  ['10', '10 times'],
  ['', 'until switched off'],
];

function faultsSection(parts: ControlParts, view: View): Html {
  const { accounts, clients, faults } = parts;
  const inForce = faults.list();
  const names = Object.keys(faultCases) as FaultName[];
  const people: [string, string][] = accounts
    .list()
    .slice(0, 200)
    .map(({ email }) => [email, email]);
  const apps: [string, string][] = clients
    .list()
    .slice(0, 200)
    .map((client) => [
      client.clientId,
      `${clients.projectOf(client).name} (${client.clientId.slice(0, 20)}…)`,
    ]);
  const fields = (typed: Typed) => html`<label class="whole">Fault<select name="case" required>${groups.map(
    ([point, title]) =>
      html`<optgroup label="${title}">${options(
        names
          .filter((name) => caseOf(name).point === point)
          .map((name) => [name, `${name}: ${caseOf(name).text}`] as [string, string]),
        typed('case'),
      )}</optgroup>`,
  )}</select></label>
<label>Account<select name="account">${options([['', 'every account'], ...people], typed('account'))}</select></label>
<label>Client<select name="client_id">${options([['', 'every client'], ...apps], typed('client_id'))}</select></label>
<label>How often<select name="times">${options(times, typed('times', '1'))}</select></label>
<label class="short">Delay, ms<input type="number" name="delay_ms" value="${typed('delay_ms')}" min="1" max="3600000" placeholder="30000"></label>
<button class="button primary">Switch on</button>`;
  return section(
    {
      id: 'faults',
      title: 'Faults',
      text: 'The oldest fault that matches a request is applied. The delay applies to slow responses only.',
    },
    html`${form({ act: 'fault', view, className: 'fields' }, fields)}
${inForce.length === 0 && empty('No fault is active.')}
${
  inForce.length > 0 &&
  html`<div class="cards">${inForce.slice(0, maxShown).map((fault) => faultCard(fault, { parts, view }))}</div>${andMore(inForce.length)}
<p>${button({ act: 'clear_all', view }, 'Switch all off')}</p>`
}`,
  );
}

function faultCard(fault: Fault, by: { parts: ControlParts; view: View }): Html {
  const { accounts } = by.parts;
  const account = fault.sub === undefined ? 'every account' : (accounts.find(fault.sub)?.email ?? fault.sub);
  const left =
    fault.timesLeft !== undefined
      ? `${fault.timesLeft} more`
      : fault.until !== undefined
        ? `until ${time(fault.until)}`
        : 'until switched off';
  return html`<div class="card hot"><div class="head"><b>${fault.name}</b><span class="tag bad">${left}</span>${
    fault.every !== undefined && html`<span class="tag bad">each ${fault.every}th</span>`
  }<small>for ${account}${fault.clientId !== undefined && html` and client ${fault.clientId}`} · times applied: ${fault.timesApplied}</small></div>
<p class="quiet">${caseOf(fault.name).text}</p>${button({ act: 'clear', view: by.view, fixed: { id: fault.id } }, 'Switch off')}</div>`;
}

const standings: [Standing, string][] = [
  ['active', 'active'],
  ['restricted', 'restricted by the admin'],
  ['admin_policy', 'app blocked by the admin'],
  ['disabled', 'disabled'],
];

function accountsSection({ accounts }: ControlParts, view: View): Html {
  const all = accounts.list();
  return section(
    {
      id: 'accounts',
      title: 'Accounts',
      text: 'A password change revokes the tokens with mail scopes. The session length applies to Cloud scopes.',
    },
    html`${all.length === 0 && empty('There are no accounts. Add one below.')}
${all.length > 0 && html`<div class="cards">${all.slice(0, maxShown).map((account) => accountCard(account, view))}</div>${andMore(all.length)}`}
${form(
  { act: 'add_account', view, className: 'fields' },
  (
    typed,
  ) => html`<label class="grow">Address<input type="email" name="email" value="${typed('email')}" required placeholder="alan@example.com"></label>
<label>Name<input type="text" name="name" value="${typed('name')}" maxlength="200" placeholder="derived from the address"></label>
<label>Workspace domain<input type="text" name="hosted_domain" value="${typed('hosted_domain')}" maxlength="200" placeholder="none"></label>
<button class="button">Add account</button>`,
)}`,
  );
}

function accountCard(account: Account, view: View): Html {
  const { email, name, sub, standing, hostedDomain, sessionSeconds } = account;
  const fixed = { account: email };
  const isActive = standing === 'active';
  return html`<div class="card${!isActive && ' hot'}"><div class="head"><b>${name}</b><span>${email}</span>${
    !isActive && html`<span class="tag bad">${standings.find(([value]) => value === standing)![1]}</span>`
  }${hostedDomain !== undefined && html`<span class="tag">${hostedDomain}</span>`}${
    sessionSeconds !== undefined &&
    html`<span class="tag bad">session length ${span(sessionSeconds * 1000)}</span>`
  }<small>id ${sub}</small></div>
<div class="buttons">${button({ act: 'password', view, fixed }, 'Change password')}
${form({ act: 'standing', view, fixed }, (typed) => html`<select name="standing" aria-label="Status of ${email}">${options(standings, typed('standing', standing))}</select> <button class="button small">Set</button>`)}
${form({ act: 'session', view, fixed }, (typed) => html`<input type="number" name="hours" value="${typed('hours')}" min="0.01" step="any" placeholder="hours" aria-label="Session length of ${email} in hours"> <button class="button small">Set session length</button>`)}
${button({ act: 'purge', view, fixed, isDanger: true }, 'Delete')}</div></div>`;
}

function appsSection({ clients }: ControlParts, view: View): Html {
  const projects = clients.listProjects();
  const clientIds = (project: Project) =>
    clients
      .list()
      .filter(({ projectNumber }) => projectNumber === project.number)
      .map(({ clientId }) => clientId);
  return section(
    {
      id: 'apps',
      title: 'Apps',
      text: 'An external app in testing accepts its test users only, and their refresh tokens expire after seven days. In production, new tokens have no such limit.',
    },
    html`<div class="cards">${projects
      .slice(0, maxShown)
      .map((project) =>
        projectCard(project, { clientIds: clientIds(project), view }),
      )}</div>${andMore(projects.length)}`,
  );
}

function projectCard(project: Project, by: { clientIds: string[]; view: View }): Html {
  const { number, name, audience, domain = '', publishing, testUsers } = project;
  const isNarrow = audience === 'internal' || publishing === 'testing';
  const shown = by.clientIds.slice(0, 5);
  return html`<div class="card"><div class="head"><b>${name}</b><span class="tag${isNarrow && ' bad'}">${
    audience === 'internal' ? `internal to ${domain}` : publishing
  }</span><small>project ${number} · ${by.clientIds.length === 1 ? 'one client' : `${by.clientIds.length} clients`}</small></div>
${shown.map((clientId) => html`<small><code>${clientId}</code></small><br>`)}
${form(
  { act: 'project', view: by.view, className: 'fields', fixed: { project_number: number } },
  (typed) => html`<label>Audience<select name="audience">${options(
    [
      ['external', 'external'],
      ['internal', 'internal'],
    ],
    typed('audience', audience),
  )}</select></label>
<label>Workspace domain<input type="text" name="domain" value="${typed('domain', domain)}" maxlength="200" placeholder="for an internal app"></label>
<label>Publishing<select name="publishing">${options(
    [
      ['production', 'production'],
      ['testing', 'testing'],
    ],
    typed('publishing', publishing),
  )}</select></label>
<label class="grow">Test users<input type="text" name="test_users" value="${typed('test_users', testUsers.join(', '))}" placeholder="addresses, separated by commas"></label>
<button class="button">Save</button>`,
)}</div>`;
}

/** The number of tokens listed for a grant and client. */
const tokensShown = 5;

function grantsSection(parts: ControlParts, view: View): Html {
  const grants = parts.grants.list();
  const live = parts.tokens.listLiveRefresh();
  return section(
    {
      id: 'grants',
      title: 'Grants',
      text: `A revocation ends the tokens of all clients of the app. An account and client can have ${refreshTokenLimit} refresh tokens; one more revokes the oldest.`,
    },
    html`${grants.length === 0 && empty('No account has granted anything yet.')}
${
  grants.length > 0 &&
  html`<div class="cards">${grants.slice(0, maxShown).map((grant) => {
    const own = live.filter(
      (token) => token.sub === grant.sub && token.projectNumber === grant.projectNumber,
    );
    return grantCard(grant, { parts, view, own });
  })}</div>${andMore(grants.length)}`
}`,
  );
}

function grantCard(grant: Grant, by: { parts: ControlParts; view: View; own: RefreshToken[] }): Html {
  const { accounts, clients, clock } = by.parts;
  const email = accounts.find(grant.sub)?.email ?? grant.sub;
  const app = clients.findProject(grant.projectNumber)?.name ?? grant.projectNumber;
  const fixed = { account: email, project_number: grant.projectNumber };
  const ofClient = Map.groupBy(by.own, ({ clientId }) => clientId);
  return html`<div class="card"><div class="head"><b>${email}</b><span>${app}</span><small>granted ${span(clock.now() - grant.grantedAt)} ago</small></div>
<p class="scopes">${grant.scopes.map((scope) => html`<code>${scope.replace('https://www.googleapis.com/auth/', '')}</code>`)}</p>
${by.own.length === 0 && html`<p class="quiet">No live refresh token.</p>`}
${[...ofClient].map(([clientId, tokens]) => tokensOf({ clientId, tokens, now: clock.now() }))}
${button({ act: 'revoke', view: by.view, fixed, isDanger: true }, 'Revoke')}</div>`;
}

function tokensOf(of: { clientId: string; tokens: RefreshToken[]; now: number }): Html {
  const { clientId, tokens, now } = of;
  const newest = tokens.slice(-tokensShown).reverse();
  return html`<small><code>${clientId}</code> · ${tokens.length} live</small>${table(
    ['Refresh token', 'Issued', 'Last used', 'Expires'],
    newest.map(
      (token, index) =>
        html`<tr><td class="nowrap">${index === 0 ? 'newest' : `${index + 1}. newest`}</td><td class="nowrap">${span(now - token.issuedAt)} ago</td><td class="nowrap">${
          token.usedAt === token.issuedAt ? 'never' : `${span(now - token.usedAt)} ago`
        }</td><td class="nowrap">in ${span(diesAt(token) - now)}${token.expiresAt === undefined && ' unless used'}</td></tr>`,
    ),
  )}${tokens.length > tokensShown && html`<small>${tokens.length - tokensShown} older tokens are not shown.</small>`}`;
}

const texts: Record<(typeof damageKinds)[number], string> = {
  header_renamed: 'rename the first header',
  column_deleted: 'delete the second column',
  rows_sorted: 'sort the rows in reverse',
  tab_renamed: 'rename the tab',
  tab_deleted: 'delete the tab',
  key_duplicated: 'give two rows the same key',
  types_mixed: 'put text into a column of numbers',
  emptied: 'clear the tab',
};

function spreadsheetsSection(
  all: { spreadsheetId: string; title: string; owner: { email: string } }[],
  view: View,
): Html {
  const damages: [string, string][] = damageKinds.map((damage) => [damage, texts[damage]]);
  return section(
    {
      id: 'spreadsheets',
      title: 'Spreadsheets',
      text: 'Damage the first tab of a spreadsheet like a careless user. The tab needs one header row, and keys in the first column.',
    },
    html`${all.length === 0 && empty('There are no spreadsheets. POST /_sandbox/spreadsheets creates one.')}
${
  all.length > 0 &&
  html`<div class="cards">${all.slice(0, maxShown).map(
    ({
      spreadsheetId,
      title,
      owner,
    }) => html`<div class="card"><div class="head"><b>${title}</b><span>${owner.email}</span><small><code>${spreadsheetId}</code></small></div>
<div class="buttons">${form({ act: 'damage', view, fixed: { spreadsheet_id: spreadsheetId } }, (typed) => html`<select name="damage" aria-label="Damage to ${title}">${options(damages, typed('damage'))}</select> <button class="button small danger">Apply</button>`)}</div></div>`,
  )}</div>${andMore(all.length)}`
}`,
  );
}

const callsShown = 25;
const outcomes: Record<string, string> = { reset: 'reset', cut: 'truncated', gone: 'client disconnected' };

function callsSection({ calls, accounts }: ControlParts): Html {
  const last = calls.last().slice(0, callsShown);
  const row = ({ at, route, sub, outcome, faults }: Call) =>
    html`<tr><td class="nowrap">${time(at)}</td><td class="nowrap"><span class="tag${isBad(outcome) && ' bad'}">${outcomes[outcome] ?? outcome}</span></td><td><code>${route}</code></td><td>${sub === undefined ? '' : (accounts.find(sub)?.email ?? sub)}</td><td>${faults.map((fault) => html`<code>${fault}</code> `)}</td></tr>`;
  return section(
    {
      id: 'calls',
      title: 'Calls',
      text: 'The last requests to the provider, without this page and the control routes.',
    },
    html`${last.length === 0 && empty('There were no calls since the start.')}
${
  last.length > 0 &&
  html`${table(['Time', 'Outcome', 'Route', 'Account', 'Faults'], last.map(row))}
<details><summary>Calls by route</summary>${table(
    ['Route', 'Calls'],
    Object.entries(calls.list()).map(
      ([route, count]) => html`<tr><td><code>${route}</code></td><td class="number">${count}</td></tr>`,
    ),
  )}</details>`
}`,
  );
}

function eventsSection({ receivers, securityEvents }: ControlParts): Html {
  const all = receivers.list();
  const deliveries = securityEvents.listDeliveries();
  return section(
    {
      id: 'events',
      title: 'Security events',
      text: 'Registered receivers get an event for revocations, password changes, and disabled or deleted accounts.',
    },
    html`${all.length === 0 && deliveries.length === 0 && empty('No receiver is registered. POST /_sandbox/receivers registers one.')}
${
  all.length > 0 &&
  table(
    ['Receiver', 'Client'],
    all.map(
      ({ url, clientId }) => html`<tr><td><code>${url}</code></td><td><code>${clientId}</code></td></tr>`,
    ),
  )
}
${
  deliveries.length > 0 &&
  table(
    ['Time', 'Event', 'Receiver', 'Response'],
    deliveries
      .slice(0, callsShown)
      .map(
        ({ at, type, receiver, status }) =>
          html`<tr><td class="nowrap">${time(at)}</td><td>${type}</td><td><code>${receiver}</code></td><td><span class="tag${(status === 'unreachable' || status >= 400) && ' bad'}">${status}</span></td></tr>`,
      ),
  )
}`,
  );
}

function isBad(outcome: Call['outcome']): boolean {
  return typeof outcome === 'string' || outcome >= 400;
}

/** The number of entries that a section shows; the control routes return all. */
const maxShown = 50;

/** The ticket of the page's forms, and the fields of the form that had an error. */
type View = { ticket: string; typed?: URLSearchParams };
/** The value of a field: the typed value after an error, otherwise the default. */
type Typed = (name: string, otherwise?: string) => string;

function section(about: { id: string; title: string; text: string }, body: Html | Html[]): Html {
  return html`<section id="${about.id}"><h2>${about.title}</h2><p class="quiet">${about.text}</p>${body}</section>
`;
}

/** A form that posts to the page: hidden fields with act, ticket and fixed values, then the visible fields. */
function form(
  to: { act: string; view: View; className?: string; fixed?: Record<string, string> },
  fields: (typed: Typed) => Html,
): Html {
  const own = Object.entries({ act: to.act, ...to.fixed });
  const { ticket, typed } = to.view;
  const isThis = own.every(([name, value]) => typed?.get(name) === value);
  const fixed = [...own, ['ticket', ticket]];
  return html`<form method="post" action="/"${to.className !== undefined && html` class="${to.className}"`}>${fixed.map(
    ([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`,
  )}${fields((name, otherwise = '') => (isThis ? typed?.get(name) : null) ?? otherwise)}</form>`;
}

function button(
  to: { act: string; view: View; fixed?: Record<string, string>; isDanger?: boolean },
  text: string,
): Html {
  const danger = to.isDanger === true ? ' danger' : '';
  return form(to, () => html`<button class="button small${danger}">${text}</button>`);
}

function options(choices: [value: string, text: string][], chosen?: string): Html {
  return html`${choices.map(
    ([value, text]) =>
      html`<option value="${value}"${value === chosen && new Html(' selected')}>${text}</option>`,
  )}`;
}

function table(heads: string[], rows: Html[]): Html {
  return html`<div class="scroll"><table><thead><tr>${heads.map((head) => html`<th>${head}</th>`)}</tr></thead><tbody>${rows}</tbody></table></div>`;
}

/** The text of a section without entries. */
function empty(text: string): Html {
  return html`<p class="empty">${text}</p>`;
}

function andMore(count: number): Html {
  return count > maxShown
    ? html`<p class="quiet">${count - maxShown} more are not shown here; the control routes return all.</p>`
    : html``;
}

/** A duration in its largest sensible unit: `45 s`, `12 min`, `3 h`, `6 days`. */
function span(ms: number): string {
  const seconds = Math.round(ms / 1000);
  if (seconds < 90) return `${seconds} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

function time(ms: number): string {
  return new Date(ms).toISOString().replace('T', ' ').slice(0, 19);
}

/** The styles of the overview, in addition to those of all pages. */
const overviewStyle = `
main.wide { max-width: 70rem; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: .75rem 0 0; font-size: .875rem; }
section { margin-top: 2.25rem; padding-top: 1.25rem; border-top: 1px solid var(--line); scroll-margin-top: 1rem; }
section > h2 { margin: 0; font-size: 1.1rem; }
section > p.quiet { margin-top: .15rem; max-width: 54rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .75rem; margin: 1.25rem 0 0; padding: 0; list-style: none; }
.figures li { padding: .6rem .8rem; border: 1px solid var(--line); border-radius: 8px; }
.figures b { display: block; font-size: 1.25rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.figures span { color: var(--quiet); font-size: .8rem; }
.figures .hot { border-color: var(--warn); }
.figures .hot b { color: var(--warn); }
:root { --warn: #a33a1d; --warn-ground: #fbe9e3; --good-ground: #e3f1ea; }
@media (prefers-color-scheme: dark) { :root { --warn: #f2957b; --warn-ground: #3d211a; --good-ground: #1d3229; } }
.alert { margin: 1rem 0 0; padding: .6rem .8rem; border-radius: 8px; background: var(--warn-ground); color: var(--warn); font-weight: 600; }
.fields { display: flex; flex-wrap: wrap; gap: .6rem; align-items: flex-end; margin-top: .9rem; }
.fields label { display: flex; flex-direction: column; gap: .2rem; flex: 1 1 9rem; min-width: 0; color: var(--quiet); font-size: .8rem; }
.fields label.grow { flex-grow: 3; flex-basis: 16rem; }
.fields label.whole { flex-basis: 100%; }
.fields label.short { flex: 0 1 7rem; }
.fields input, .fields select, .fields label > * { flex: none; width: 100%; height: 2.4rem; color: var(--ink); font-size: .9rem; }
.fields .button { flex: none; height: 2.4rem; padding-block: 0; }
.buttons { display: flex; flex-wrap: wrap; gap: .4rem; align-items: center; }
.buttons form { display: flex; gap: .4rem; align-items: center; }
.button.small { padding: .25rem .6rem; font-size: .8rem; border-radius: 6px; }
.buttons select { max-width: 100%; }
.buttons select, .buttons input { flex: none; width: auto; padding: .25rem .4rem; font-size: .8rem; border-radius: 6px; }
.buttons input[type=number] { width: 5rem; }
.button:hover { border-color: var(--accent); }
.button.danger:hover { border-color: var(--warn); color: var(--warn); }
.cards > * { min-width: 0; }
.cards { display: grid; grid-template-columns: minmax(0, 1fr); gap: .75rem; margin-top: .9rem; }
.card { padding: .8rem 1rem; border: 1px solid var(--line); border-radius: 10px; }
.card.hot { border-left: 3px solid var(--warn); }
.card .head { display: flex; flex-wrap: wrap; gap: .25rem .75rem; align-items: baseline; margin-bottom: .5rem; }
.card .head > * { min-width: 0; overflow-wrap: anywhere; }
.card small { color: var(--quiet); overflow-wrap: anywhere; }
.tag { display: inline-block; padding: 0 .5rem; border-radius: 99px; background: var(--good-ground); color: var(--accent); font-size: .75rem; font-weight: 600; }
td .tag { white-space: nowrap; }
.tag.bad { background: var(--warn-ground); color: var(--warn); }
.empty { margin: .9rem 0 0; padding: 1rem; border: 1px dashed var(--line); border-radius: 10px; color: var(--quiet); text-align: center; }
.scopes { display: flex; flex-wrap: wrap; gap: .25rem; }
.scopes code { padding: 0 .4rem; border: 1px solid var(--line); border-radius: 6px; overflow-wrap: anywhere; }
table { margin-top: .6rem; }
td.nowrap, td code { white-space: nowrap; }
.card > form > .button.small { margin-top: .6rem; }
details { margin-top: .9rem; }
summary { cursor: pointer; color: var(--accent); font-size: .9rem; }
@media (max-width: 30rem) {
  .fields .button { width: 100%; }
  .buttons form { flex-wrap: wrap; }
}
`;
