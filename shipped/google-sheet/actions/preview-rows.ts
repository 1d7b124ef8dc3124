import { createAction } from 'trellis';
import { z } from 'zod';
import { columnLetters, readLink } from '../sheet/a1.ts';
import { rightsOf } from '../sheet/api.ts';
import { type ColumnKind, keyTextOf, type RawCell, textOf } from '../sheet/cells.ts';
import { type Column, matchColumns, readColumns } from '../sheet/columns.ts';
import { invalidLink, withActionErrors } from '../sheet/faults.ts';
import { kindsOf, readGrid, sampleFields, sampleRows } from '../sheet/grid.ts';
import { cellValue } from '../sheet/models.ts';
import { readValues } from '../sheet/read.ts';
import { sheetSettings } from '../sheet/settings.ts';
import { isBlank, recordsOf } from '../sheet/table.ts';
import { lookUpTab } from '../sheet/take.ts';

const Output = z.object({
  spreadsheetId: z.string(),
  sheetId: z.int(),
  title: z.string(),
  headerRow: z.int(),
  suggestedHeaderRow: z.int(),
  /** Null if no column identifies all rows. */
  suggestedKeyColumn: z.string().nullable(),
  totalRows: z.int(),
  columns: z.array(
    z.object({
      field: z.string(),
      header: z.string(),
      column: z.string().describe('A, B, ...'),
      type: z.enum(['text', 'number', 'boolean', 'date', 'time', 'datetime', 'mixed', 'empty']),
      filled: z.int(),
      distinct: z.int(),
    }),
  ),
  /** The keys of the requested key column, or of the suggested one. */
  keys: z
    .object({ column: z.string(), empty: z.int(), duplicates: z.int(), examples: z.array(z.string()) })
    .nullable(),
  rows: z.array(z.record(z.string(), cellValue)),
});

export default createAction({
  description: 'The first rows of a tab as the sync would save them, with the types of its columns.',
  version: '1.0.0',
  readOnly: true,
  input: z.object({
    spreadsheet: z.string().min(1).max(2_000).describe('A link, or an ID'),
    sheetId: z.int().min(0).optional().describe("The tab's gid; default: the gid in the link, or 0"),
    headerRow: z.int().min(1).max(1_000_000).optional().describe('Counts from 1; default: detected'),
    keyColumn: z.string().optional().describe('A field name'),
    limit: z.int().min(1).max(100).default(20),
  }),
  output: Output,
  exec: (trellis, { spreadsheet, keyColumn, limit, ...given }) =>
    withActionErrors(trellis, async () => {
      const link = readLink(spreadsheet);
      if (link === undefined) {
        throw invalidLink();
      }
      const { spreadsheetId } = link;
      const sheetId = given.sheetId ?? link.sheetId ?? 0;
      // A read-only action sends no POST, so values are requested by title.
      const rights = { ...(await rightsOf(trellis)), canWrite: false };
      const settings = sheetSettings.parse({ spreadsheetId, sheetId });
      const known = await lookUpTab(trellis, { settings, rights });
      const values = (await readValues(trellis, { settings, rights, ...known })).cells();
      const suggested = suggestHeader(values);
      const headerIndex = given.headerRow === undefined ? suggested : given.headerRow - 1;
      const data = values.slice(headerIndex + 1).filter((row) => !row.every(isBlank));
      const { columns } = matchColumns([], readColumns(values[headerIndex] ?? [], data));
      const sample = await readGrid(trellis, {
        ...{ settings, rights, title: known.title, rows: sampleRows(headerIndex), fields: sampleFields },
      });
      const kinds = kindsOf(sample?.grid, headerIndex);
      const described = columns.map(({ index }) =>
        describeColumn(
          data.map((row) => row[index]),
          kinds[index] ?? 'plain',
        ),
      );
      const suggestedKey = suggestKey(columns, { described, rows: data.length });
      const key = columns.find(({ name }) => name === (keyColumn ?? suggestedKey));
      const shown = data
        .slice(0, limit)
        .map((cells, index) => ({ index, cells, digest: '', whole: '', signatures: [] }));
      const records = recordsOf(
        { columns, rows: shown },
        { ids: shown.map(() => ''), kinds, timeZone: sample?.timeZone ?? 'Etc/GMT' },
      );
      return {
        ...{ spreadsheetId, sheetId, title: known.title },
        ...{ headerRow: headerIndex + 1, suggestedHeaderRow: suggested + 1 },
        suggestedKeyColumn: suggestedKey ?? null,
        totalRows: data.length,
        columns: columns.map(({ name, header, index }, at) => ({
          ...{ field: name, header, column: columnLetters(index) },
          ...described[at]!,
        })),
        keys:
          key === undefined
            ? null
            : keysOf(
                data.map((row) => keyTextOf(row[key.index])),
                key.name,
              ),
        rows: records.map(({ fields }) => fields),
      };
    }),
});

const namedExamples = 5;

function keysOf(keys: readonly string[], column: string) {
  const counts = Map.groupBy(
    keys.filter((key) => key !== ''),
    (key) => key,
  );
  const twice = [...counts].filter(([, all]) => all.length > 1);
  return {
    column,
    empty: keys.filter((key) => key === '').length,
    duplicates: twice.length,
    examples: twice.slice(0, namedExamples).map(([key]) => key),
  };
}

const maxHeaderRows = 20;

/** The row, from 0, that looks like a header: the first row with the most cells, all of them different texts. */
function suggestHeader(values: readonly (readonly RawCell[])[]): number {
  let best = 0;
  let max = 0;
  for (const [index, row] of values.slice(0, maxHeaderRows).entries()) {
    const filled = row.filter((cell) => !isBlank(cell));
    const texts = filled.filter((cell) => typeof cell === 'string');
    const isHeader =
      texts.length === filled.length && new Set(texts.map((cell) => textOf(cell!))).size === texts.length;
    if (isHeader && filled.length > max) [best, max] = [index, filled.length];
  }
  return best;
}

type ColumnType = 'text' | 'number' | 'boolean' | 'date' | 'time' | 'datetime' | 'mixed' | 'empty';

type Described = { type: ColumnType; filled: number; distinct: number };

/** The type of a column, by the values and formats of its cells. */
function describeColumn(cells: readonly RawCell[], kind: ColumnKind): Described {
  const filled = cells.filter((cell) => !isBlank(cell));
  const types = new Set(
    filled.map((cell) => (typeof cell === 'number' && kind !== 'plain' ? kind : typeOf(cell))),
  );
  const [type] = types;
  return {
    type: types.size > 1 ? 'mixed' : (type ?? 'empty'),
    filled: filled.length,
    distinct: new Set(filled.map((cell) => textOf(cell!))).size,
  };
}

function typeOf(cell: RawCell): ColumnType {
  if (typeof cell === 'number') return 'number';
  return typeof cell === 'boolean' ? 'boolean' : 'text';
}

const keyLike = /(^|[\s_-])(id|key|no\.?|nr\.?|number|code|sku|e-?mail|uuid)$|^(id|key|sku|e-?mail)\b/i;

/** The column that looks like a key: each row has a value, all are different, and the header is a usual name of a key. */
function suggestKey(
  columns: readonly Column[],
  { described, rows }: { described: readonly Described[]; rows: number },
): string | undefined {
  const fit = columns.filter((_, at) => {
    const { type, filled, distinct } = described[at]!;
    return rows > 0 && filled === rows && distinct === rows && (type === 'text' || type === 'number');
  });
  const named = fit.find(({ header }) => keyLike.test(header));
  return named?.name;
}
