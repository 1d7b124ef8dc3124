import type { ControlParts } from '../control/parts.ts';
import type { Grant } from '../grants.ts';
import { type Html, html } from '../html.ts';
import { diesAt, REFRESH_TOKEN_LIMIT, type RefreshToken } from '../tokens.ts';
import { andMore, button, empty, SHOWN, section, shortScope, span, table, type View } from './parts.ts';

/** How many tokens of one grant and client are shown one by one. */
const TOKENS_SHOWN = 5;

/** What was granted, and the live refresh tokens of each client with their age and end. */
export function grantsSection(parts: ControlParts, view: View): Html {
  const grants = parts.grants.list();
  const live = parts.tokens.listLiveRefresh();
  return section(
    {
      id: 'grants',
      title: 'Grants',
      text: `A revocation ends the tokens of all clients of the app. Token ${REFRESH_TOKEN_LIMIT + 1} of an account and client ends the oldest.`,
    },
    html`${grants.length === 0 && empty('Nobody has consented to anything yet.')}
${
  grants.length > 0 &&
  html`<div class="cards">${grants.slice(0, SHOWN).map((grant) => {
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
<p class="scopes">${grant.scopes.map((scope) => html`<code>${shortScope(scope)}</code>`)}</p>
${by.own.length === 0 && html`<p class="quiet">No live refresh token.</p>`}
${[...ofClient].map(([clientId, tokens]) => tokensOf({ clientId, tokens, now: clock.now() }))}
${button({ act: 'revoke', view: by.view, fixed, isDanger: true }, 'Revoke')}</div>`;
}

function tokensOf(of: { clientId: string; tokens: RefreshToken[]; now: number }): Html {
  const { clientId, tokens, now } = of;
  const newest = tokens.slice(-TOKENS_SHOWN).reverse();
  return html`<small><code>${clientId}</code> · ${tokens.length} live</small>${table(
    ['Refresh token', 'Issued', 'Last used', 'Dies by itself'],
    newest.map(
      (token, index) =>
        html`<tr><td class="nowrap">${index === 0 ? 'newest' : `${index + 1}. newest`}</td><td class="nowrap">${span(now - token.issuedAt)} ago</td><td class="nowrap">${
          token.usedAt === token.issuedAt ? 'never' : `${span(now - token.usedAt)} ago`
        }</td><td class="nowrap">in ${span(diesAt(token) - now)}${token.expiresAt === undefined && ' unless used'}</td></tr>`,
    ),
  )}${tokens.length > TOKENS_SHOWN && html`<small>${tokens.length - TOKENS_SHOWN} older ones are not shown.</small>`}`;
}
