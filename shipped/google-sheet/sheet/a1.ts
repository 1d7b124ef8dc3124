/** Names of cells and tabs as Sheets writes them, and links to spreadsheets. Indexes count from 0, rows in A1 from 1. */

/** `A`, `Z`, `AA`, ... */
export function columnLetters(index: number): string {
  let name = '';
  for (let rest = index + 1; rest > 0; rest = Math.floor((rest - 1) / 26)) {
    name = String.fromCharCode(65 + ((rest - 1) % 26)) + name;
  }
  return name;
}

/** The title in quotes, so that none is taken for a range. */
export function quotedTitle(title: string): string {
  return `'${title.replaceAll("'", "''")}'`;
}

/** Whole rows of a tab; `end` is beyond the last. */
export function rowsRange(title: string, { start, end }: { start: number; end: number }): string {
  return `${quotedTitle(title)}!${start + 1}:${end}`;
}

/** The tab's title in a range as Google answers it, such as `'My tab'!A1:Z9`. */
export function titleOf(range: string): string {
  const title = range.slice(0, range.lastIndexOf('!'));
  return title.startsWith("'") ? title.slice(1, -1).replaceAll("''", "'") : title;
}

export type SpreadsheetLink = { spreadsheetId: string; sheetId?: number };

/** What a pasted link or an ID names; undefined where it is neither. */
export function readLink(text: string): SpreadsheetLink | undefined {
  const given = text.trim();
  const [, inLink] =
    /^https?:\/\/[^/?#]+\/(?:[^?#]*\/)?d\/([A-Za-z0-9_-]{20,100})(?:[/?#]|$)/.exec(given) ?? [];
  const spreadsheetId = inLink ?? (/^[A-Za-z0-9_-]{20,100}$/.test(given) ? given : undefined);
  if (spreadsheetId === undefined) return undefined;
  const [, gid] = /[#?&]gid=(\d{1,10})(?:\D|$)/.exec(given) ?? [];
  return { spreadsheetId, ...(gid !== undefined && { sheetId: Number(gid) }) };
}
