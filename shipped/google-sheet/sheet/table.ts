/** A tab as a table: its header, its columns and its rows, beside those of the last run. Pure. */

import type { MatchRow } from './alike-rows.ts';
import { type CellValue, type ColumnKind, cellReader, keyTextOf, type RawCell } from './cells.ts';
import { type Column, type ColumnChange, headerOf, matchColumns, readColumns } from './columns.ts';
import { fault } from './faults.ts';
import { digestOf, emptySignature, signatureOf } from './hash.ts';
import { type Identified, identify, type KnownRow, keyOf, type SheetRow } from './identify.ts';
import type { SheetSettings } from './settings.ts';
import type { SheetState } from './state.ts';

export type Table = {
  /** Where the header stands; from 0. */
  headerIndex: number;
  columns: Column[];
  changes: ColumnChange[];
  key: SheetState['key'];
  /** Rows that hold something, in order. */
  rows: (SheetRow & { index: number; cells: readonly RawCell[] })[];
  /** These rows and those of before, as they are compared with each other. */
  now: SheetRow[];
  before: KnownRow[];
  /** The rows of before, as those are to be known that are gone. */
  gone: KnownRow[];
};

/** Of each row by its index, where the identity is metadata. */
export type RowMetadata = ReadonlyMap<number, number>;

/** Columns beyond these count in no comparison of changed rows. */
const maxCompared = 64;
/** How many rows a header is looked for in. */
export const farthestHeader = 50;

/**
 * The table in these values. Throws `key_column_missing` where the column of keys is neither there nor to be known by what
 * it holds, and `header_row_missing` where the header is gone and one of its rows has come into its place.
 */
export function readTable(
  values: readonly (readonly RawCell[])[],
  { settings, state, metadata }: { settings: SheetSettings; state: SheetState; metadata?: RowMetadata },
): Table {
  const headerIndex = headerIndexOf(values, { settings, state });
  const header = values[headerIndex] ?? [];
  const data = values.slice(headerIndex + 1);
  // An emptied sheet has no renamed columns, nor does a sheet whose formula still loads all of it.
  const isBare = data.every((row) => row.every(isBlank));
  const isEmpty = isBare && (state.columns.length > 0 || header.every(isBlank));
  if (!isEmpty && state.headerRow === settings.headerRow) requireHeader(header, state);
  const { columns, from, changes } = isEmpty
    ? { columns: state.columns, from: [...state.columns.keys()], changes: [] }
    : matchColumns(state.columns, readColumns(header, data));
  const known = state.columns.length > 0;
  const key = isEmpty ? state.key : keyColumnOf(settings, { state, columns, from });
  const keyIndex = columns.find(({ name }) => name === key?.name)?.index;
  const rows = data.flatMap((cells, at) => {
    if (cells.every(isBlank)) return [];
    const index = headerIndex + 1 + at;
    const metadataId = metadata?.get(index);
    return [
      {
        ...{ index, cells, ...compared(cells, columns) },
        ...(keyIndex !== undefined && { key: keyTextOf(cells[keyIndex]) }),
        ...(metadataId !== undefined && { metadataId }),
      },
    ];
  });
  const isSame = from.length === state.columns.length && from.every((of, at) => of === at);
  const { rows: before } = state;
  const sides = isSame
    ? { now: rows, before, gone: before }
    : { ...onCommon(columns, { from, rows, before }), gone: inColumns(from, before) };
  return { headerIndex, columns, changes: known ? changes : [], key, rows, ...sides };
}

export function isBlank(cell: RawCell): boolean {
  return cell === undefined || cell === null || cell === '';
}

/** A row as it is compared with others of the same columns. */
export function compared(cells: readonly RawCell[], columns: readonly Column[]) {
  const own = columns.map(({ index }) => cells[index] ?? null);
  const digest = digestOf(JSON.stringify(own.map((cell) => (cell === '' ? null : cell))));
  return {
    ...{ digest, whole: digest },
    signatures: own.slice(0, maxCompared).map(signatureOf),
  };
}

/**
 * Where the header stands, from 0. The one that was there before may have been pushed down: it is looked for where it is not in
 * its place, unless the settings have another place for it by now.
 */
export function headerIndexOf(
  values: readonly (readonly RawCell[])[],
  { settings, state }: { settings: SheetSettings; state: SheetState },
): number {
  const wanted = settings.headerRow - 1;
  if (state.headerRow !== undefined && state.headerRow !== settings.headerRow) return wanted;
  const headers = new Set(state.columns.map(({ header }) => header).filter((header) => header !== ''));
  if (headers.size < 2) return wanted;
  const found = (index: number) => new Set((values[index] ?? []).map(headerOf)).intersection(headers).size;
  if (found(wanted) * 2 >= headers.size) return wanted;
  const last = Math.min(values.length, farthestHeader);
  for (let index = 0; index < last; index++) if (found(index) === headers.size) return index;
  return wanted;
}

