import type { Clock } from '../clock.ts';
import { type Html, html } from '../html.ts';
import { button, form, section, span, time, type View } from './parts.ts';

const STEPS: [hours: string, text: string][] = [
  ['1', '+ 1 hour'],
  ['24', '+ 1 day'],
  ['168', '+ 7 days'],
  ['4416', '+ 6 months'],
];

/** The clock, and buttons that move it. */
export function clockSection({ clock }: { clock: Clock }, view: View): Html {
  const ahead = clock.offsetSeconds();
  return section(
    {
      id: 'clock',
      title: 'Clock',
      text: 'Everything that expires here asks this clock. It only moves forward, and a restart of the sandbox resets it.',
    },
    html`<p><b>${time(clock.now())}</b> UTC ${ahead > 0 && html`<span class="tag bad">${span(ahead * 1000)} ahead</span>`}</p>
<div class="buttons">${STEPS.map(([hours, text]) => button({ act: 'advance', view, fixed: { hours } }, text))}${form(
      { act: 'advance', view },
      (typed) =>
        html`<input type="number" name="hours" value="${typed('hours')}" min="0.01" step="any" required placeholder="hours" aria-label="Hours to move the clock by"> <button class="button small">Move</button>`,
    )}</div>`,
  );
}
