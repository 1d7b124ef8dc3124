import type { Account, Standing } from '../accounts.ts';
import type { ControlParts } from '../control/parts.ts';
import { type Html, html } from '../html.ts';
import { andMore, button, empty, form, options, SHOWN, section, span, type View } from './parts.ts';

const STANDINGS: [Standing, string][] = [
  ['active', 'in good standing'],
  ['restricted', 'restricted by its admin'],
  ['admin_policy', 'app blocked by its admin'],
  ['disabled', 'disabled'],
];

/** Who exists, what may befall them, and the form that adds somebody. */
export function accountsSection({ accounts }: ControlParts, view: View): Html {
  const all = accounts.list();
  return section(
    {
      id: 'accounts',
      title: 'Accounts',
      text: 'A change of password ends the tokens that hold mail scopes. A session length applies to Cloud scopes.',
    },
    html`${all.length === 0 && empty('There is nobody. Add an account below.')}
${all.length > 0 && html`<div class="cards">${all.slice(0, SHOWN).map((account) => accountCard(account, view))}</div>${andMore(all.length)}`}
${form(
  { act: 'add_account', view, className: 'fields' },
  (
    typed,
  ) => html`<label class="grow">Address<input type="email" name="email" value="${typed('email')}" required placeholder="alan@example.com"></label>
<label>Name<input type="text" name="name" value="${typed('name')}" maxlength="200" placeholder="from the address"></label>
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
    !isActive && html`<span class="tag bad">${STANDINGS.find(([value]) => value === standing)![1]}</span>`
  }${hostedDomain !== undefined && html`<span class="tag">${hostedDomain}</span>`}${
    sessionSeconds !== undefined &&
    html`<span class="tag bad">sessions of ${span(sessionSeconds * 1000)}</span>`
  }<small>id ${sub}</small></div>
<div class="buttons">${button({ act: 'password', view, fixed }, 'Change password')}
${form({ act: 'standing', view, fixed }, (typed) => html`<select name="standing" aria-label="Standing of ${email}">${options(STANDINGS, typed('standing', standing))}</select> <button class="button small">Set</button>`)}
${form({ act: 'session', view, fixed }, (typed) => html`<input type="number" name="hours" value="${typed('hours')}" min="0.01" step="any" placeholder="hours" aria-label="Session length of ${email} in hours"> <button class="button small">Set session length</button>`)}
${button({ act: 'purge', view, fixed, isDanger: true }, 'Delete')}</div></div>`;
}
