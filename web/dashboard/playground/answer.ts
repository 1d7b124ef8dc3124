/** The limits of a response on the page. */
export const maxTextShown = 100_000;
const maxTextParsed = 5_000_000;
const maxRowsShown = 200;
const maxColumnsShown = 40;

export type Body =
  | { kind: 'empty' }
  | { kind: 'binary' }
  | { kind: 'text'; text: string }
  | { kind: 'json'; text: string; value: unknown };

export type TableOf = {
  /** The field of the response; empty: the whole response. */
  name: string;
  columns: string[];
  /** The number of the first row. */
  firstRow: number;
  rows: string[][];
  rowCount: number;
  columnCount: number;
};

/** Parses a body by its content type, and by whether it is valid UTF-8. */
export function bodyOf(bytes: Uint8Array, contentType: string): Body {
  if (bytes.length === 0) return { kind: 'empty' };
  if (/^(image|audio|video|font)\/(?!svg)/i.test(contentType)) return { kind: 'binary' };
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return { kind: 'binary' };
  }
  if (text.includes('\0')) return { kind: 'binary' };
  if (text.length <= maxTextParsed && (/\bjson\b/i.test(contentType) || /^\s*[[{]/.test(text))) {
    try {
      return { kind: 'json', text, value: JSON.parse(text) as unknown };
    } catch {
      return { kind: 'text', text };
    }
  }
  return { kind: 'text', text };
}

/** The table in a response: the `values` of a sheet, or a list of objects, at the top or in its first such field. */
export function tableOf(value: unknown): TableOf | undefined {
  if (Array.isArray(value)) return tableOfObjects('', value);
  if (!isObject(value)) return undefined;
  const { values } = value;
  if (Array.isArray(values) && values.length > 0 && values.every(Array.isArray)) {
    return tableOfCells(values as unknown[][], typeof value.range === 'string' ? value.range : '');
  }
  for (const [name, one] of Object.entries(value)) {
    const table = Array.isArray(one) ? tableOfObjects(name, one) : undefined;
    if (table !== undefined) return table;
  }
  return undefined;
}

function tableOfObjects(name: string, list: unknown[]): TableOf | undefined {
  if (list.length === 0 || !list.every(isObject)) return undefined;
  const columns = [...new Set(list.slice(0, maxRowsShown).flatMap((one) => Object.keys(one)))];
  const shown = columns.slice(0, maxColumnsShown);
  return {
    name,
    columns: shown,
    firstRow: 1,
    rows: list.slice(0, maxRowsShown).map((one) => shown.map((column) => cellOf(one[column]))),
    rowCount: list.length,
    columnCount: columns.length,
  };
}

/** Rows of cells, with the letters and numbers of the sheet. */
function tableOfCells(values: unknown[][], range: string): TableOf {
  const start = /(?:^|!)\$?([A-Z]{1,3})\$?(\d+)/.exec(range);
  const firstColumn = start === null ? 0 : numberOfLetters(start[1]!);
  const columnCount = values.reduce((widest, row) => Math.max(widest, row.length), 0);
  const shown = Math.min(columnCount, maxColumnsShown);
  return {
    name: '',
    columns: Array.from({ length: shown }, (_, index) => lettersOf(firstColumn + index)),
    firstRow: start === null ? 1 : Number(start[2]),
    rows: values
      .slice(0, maxRowsShown)
      .map((row) => Array.from({ length: shown }, (_, index) => cellOf(row[index]))),
    rowCount: values.length,
    columnCount,
  };
}

/** 0 is A, 26 is AA. */
export function lettersOf(column: number): string {
  const before = Math.floor(column / 26) - 1;
  return (before < 0 ? '' : lettersOf(before)) + String.fromCharCode(65 + (column % 26));
}

function numberOfLetters(letters: string): number {
  return Array.from(letters).reduce((sum, letter) => sum * 26 + letter.charCodeAt(0) - 64, 0) - 1;
}

function cellOf(value: unknown): string {
  if (value === undefined || value === null) return '';
  const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** "1.2 MB", in steps of 1,000. */
export function sizeOf(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${(bytes / 1000).toFixed(1)} KB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}
