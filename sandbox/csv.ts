/** The value of a cell in a new spreadsheet. */
export type Cell = string | number | boolean | null;

/**
 * Reads CSV (RFC 4180: quotes, doubled quotes, line breaks inside quotes; LF or CRLF; a byte order mark is
 * dropped) into rows of text. Throws `SyntaxError` with the line number for a quote that never ends or that is
 * followed by text.
 */
export function parseCsv(csv: string): string[][] {
  const text = csv.startsWith('\uFEFF') ? csv.slice(1) : csv;
  const rows: string[][] = [];
  let row: string[] = [];
  let line = 1;
  let at = 0;
  while (at < text.length) {
    const start = at;
    let cell: string;
    if (text[at] === '"') {
      at += 1;
      let end = text.indexOf('"', at);
      while (end !== -1 && text[end + 1] === '"') end = text.indexOf('"', end + 2);
      if (end === -1) throw new SyntaxError(`line ${line}: a quoted cell does not end`);
      const quoted = text.slice(at, end);
      line += quoted.split('\n').length - 1;
      cell = quoted.replaceAll('""', '"');
      at = end + 1;
    } else {
      while (at < text.length && text[at] !== ',' && text[at] !== '\n' && text[at] !== '\r') at += 1;
      cell = text.slice(start, at);
    }
    row.push(cell);
    if (text[at] === ',') {
      at += 1;
      // A comma at the end of the text is followed by an empty cell.
      if (at === text.length) row.push('');
      continue;
    }
    if (at < text.length && text[at] !== '\r' && text[at] !== '\n') {
      throw new SyntaxError(`line ${line}: text follows a closing quote`);
    }
    at += text.startsWith('\r\n', at) ? 2 : 1;
    line += 1;
    rows.push(row);
    row = [];
  }
  if (row.length > 0) rows.push(row);
  return rows;
}

/**
 * Converts text cells to numbers, TRUE and FALSE; an empty cell becomes null. Dates, currencies and percentages stay text.
 *
 * A column with a leading zero before another digit in any cell contains codes (postcode 00601, airport 0E0) and stays text.
 * Pasting into Google Sheets would convert these to 601 and 0.
 */
export function typeCells(rows: string[][]): Cell[][] {
  const isCode: boolean[] = [];
  for (const row of rows) {
    for (const [column, text] of row.entries()) if (/^[+-]?0\d/.test(text)) isCode[column] = true;
  }
  return rows.map((row) =>
    row.map((text, column) => (text === '' ? null : isCode[column] ? text : typeCell(text))),
  );
}

function typeCell(text: string): Cell {
  if (/^true$/i.test(text)) return true;
  if (/^false$/i.test(text)) return false;
  if (/^[+-]?(\d+|\d{1,3}(,\d{3})+|(?=\.\d))(\.\d*)?(e[+-]?\d+)?$/i.test(text)) {
    const number = Number(text.replaceAll(',', ''));
    if (Number.isFinite(number)) return number;
  }
  return text;
}
