/** A1 notation of ranges, and links to spreadsheets. Indexes count from 0, rows in A1 notation from 1. */

/** `A`, `Z`, `AA`, ... */
export function columnLetters(index: number): string {
  let name = '';
  for (let rest = index + 1; rest > 0; rest = Math.floor((rest - 1) / 26)) {
    name = String.fromCharCode(65 + ((rest - 1) % 26)) + name;
  }
  return name;
}

/** The title in quotes, so that Google does not parse it as a range. */
export function quotedTitle(title: string): string {
  return `'${title.replaceAll("'", "''")}'`;
}

/** The range of whole rows of a tab; `end` is exclusive. */
export function rowsRange(title: string, { start, end }: { start: number; end: number }): string {
  return `${quotedTitle(title)}!${start + 1}:${end}`;
}

/** The tab's title in a range of a response, such as `'My tab'!A1:Z9`. */
export function titleOf(range: string): string {
  const title = range.slice(0, range.lastIndexOf('!'));
  return title.startsWith("'") ? title.slice(1, -1).replaceAll("''", "'") : title;
}

export type SpreadsheetLink = { spreadsheetId: string; sheetId?: number };

/** The spreadsheet, and the tab if any, of a pasted link or an ID; undefined if the text is neither. */
export function readLink(text: string): SpreadsheetLink | undefined {
  const given = text.trim();
  const [, inLink] =
    /^https?:\/\/[^/?#]+\/(?:[^?#]*\/)?d\/([A-Za-z0-9_-]{20,100})(?:[/?#]|$)/.exec(given) ?? [];
  const spreadsheetId = inLink ?? (/^[A-Za-z0-9_-]{20,100}$/.test(given) ? given : undefined);
  if (spreadsheetId === undefined) return undefined;
  const [, gid] = /[#?&]gid=(\d{1,10})(?:\D|$)/.exec(given) ?? [];
  return { spreadsheetId, ...(gid !== undefined && { sheetId: Number(gid) }) };
}
