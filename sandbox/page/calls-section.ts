import type { Call } from '../calls.ts';
import type { ControlParts } from '../control/parts.ts';
import { type Html, html } from '../html.ts';
import { empty, section, table, time } from './parts.ts';

const CALLS_SHOWN = 25;
const OUTCOMES: Record<string, string> = { reset: 'reset', cut: 'cut short', gone: 'caller gone' };

/** The last calls and the counts since the start. */
export function callsSection({ calls, accounts }: ControlParts): Html {
  const last = calls.last().slice(0, CALLS_SHOWN);
  const row = ({ at, route, sub, outcome, faults }: Call) =>
    html`<tr><td class="nowrap">${time(at)}</td><td class="nowrap"><span class="tag${isBad(outcome) && ' bad'}">${OUTCOMES[outcome] ?? outcome}</span></td><td><code>${route}</code></td><td>${sub === undefined ? '' : (accounts.find(sub)?.email ?? sub)}</td><td>${faults.map((fault) => html`<code>${fault}</code> `)}</td></tr>`;
  return section(
    {
      id: 'calls',
      title: 'Calls',
      text: 'What was asked of the provider last, without this page and the control routes.',
    },
    html`${last.length === 0 && empty('Nothing has been asked since the start.')}
${
  last.length > 0 &&
  html`${table(['Time', 'Outcome', 'Route', 'Account', 'Faults'], last.map(row))}
<details><summary>How often each route was called</summary>${table(
    ['Route', 'Calls'],
    Object.entries(calls.list()).map(
      ([route, count]) => html`<tr><td><code>${route}</code></td><td class="number">${count}</td></tr>`,
    ),
  )}</details>`
}`,
  );
}

/** Who is told of security events, and what became of the last ones. */
export function eventsSection({ receivers, securityEvents }: ControlParts): Html {
  const all = receivers.list();
  const deliveries = securityEvents.listDeliveries();
  return section(
    {
      id: 'events',
      title: 'Security events',
      text: 'Registered receivers hear of revocations, new passwords, disabled and deleted accounts.',
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
    ['Time', 'Event', 'Receiver', 'Answer'],
    deliveries
      .slice(0, CALLS_SHOWN)
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
