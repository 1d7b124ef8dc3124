/** A tab as a table: its header, columns and rows, compared with those of the last run. Pure. */
import { type CellValue, type ColumnKind, cellReader, keyTextOf, type RawCell } from './cells.ts';
import { type Column, type ColumnChange, headerOf, matchColumns, readColumns } from './columns.ts';
import { fault } from './faults.ts';
import { digestOf, emptySignature, signatureOf } from './hash.ts';
import { type Identified, identify, type KnownRow, keyOf, type SheetRow } from './identify.ts';
import type { MatchRow } from './match-rows.ts';
import type { SheetSettings } from './settings.ts';
import type { SheetState } from './state.ts';

export type Table = {
  /** The row of the header, from 0. */
  headerIndex: number;
  columns: Column[];
  changes: ColumnChange[];
  key: SheetState['key'];
  /** Rows that are not empty, in order. */
  rows: (SheetRow & { index: number; cells: readonly RawCell[] })[];
  /** The current rows and the previous rows, in the form in which they are compared. */
  now: SheetRow[];
  before: KnownRow[];
  /** The previous rows in the form in which removed rows are stored. */
  gone: KnownRow[];
};

/** The metadata ID of each row by its index. */
export type RowMetadata = ReadonlyMap<number, number>;

/** The comparison of changed rows uses this many columns. */
const maxCompared = 64;
/** The number of rows in which a moved header is searched. */
export const farthestHeader = 50;

/**
 * The table in these values. Throws `key_column_missing` if the key column is not found by its header or its values, and
 * `header_row_missing` if a known row is in the place of the header.
 */
export function readTable(
  values: readonly (readonly RawCell[])[],
  { settings, state, metadata }: { settings: SheetSettings; state: SheetState; metadata?: RowMetadata },
): Table {
  const headerIndex = headerIndexOf(values, { settings, state });
  const header = values[headerIndex] ?? [];
  const data = values.slice(headerIndex + 1);
  // The columns of an emptied sheet are unchanged, also while the formula that fills the sheet still loads.
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

/** The hashes of a row, for comparison with rows of the same columns. */
export function compared(cells: readonly RawCell[], columns: readonly Column[]) {
  const own = columns.map(({ index }) => cells[index] ?? null);
  const digest = digestOf(JSON.stringify(own.map((cell) => (cell === '' ? null : cell))));
  return {
    ...{ digest, whole: digest },
    signatures: own.slice(0, maxCompared).map(signatureOf),
  };
}

/**
 * The row of the header, from 0. If the previous header is not in its place, the first rows are searched for it, since rows may
 * have been inserted above it. The setting wins if it has changed since the last run.
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
    'The header row was removed: a data row is in its place. Restore the header row. No records were deleted.',
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
    `The sheet has no column "${wanted}", which is the key column. Restore it, or choose another key column. ` +
      'No records were deleted.',
    { columns: columns.map(({ name }) => name) },
  );
}

/** After a change of columns, rows are compared by the columns of both runs. */
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

/** Previous rows with the signatures of the current columns. */
function inColumns(from: readonly number[], rows: readonly KnownRow[]): KnownRow[] {
  return rows.map((row) => {
    const signatures = from.slice(0, maxCompared).map((of) => row.signatures[of] ?? emptySignature);
    return { ...row, signatures, digest: `~${row.digest}` };
  });
}

/** The rows to store for the next run. */
export function knownRows(
  { rows, key }: Pick<Table, 'rows' | 'key'>,
  { ids }: Pick<Identified, 'ids'>,
): KnownRow[] {
  return rows.map(({ digest, signatures, key: own }, at) => ({
    ...{ id: ids[at]!, digest, signatures },
    ...(key !== undefined && own !== undefined && keyOf(own) !== ids[at] && { key: keyOf(own) }),
  }));
}

/** The IDs of new and changed rows. */
export function changedIds(
  { now, before }: Pick<Table, 'now' | 'before'>,
  { ids, from }: Identified,
): string[] {
  return ids.filter((_, at) => before[from[at]!]?.digest !== now[at]!.digest);
}

/** The record ID of each row. */
export function identifyRows(table: Table, settings: SheetSettings): Identified {
  return identify(settings.identity, { before: table.before, now: table.now });
}

export type RowRecord = { id: string; fields: Record<string, CellValue> };

/** The records of a table: a field for each column, null for an empty cell. */
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
