import type { Accounts } from './accounts.ts';
import type { Calls } from './calls.ts';
import type { Clients } from './clients.ts';
import type { Clock } from './clock.ts';
import { caseOf, type Faults } from './faults.ts';
import type { Grants } from './grants.ts';
import { type Html, html, htmlPage } from './html.ts';
import type { Reply } from './http.ts';
import type { Tokens } from './tokens.ts';

/** What the page at the sandbox's root shows. */
export interface OverviewParts {
  accounts: Accounts;
  clients: Clients;
  grants: Grants;
  tokens: Tokens;
  faults: Faults;
  calls: Calls;
  clock: Clock;
  spreadsheetCount: number;
}

/** The page at `/`: accounts, grants, faults, calls and the clock, to read. Shows no token and no secret. */
export function overviewPage(parts: OverviewParts): Reply {
  const { accounts, clients, grants, tokens, faults, calls, clock } = parts;
  const projectNames = new Map(clients.listProjects().map(({ number, name }) => [number, name]));
  const emailOf = (sub: string) => accounts.find(sub)?.email ?? sub;
  return htmlPage(200, {
    title: 'Overview',
    isWide: true,
    body: html`<h1>What the provider knows</h1>
<p class="quiet">Its clock says ${new Date(clock.now()).toISOString()}${clock.offsetSeconds() > 0 && html`, ${clock.offsetSeconds()} seconds ahead`}.
It holds ${parts.spreadsheetCount} spreadsheets. The routes under <code>/_sandbox</code> change all this.</p>
<h2>Accounts</h2>
${table(
  ['Account', 'Id'],
  accounts
    .list()
    .map(
      ({ email, name, sub }) =>
        html`<tr><td>${name}<small>${email}</small></td><td><code>${sub}</code></td></tr>`,
    ),
)}
<h2>Grants</h2>
${table(
  ['Account', 'Project', 'Scopes', 'Live refresh tokens'],
  grants
    .list()
    .map(
      (grant) =>
        html`<tr><td>${emailOf(grant.sub)}</td><td>${projectNames.get(grant.projectNumber)}</td><td>${grant.scopes.map((scope) => html`<code>${scope}</code><br>`)}</td><td class="number">${tokens.countLiveRefresh(grant)}</td></tr>`,
    ),
)}
<h2>Faults</h2>
${table(
  ['Case', 'Whom', 'Times left', 'Struck'],
  faults
    .list()
    .map(
      (fault) =>
        html`<tr><td>${fault.name}<small>${caseOf(fault.name).text}</small></td><td>${fault.sub === undefined ? 'everyone' : emailOf(fault.sub)}${fault.clientId !== undefined && html`<small>${fault.clientId}</small>`}</td><td>${fault.timesLeft ?? 'until cleared'}</td><td class="number">${fault.struck}</td></tr>`,
    ),
)}
<h2>Calls since the start</h2>
${table(
  ['Route', 'Calls'],
  Object.entries(calls.list()).map(
    ([route, count]) => html`<tr><td><code>${route}</code></td><td class="number">${count}</td></tr>`,
  ),
)}`,
  });
}

/** The page at `/` of a sandbox with a key: whoever comes by a browser has none, so it shows nothing. */
export function closedOverviewPage(): Reply {
  return htmlPage(200, {
    title: 'Overview',
    body: html`<h1>This sandbox is locked</h1><p>Ask its routes under <code>/_sandbox</code> with the key.</p>`,
  });
}

function table(heads: string[], rows: Html[]): Html {
  if (rows.length === 0) return html`<p class="quiet">None.</p>`;
  return html`<div class="scroll"><table><thead><tr>${heads.map((head) => html`<th>${head}</th>`)}</tr></thead><tbody>${rows}</tbody></table></div>`;
}
