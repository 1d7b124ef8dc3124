/**
 * Adjusts references in formulas, named ranges, merges and metadata when rows or columns get other indexes,
 * so that they refer to the same cells. The callers move the cells.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { mapReferences, type Reference, type ReferenceCorner } from './formula-syntax.ts';
import type { Row, Sheet, Spreadsheet } from './spreadsheet.ts';

export type Dimension = 'ROWS' | 'COLUMNS';

/** Rows or columns of one sheet that get other indexes. */
interface IndexMove {
  readonly sheet: Sheet;
  readonly dimension: Dimension;
  /** The new index of a row or column; undefined if it was deleted. */
  readonly map: (index: number) => number | undefined;
  /** If only a part of the grid shifts: its columns (when rows move) or rows, end exclusive. */
  readonly band?: { readonly start: number; readonly end: number };
}

/** Adjusts everything in a forked spreadsheet that refers to cells of the moved rows or columns. */
export function applyIndexMove(spreadsheet: Spreadsheet, move: IndexMove): void {
  const { sheet } = move;
  changeFormulas(spreadsheet, (reference, home) => {
    const target = reference.sheet ?? home.properties.title;
    const isHit = target.toLowerCase() === sheet.properties.title.toLowerCase();
    return isHit ? moveReference(reference, move) : reference;
  });
  sheet.merges = sheet.merges.flatMap((merge) => moveGridRange(merge, move) ?? []);
  spreadsheet.namedRanges = spreadsheet.namedRanges.flatMap((named) => {
    if ((named.range?.sheetId ?? 0) !== sheet.properties.sheetId) return [named];
    const range = moveGridRange(named.range ?? {}, move);
    return range === undefined ? [] : [{ ...named, range }];
  });
  if (move.band !== undefined) return;
  spreadsheet.developerMetadata = spreadsheet.developerMetadata.flatMap((metadata) => {
    const range = metadata.location?.dimensionRange;
    if (!range || range.dimension !== move.dimension || (range.sheetId ?? 0) !== sheet.properties.sheetId) {
      return [metadata];
    }
    const span = moveSpan(range.startIndex ?? 0, range.endIndex ?? (range.startIndex ?? 0) + 1, move.map);
    if (span === undefined) return [];
    const dimensionRange = { ...range, startIndex: span.start, endIndex: span.end };
    return [{ ...metadata, location: { ...metadata.location, dimensionRange } }];
  });
}

/** Calls `change` with each reference of each formula and the sheet of the formula. */
export function changeFormulas(
  spreadsheet: Spreadsheet,
  change: (reference: Reference, home: Sheet) => Reference | undefined,
): void {
  for (const home of spreadsheet.sheets) {
    for (const [index, row] of home.rows.entries()) {
      const changed = changeRow(row, (reference) => change(reference, home));
      if (changed !== undefined) home.rows[index] = changed;
    }
  }
}

function changeRow(row: Row, change: (reference: Reference) => Reference | undefined): Row | undefined {
  let hasChanged = false;
  const hasFormula = row.some((cell) => typeof cell === 'object' && cell?.formula !== undefined);
  if (!hasFormula) return undefined;
  const cells = row.map((cell) => {
    if (cell === null || typeof cell !== 'object' || cell.formula === undefined) return cell;
    const formula = mapReferences(cell.formula, change);
    if (formula === cell.formula) return cell;
    hasChanged = true;
    return { ...cell, formula };
  });
  return hasChanged ? cells : undefined;
}

/** The formula copied to another cell: parts without `$` are shifted. */
export function offsetFormula(formula: string, by: { rows: number; columns: number }): string {
  const offset = (corner: ReferenceCorner): ReferenceCorner | undefined => {
    const row = corner.row && { ...corner.row, index: corner.row.index + (corner.row.isFixed ? 0 : by.rows) };
    const column = corner.column && {
      ...corner.column,
      index: corner.column.index + (corner.column.isFixed ? 0 : by.columns),
    };
    if ((row?.index ?? 0) < 0 || (column?.index ?? 0) < 0) return undefined;
    return { ...(row && { row }), ...(column && { column }) };
  };
  return mapReferences(formula, (reference) => {
    const from = offset(reference.from);
    const to = reference.to && offset(reference.to);
    if (from === undefined || (reference.to !== undefined && to === undefined)) return undefined;
    return { ...reference, from, ...(to && { to }) };
  });
}

function moveReference(reference: Reference, move: IndexMove): Reference | undefined {
  const [own, other] =
    move.dimension === 'ROWS' ? (['row', 'column'] as const) : (['column', 'row'] as const);
  const { from } = reference;
  const to = reference.to ?? from;
  if (move.band !== undefined) {
    const start = from[other]?.index ?? 0;
    const end = to[other]?.index ?? Number.POSITIVE_INFINITY;
    if (start < move.band.start || end >= move.band.end) return reference;
  }
  const [first, last] = [from[own], to[own]];
  if (first === undefined) return reference;
  // `A2:A` has no last row: only its start can move.
  const span = moveSpan(first.index, last === undefined ? first.index + 1 : last.index + 1, move.map);
  if (span === undefined) return last === undefined ? reference : undefined;
  if (span.start === first.index && (last === undefined || span.end === last.index + 1)) return reference;
  const moved = { ...reference, from: { ...from, [own]: { ...first, index: span.start } } };
  if (reference.to === undefined || last === undefined) return moved;
  return { ...moved, to: { ...to, [own]: { ...last, index: span.end - 1 } } };
}

function moveGridRange(
  range: sheets_v4.Schema$GridRange,
  move: IndexMove,
): sheets_v4.Schema$GridRange | undefined {
  const isRows = move.dimension === 'ROWS';
  if (move.band !== undefined) {
    const start = (isRows ? range.startColumnIndex : range.startRowIndex) ?? 0;
    const end = (isRows ? range.endColumnIndex : range.endRowIndex) ?? Number.POSITIVE_INFINITY;
    if (start < move.band.start || end > move.band.end) return range;
  }
  const [start, end] = isRows
    ? [range.startRowIndex, range.endRowIndex]
    : [range.startColumnIndex, range.endColumnIndex];
  if (start == null || end == null) return range;
  const span = moveSpan(start, end, move.map);
  if (span === undefined) return undefined;
  return isRows
    ? { ...range, startRowIndex: span.start, endRowIndex: span.end }
    : { ...range, startColumnIndex: span.start, endColumnIndex: span.end };
}

/** The new position of a span of indexes, end exclusive: from its first to its last remaining index. */
function moveSpan(
  start: number,
  end: number,
  map: IndexMove['map'],
): { start: number; end: number } | undefined {
  let [first, last] = [start, end - 1];
  while (first <= last && map(first) === undefined) first += 1;
  while (last > first && map(last) === undefined) last -= 1;
  const [a, b] = [map(first), map(last)];
  if (first > last || a === undefined || b === undefined) return undefined;
  return { start: Math.min(a, b), end: Math.max(a, b) + 1 };
}
