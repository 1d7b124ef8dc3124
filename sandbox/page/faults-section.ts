import type { ControlParts } from '../control/parts.ts';
import { caseOf, FAULT_CASES, type FaultName } from '../faults/cases.ts';
import type { Fault } from '../faults/faults.ts';
import { type Html, html } from '../html.ts';
import {
  andMore,
  button,
  empty,
  form,
  options,
  SHOWN,
  section,
  type Typed,
  time,
  type View,
} from './parts.ts';

const GROUPS: [point: string, title: string][] = [
  ['authorize', 'Authorization page'],
  ['consent', 'Consent'],
  ['exchange', 'Exchange of the code'],
  ['refresh', 'Refresh'],
  ['token', 'Token endpoint, whatever the grant'],
  ['revoke', 'Revocation'],
  ['api', 'API'],
];
const TIMES: [string, string][] = [
  ['1', 'once'],
  ['3', '3 times'],
  ['10', '10 times'],
  ['', 'until switched off'],
];

/** The faults in force, and the form that switches one on. */
export function faultsSection(parts: ControlParts, view: View): Html {
  const { accounts, clients, faults } = parts;
  const inForce = faults.list();
  const names = Object.keys(FAULT_CASES) as FaultName[];
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
  const fields = (
    typed: Typed,
  ) => html`<label class="whole">What breaks<select name="case" required>${GROUPS.map(
    ([point, title]) =>
      html`<optgroup label="${title}">${options(
        names
          .filter((name) => caseOf(name).point === point)
          .map((name) => [name, `${name}: ${caseOf(name).text}`] as [string, string]),
        typed('case'),
      )}</optgroup>`,
  )}</select></label>
<label>For whom<select name="account">${options([['', 'every account'], ...people], typed('account'))}</select></label>
<label>In which app<select name="client_id">${options([['', 'every app'], ...apps], typed('client_id'))}</select></label>
<label>How often<select name="times">${options(TIMES, typed('times', '1'))}</select></label>
<label class="short">Delay, ms<input type="number" name="delay_ms" value="${typed('delay_ms')}" min="1" max="3600000" placeholder="30000"></label>
<button class="button primary">Switch on</button>`;
  return section(
    {
      id: 'faults',
      title: 'Faults',
      text: 'The oldest that fits a request strikes. The delay counts for slow answers only.',
    },
    html`${form({ act: 'fault', view, className: 'fields' }, fields)}
${inForce.length === 0 && empty('Nothing is broken.')}
${
  inForce.length > 0 &&
  html`<div class="cards">${inForce.slice(0, SHOWN).map((fault) => faultCard(fault, { parts, view }))}</div>${andMore(inForce.length)}
<p>${button({ act: 'clear_all', view }, 'Switch all off')}</p>`
}`,
  );
}

function faultCard(fault: Fault, by: { parts: ControlParts; view: View }): Html {
  const { accounts } = by.parts;
  const whom = fault.sub === undefined ? 'everyone' : (accounts.find(fault.sub)?.email ?? fault.sub);
  const left =
    fault.timesLeft !== undefined
      ? `${fault.timesLeft} more`
      : fault.until !== undefined
        ? `until ${time(fault.until)}`
        : 'until switched off';
  return html`<div class="card hot"><div class="head"><b>${fault.name}</b><span class="tag bad">${left}</span>${
    fault.every !== undefined && html`<span class="tag bad">each ${fault.every}th</span>`
  }<small>for ${whom}${fault.clientId !== undefined && html` in ${fault.clientId}`} · has struck ${fault.struck}</small></div>
<p class="quiet">${caseOf(fault.name).text}</p>${button({ act: 'clear', view: by.view, fixed: { id: fault.id } }, 'Switch off')}</div>`;
}
