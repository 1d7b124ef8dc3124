/** Pieces that the sections of the page share. */
import { Html, html } from '../html.ts';

/** How many entries a section shows; the control routes give the rest. */
export const SHOWN = 50;

/** What the forms of one page carry: its ticket, and the form that a complaint is about. */
export type View = { ticket: string; typed?: URLSearchParams };
/** What stands in a field: what was typed before the complaint, otherwise this. */
export type Typed = (name: string, otherwise?: string) => string;

/** A section with a heading and a sentence. */
export function section(about: { id: string; title: string; text: string }, body: Html | Html[]): Html {
  return html`<section id="${about.id}"><h2>${about.title}</h2><p class="quiet">${about.text}</p>${body}</section>
`;
}

/** A form that posts to the page: its act, its ticket and whatever is fixed, then the fields, filled as they were sent. */
export function form(
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

/** A small button that posts a form of its own. */
export function button(
  to: { act: string; view: View; fixed?: Record<string, string>; isDanger?: boolean },
  text: string,
): Html {
  const danger = to.isDanger === true ? ' danger' : '';
  return form(to, () => html`<button class="button small${danger}">${text}</button>`);
}

/** The options of a select, one of them chosen. */
export function options(choices: [value: string, text: string][], chosen?: string): Html {
  return html`${choices.map(
    ([value, text]) =>
      html`<option value="${value}"${value === chosen && new Html(' selected')}>${text}</option>`,
  )}`;
}

/** A table that scrolls sideways where it is wider than the page. */
export function table(heads: string[], rows: Html[]): Html {
  return html`<div class="scroll"><table><thead><tr>${heads.map((head) => html`<th>${head}</th>`)}</tr></thead><tbody>${rows}</tbody></table></div>`;
}

/** Says what is not there yet, and how it comes. */
export function empty(text: string): Html {
  return html`<p class="empty">${text}</p>`;
}

/** A word about the entries that are not shown, if there are any. */
export function andMore(count: number): Html {
  return count > SHOWN
    ? html`<p class="quiet">${count - SHOWN} more are not shown here; the control routes give all.</p>`
    : html``;
}

/** A duration of milliseconds in its largest sensible unit: `45 s`, `12 min`, `3 h`, `6 days`. */
export function span(ms: number): string {
  const seconds = Math.round(ms / 1000);
  if (seconds < 90) return `${seconds} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

/** A time of the clock, to the second. */
export function time(ms: number): string {
  return new Date(ms).toISOString().replace('T', ' ').slice(0, 19);
}

/** The last part of a scope, which is what tells it from others. */
export function shortScope(scope: string): string {
  return scope.replace('https://www.googleapis.com/auth/', '');
}
