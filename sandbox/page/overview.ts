/** The page as it is rendered: sections in the order in which a person needs them. Shows no token and no secret. */
import type { ControlParts } from '../control/parts.ts';
import { Html, html, htmlPage } from '../html.ts';
import type { Reply } from '../http.ts';
import { accountsSection } from './accounts-section.ts';
import { appsSection } from './apps-section.ts';
import { callsSection, eventsSection } from './calls-section.ts';
import { clockSection } from './clock-section.ts';
import { faultsSection } from './faults-section.ts';
import { grantsSection } from './grants-section.ts';
import type { View } from './parts.ts';
import { spreadsheetsSection } from './spreadsheets-section.ts';
import { OVERVIEW_STYLE } from './style.ts';

/** The page over these parts; with a complaint about a form it is a 400. */
export async function overviewPage(parts: ControlParts, view: View & { complaint?: string }): Promise<Reply> {
  const { complaint } = view;
  const { accounts, tokens, faults, calls } = parts;
  const spreadsheets = await parts.spreadsheets.list();
  const inForce = faults.list().length;
  const figures: [number, string, boolean][] = [
    [inForce, 'faults in force', inForce > 0],
    [accounts.list().length, 'accounts', false],
    [tokens.listLiveRefresh().length, 'live refresh tokens', false],
    [spreadsheets.length, 'spreadsheets', false],
    [Object.values(calls.list()).reduce((sum, count) => sum + count, 0), 'calls since the start', false],
  ];
  return htmlPage(complaint === undefined ? 200 : 400, {
    title: 'Overview',
    wideStyle: OVERVIEW_STYLE,
    body: html`<h1>A provider to break</h1>
<p class="quiet">What is done here by hand, the routes under <code>/_sandbox</code> do for a script.</p>
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
${complaint !== undefined && html`<p class="alert" role="alert">${complaint}</p>`}
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
