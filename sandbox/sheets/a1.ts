/**
 * A1 and R1C1 notation: text to indexes and back. Pure.
 *
 * Indexes are zero-based and ends are exclusive, as in the API's GridRange; an absent bound is open.
 */

/** A rectangle of cells; an absent bound reaches to the edge of the grid. */
export interface Area {
  readonly startRow?: number;
  readonly endRow?: number;
  readonly startColumn?: number;
  readonly endColumn?: number;
}

/** The meaning of a range text: cells of a named sheet or of the first sheet, or a name (sheet or named range). */
type A1 =
  | { readonly kind: 'area'; readonly sheet?: string; readonly area: Area }
  | { readonly kind: 'name'; readonly name: string; readonly quoted: boolean };

/** `0` → `A`, `25` → `Z`, `26` → `AA`. */
export function columnName(index: number): string {
  const rest = Math.floor(index / 26);
  return (rest === 0 ? '' : columnName(rest - 1)) + String.fromCharCode(65 + (index % 26));
}

/** `A` → `0`, `zz` → `701`. */
export function columnIndex(name: string): number {
  let index = 0;
  for (const letter of name.toUpperCase()) index = index * 26 + letter.charCodeAt(0) - 64;
  return index - 1;
}

/** Parses a range; undefined if the text is neither cells nor a name. */
export function parseA1(text: string): A1 | undefined {
  const quoted = /^'((?:[^']|'')+)'(?:!(.*))?$/s.exec(text);
  if (quoted) {
    const title = (quoted[1] ?? '').replaceAll("''", "'");
    if (quoted[2] === undefined) return { kind: 'name', name: title, quoted: true };
    return onSheet(title, quoted[2]);
  }
  const bang = text.lastIndexOf('!');
  if (bang >= 0) return bang === 0 ? undefined : onSheet(text.slice(0, bang), text.slice(bang + 1));
  const area = parseArea(text);
  if (area !== undefined) return { kind: 'area', area };
  return text === '' ? undefined : { kind: 'name', name: text, quoted: false };
}

function onSheet(sheet: string, cells: string): A1 | undefined {
  const area = parseArea(cells);
  return area && { kind: 'area', sheet, area };
}

/** `B2`, `A1:C`, `A:C`, `2:5`, `$A$1:$B$2`, `R1C1:R2C2` → indexes; corners may come in any order. */
export function parseArea(text: string): Area | undefined {
  const [first = '', second, ...more] = text.split(':');
  if (more.length > 0) return undefined;
  const from = parseCorner(first);
  const to = second === undefined ? from : parseCorner(second);
  if (from === undefined || to === undefined) return undefined;
  // `A` or `3` alone is not a range; `A:A` and `3:3` are ranges.
  if (second === undefined && (from.row === undefined || from.column === undefined)) return undefined;
  const rows = span(from.row, to.row);
  const columns = span(from.column, to.column);
  // `A:5` has a column on one side and a row on the other, which is not a range.
  if ((from.row ?? to.row) !== undefined && (from.column ?? to.column) !== undefined) {
    const hasCorner = [from, to].some(({ row, column }) => row !== undefined && column !== undefined);
    if (!hasCorner) return undefined;
  }
  return {
    ...(rows.start !== undefined && { startRow: rows.start }),
    ...(rows.end !== undefined && { endRow: rows.end }),
    ...(columns.start !== undefined && { startColumn: columns.start }),
    ...(columns.end !== undefined && { endColumn: columns.end }),
  };
}

interface Corner {
  readonly row?: number;
  readonly column?: number;
}

function parseCorner(text: string): Corner | undefined {
  const r1c1 = /^R([1-9]\d{0,7})C([1-9]\d{0,4})$/i.exec(text);
  if (r1c1) return { row: Number(r1c1[1]) - 1, column: Number(r1c1[2]) - 1 };
  const a1 = /^\$?([A-Za-z]{1,3})?\$?([1-9]\d{0,7})?$/.exec(text);
  if (!a1 || text === '' || (a1[1] === undefined && a1[2] === undefined)) return undefined;
  return {
    ...(a1[2] !== undefined && { row: Number(a1[2]) - 1 }),
    ...(a1[1] !== undefined && { column: columnIndex(a1[1]) }),
  };
}

function span(a: number | undefined, b: number | undefined): { start?: number; end?: number } {
  if (a === undefined && b === undefined) return {};
  if (a !== undefined && b !== undefined) return { start: Math.min(a, b), end: Math.max(a, b) + 1 };
  // Open on one side: `A2:C` starts at row 2 and has no last row, and so does `A:C2`.
  return { start: a ?? b ?? 0 };
}

/** A sheet's title in a range: quoted unless it is a plain word that cannot be parsed as cells. */
export function quoteTitle(title: string): string {
  const isPlain = /^[A-Za-z_][A-Za-z0-9_]*$/.test(title) && parseArea(title) === undefined;
  return isPlain ? title : `'${title.replaceAll("'", "''")}'`;
}

/** The cells of a range without the sheet: `A1:C3`, `A2:C`, `A:C`, `2:5`; one cell is `B2`, everything is ``. */
function formatArea(area: Area): string {
  const { startRow, endRow, startColumn, endColumn } = area;
  const from = corner(startRow, startColumn);
  const to = corner(
    endRow === undefined ? undefined : endRow - 1,
    endColumn === undefined ? undefined : endColumn - 1,
  );
  if (from === '' && to === '') return '';
  const isCell = from === to && startRow !== undefined && startColumn !== undefined;
  return isCell ? from : `${from}:${to}`;
}

/** `Sheet1!A1:C3`, `'My sheet'!B2`, `Sheet1` for the whole of it. */
export function formatA1(title: string, area: Area): string {
  const cells = formatArea(area);
  return cells === '' ? quoteTitle(title) : `${quoteTitle(title)}!${cells}`;
}

function corner(row: number | undefined, column: number | undefined): string {
  return (column === undefined ? '' : columnName(column)) + (row === undefined ? '' : String(row + 1));
}