/** Throws `header_row_missing`. */
function requireHeader(header: readonly RawCell[], { columns, rows }: SheetState): void {
  const known = new Set(columns.map((column) => column.header));
  if (rows.length === 0 || header.every(isBlank) || header.some((cell) => known.has(headerOf(cell)))) return;
  const { digest } = compared(header, columns);
  if (!rows.some((row) => row.digest === digest)) return;
  throw fault(
    'header_row_missing',
    'The header is gone: one of its rows stands in its place. Bring it back; nothing was deleted from the records.',
  );
}

function keyColumnOf(
  settings: SheetSettings,
  { state, columns, from }: { state: SheetState; columns: readonly Column[]; from: readonly number[] },
): SheetState['key'] {
  const { identity, keyColumn: configured } = settings;
  if (identity !== 'key' || configured === undefined) return undefined;
  const wanted = state.key?.configured === configured ? state.key.name : headerOf(configured);
  const there = columns.find(({ name }) => name === wanted);
  if (there !== undefined) return { configured, name: wanted };
  const old = state.columns.findIndex(({ name }) => name === wanted);
  const renamed = old === -1 ? undefined : columns[from.indexOf(old)];
  if (renamed !== undefined) return { configured, name: renamed.name };
  throw fault(
    'key_column_missing',
    `The sheet has no column "${wanted}", which tells its rows apart. Bring it back, or choose another column; ` +
      'nothing was deleted from the records.',
    { columns: columns.map(({ name }) => name) },
  );
}

/** Where columns came, went or moved, rows are compared by those that are on both sides. */
function onCommon(
  columns: readonly Column[],
  { from, rows, before }: { from: readonly number[]; rows: Table['rows']; before: readonly KnownRow[] },
): Pick<Table, 'now' | 'before'> {
  const common = columns
    .map((_, at) => [at, from[at]!] as const)
    .filter(([at, of]) => of >= 0 && at < maxCompared && of < maxCompared);
  const narrowed = <Row extends MatchRow>(row: Row, side: 0 | 1): Row => {
    const signatures = common.map((pair) => row.signatures[pair[side]] ?? '');
    return { ...row, signatures, digest: signatures.join('') };
  };
  return {
    now: rows.map((row) => narrowed(row, 0)),
    before: before.map((row) => narrowed(row, 1)),
  };
}

/** Rows as they are known by other columns than their own. */
function inColumns(from: readonly number[], rows: readonly KnownRow[]): KnownRow[] {
  return rows.map((row) => {
    const signatures = from.slice(0, maxCompared).map((of) => row.signatures[of] ?? emptySignature);
    return { ...row, signatures, digest: `~${row.digest}` };
  });
}

/** The rows as they are to be known at the next run, beside the ids they have. */
export function knownRows(
  { rows, key }: Pick<Table, 'rows' | 'key'>,
  { ids }: Pick<Identified, 'ids'>,
): KnownRow[] {
  return rows.map(({ digest, signatures, key: own }, at) => ({
    ...{ id: ids[at]!, digest, signatures },
    ...(key !== undefined && own !== undefined && keyOf(own) !== ids[at] && { key: keyOf(own) }),
  }));
}

/** The ids of rows that are new, or hold something else than before. */
export function changedIds(
  { now, before }: Pick<Table, 'now' | 'before'>,
  { ids, from }: Identified,
): string[] {
  return ids.filter((_, at) => before[from[at]!]?.digest !== now[at]!.digest);
}

/** Which record each row is. */
export function identifyRows(table: Table, settings: SheetSettings): Identified {
  return identify(settings.identity, { before: table.before, now: table.now });
}

export type RowRecord = { id: string; fields: Record<string, CellValue> };

/** The records of a table: a field for each column, null where a cell is empty. */
export function recordsOf(
  { rows, columns }: Pick<Table, 'rows' | 'columns'>,
  { ids, kinds, timeZone }: { ids: readonly string[]; kinds: readonly ColumnKind[]; timeZone: string },
): RowRecord[] {
  const read = cellReader(timeZone);
  const named = columns.filter(({ name }) => name !== '__proto__');
  return rows.map(({ cells }, at) => {
    const fields: Record<string, CellValue> = {};
    for (const { name, index } of named) fields[name] = read(cells[index], kinds[index] ?? 'plain');
    return { id: ids[at]!, fields };
  });
}
