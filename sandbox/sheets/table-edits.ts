/**
 * Edits that depend on values: find and replace, sort.
 *
 * Each takes a forked spreadsheet and a checked request, changes the fork, and returns its reply if it has one.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { mapCells } from './cell-edits.ts';
import { enterAsUser, formatValue } from './cell-value.ts';
import { invalidArgument, notImplemented } from './errors.ts';
import { createEvaluator, isError, orderOf, type Value } from './formula.ts';
import { offsetFormula } from './index-moves.ts';
import { clip, clipGridRange } from './ranges.ts';
import {
  type Cell,
  compact,
  getCell,
  getSheet,
  isBlank,
  rich,
  type Spreadsheet,
  setCells,
} from './spreadsheet.ts';

export function findReplace(draft: Spreadsheet, request: sheets_v4.Schema$FindReplaceRequest): object {
  if (!request.find) throw invalidArgument('find must not be empty.');
  const pattern = searchPattern(request, request.find);
  const replacement = request.searchByRegex
    ? (request.replacement ?? '').replaceAll('$0', '$$&')
    : (request.replacement ?? '').replaceAll('$', '$$$$');
  const total = {
    valuesChanged: 0,
    formulasChanged: 0,
    rowsChanged: 0,
    sheetsChanged: 0,
    occurrencesChanged: 0,
  };
  for (const { sheet, rectangle } of searchedRanges(draft, request)) {
    const rows = new Set<number>();
    const searched = { ...rectangle, endRow: Math.min(rectangle.endRow, sheet.rows.length) };
    mapCells(sheet, searched, (cell, row) => {
      const { value, formula, format } = rich(cell);
      if (isBlank(cell) || (formula !== undefined && !request.includeFormulas)) return cell;
      const text = formula ?? formatValue(value ?? null, format?.numberFormat);
      const occurrences = text.match(pattern)?.length ?? 0;
      if (occurrences === 0) return cell;
      total.occurrencesChanged += occurrences;
      total[formula === undefined ? 'valuesChanged' : 'formulasChanged'] += 1;
      rows.add(row);
      return enterAsUser(cell, text.replace(pattern, replacement));
    });
    total.rowsChanged += rows.size;
    total.sheetsChanged += rows.size > 0 ? 1 : 0;
  }
  return { findReplace: Object.fromEntries(Object.entries(total).filter(([, count]) => count > 0)) };
}

function searchPattern(request: sheets_v4.Schema$FindReplaceRequest, find: string): RegExp {
  const source = request.searchByRegex ? find : RegExp.escape(find);
  try {
    return new RegExp(request.matchEntireCell ? `^(?:${source})$` : source, request.matchCase ? 'gu' : 'giu');
  } catch {
    throw invalidArgument(`Invalid regular expression: ${find}`);
  }
}

function searchedRanges(draft: Spreadsheet, request: sheets_v4.Schema$FindReplaceRequest) {
  if (request.range) return [clipGridRange(draft, request.range)];
  if (request.sheetId == null && !request.allSheets) {
    throw invalidArgument('One of range, sheetId or allSheets must be set.');
  }
  const sheets = request.allSheets ? draft.sheets : [getSheet(draft, request.sheetId)];
  return sheets.map((sheet) => ({ sheet, rectangle: clip({ sheet, area: {} }) }));
}

export function sortRange(draft: Spreadsheet, request: sheets_v4.Schema$SortRangeRequest): void {
  const { sheet, rectangle } = clipGridRange(draft, request.range);
  const specs = (request.sortSpecs ?? []).map((spec) => {
    if (
      spec.backgroundColor ??
      spec.backgroundColorStyle ??
      spec.foregroundColor ??
      spec.foregroundColorStyle
    ) {
      throw notImplemented('sorting by colour');
    }
    if (spec.dataSourceColumnReference) throw notImplemented('data sources');
    return { column: spec.dimensionIndex ?? 0, sign: spec.sortOrder === 'DESCENDING' ? -1 : 1 };
  });
  const outside = specs.find(({ column }) => column < rectangle.startColumn || column >= rectangle.endColumn);
  if (outside) throw invalidArgument(`dimensionIndex[${outside.column}] is not within the range to sort.`);
  const evaluator = createEvaluator(draft);
  const last = Math.min(rectangle.endRow, sheet.rows.length);
  const lines: { row: number; cells: Cell[]; keys: Value[] }[] = [];
  for (let row = rectangle.startRow; row < last; row += 1) {
    const cells: Cell[] = [];
    for (let column = rectangle.startColumn; column < rectangle.endColumn; column += 1) {
      cells.push(getCell(sheet, row, column));
    }
    lines.push({ row, cells, keys: specs.map(({ column }) => evaluator.value(sheet, row, column)) });
  }
  const sorted = lines.toSorted((a, b) => {
    for (const [index, { sign }] of specs.entries()) {
      const order = orderKeys(a.keys[index] ?? null, b.keys[index] ?? null, sign);
      if (order !== 0) return order;
    }
    return 0;
  });
  for (const [offset, line] of sorted.entries()) {
    const row = rectangle.startRow + offset;
    const cells = line.cells.map((cell) => {
      const { formula } = rich(cell);
      if (formula === undefined || row === line.row) return cell;
      return compact({
        ...rich(cell),
        formula: offsetFormula(formula, { rows: row - line.row, columns: 0 }),
      });
    });
    setCells(sheet, { row, startColumn: rectangle.startColumn }, cells);
  }
}

/** Blank cells come last in both orders, errors directly before them. */
function orderKeys(a: Value, b: Value, sign: number): number {
  const rank = (value: Value) => (value === null || value === '' ? 2 : isError(value) ? 1 : 0);
  if (rank(a) !== rank(b) || rank(a) > 0) return rank(a) - rank(b);
  return isError(a) || isError(b) || a === null || b === null ? 0 : sign * orderOf(a, b);
}
