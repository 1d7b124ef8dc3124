import { type Html, html } from '../html.ts';
import { DAMAGES } from '../sheets/damage.ts';
import { andMore, empty, form, options, SHOWN, section, type View } from './parts.ts';

const TEXTS: Record<(typeof DAMAGES)[number], string> = {
  header_renamed: 'rename the first heading',
  column_deleted: 'delete the second column',
  rows_sorted: 'sort the rows backwards',
  tab_renamed: 'rename the tab',
  tab_deleted: 'delete the tab',
  key_duplicated: 'give two rows the same key',
  types_mixed: 'put text among the numbers',
  emptied: 'empty the tab',
};

/** The spreadsheets, and what a careless person may do to one. */
export function spreadsheetsSection(
  all: { spreadsheetId: string; title: string; owner: { email: string } }[],
  view: View,
): Html {
  const damages: [string, string][] = DAMAGES.map((damage) => [damage, TEXTS[damage]]);
  return section(
    {
      id: 'spreadsheets',
      title: 'Spreadsheets',
      text: 'Spoil the first tab of one, as a careless person would: one row of headings, keys in the first column.',
    },
    html`${all.length === 0 && empty('There is none. POST /_sandbox/spreadsheets makes one.')}
${
  all.length > 0 &&
  html`<div class="cards">${all.slice(0, SHOWN).map(
    ({
      spreadsheetId,
      title,
      owner,
    }) => html`<div class="card"><div class="head"><b>${title}</b><span>${owner.email}</span><small><code>${spreadsheetId}</code></small></div>
<div class="buttons">${form({ act: 'damage', view, fixed: { spreadsheet_id: spreadsheetId } }, (typed) => html`<select name="damage" aria-label="What to do to ${title}">${options(damages, typed('damage'))}</select> <button class="button small danger">Do it</button>`)}</div></div>`,
  )}</div>${andMore(all.length)}`
}`,
  );
}
