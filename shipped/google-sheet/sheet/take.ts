/** A reading of a tab: its values, and the formats and metadata that its records need. */
import type { Api, SheetAccess } from './api.ts';
import { readBook, tabOf } from './book.ts';
import type { ColumnKind, RawCell } from './cells.ts';
import { fault, tabGone } from './faults.ts';
import { cellsOf, type Grid, kindsOf, readGrid, sampleFields, sampleRows, wholeFields } from './grid.ts';
import { readValues, type Values } from './read.ts';
import { rowMetadataOf, tagRows } from './row-metadata.ts';
import type { SheetState } from './state.ts';
import { headerIndexOf, isBlank, type RowMetadata } from './table.ts';

/** Title and size of the tab at the last reading. */
export type KnownTab = { title: string; cellCount: number };

/** The current title and size of the tab, in one request. */
export async function lookUpTab(trellis: Api, { settings, rights }: SheetAccess): Promise<KnownTab> {
  const book = await readBook(trellis, { spreadsheetId: settings.spreadsheetId, rights });
  const tab = tabOf(book, settings.sheetId);
  if (tab.kind !== 'grid')
    throw fault('source_unavailable', `The tab "${tab.title}" has no cells. Choose another tab.`);
  return { title: tab.title, cellCount: tab.rows * tab.columns };
}

export type Taken = {
  cells: RawCell[][];
  digest: string;
  title: string;
  /** The number of cells of the used range, including blank cells. */
  cellCount: number;
  timeZone: string;
  /** The kinds of the columns by index. */
  kinds: ColumnKind[];
  metadata?: RowMetadata;
};

const maxTries = 3;

/** Reads a tab whose rows are identified by metadata: one response with values, formats and metadata of the same moment. */
export async function takeTagged(
  trellis: Api,
  { settings, rights, known, state }: SheetAccess & { known: KnownTab | undefined; state: SheetState },
): Promise<Taken> {
  if (!rights.canWrite) {
    throw fault(
      'missing_scopes',
      'The connection has no write access, which metadata needs. Reconnect the account with it, or identify rows by a key column or by content.',
    );
  }
  let title = known?.title ?? (await lookUpTab(trellis, { settings, rights })).title;
  for (let left = maxTries; left > 0; left--) {
    const read = await readGrid(trellis, { settings, rights, title, rows: undefined, fields: wholeFields });
    if (read === undefined) {
      ({ title } = await lookUpTab(trellis, { settings, rights }));
      continue;
    }
    const cells = cellsOf(read.grid);
    const metadata = rowMetadataOf(read.grid);
    const headerIndex = headerIndexOf(cells, { settings, state });
    const untagged = cells.flatMap((row, index) =>
      index > headerIndex && !row.every(isBlank) && !metadata.has(index) ? [index] : [],
    );
    if (untagged.length === 0) {
      // The digest includes the metadata: a row that lost its metadata is a new row.
      const digest = JSON.stringify([read.timeZone, [...metadata], kindsOf(read.grid, headerIndex), cells]);
      return { cells, metadata, digest, kinds: kindsOf(read.grid, headerIndex), ...placeOf(read, cells) };
    }
    await tagRows(trellis, { settings, rights, rows: untagged, tagged: metadata.size });
  }
  throw fault(
    'sheet_moving',
    'Rows were added while metadata was written. The next run reads the sheet again.',
  );
}

/** Adds formats, time zone and size to values: one request, and two more if the tab was renamed in between. */
export async function takeFormats(
  trellis: Api,
  { settings, rights, values }: SheetAccess & { values: Values },
): Promise<Taken> {
  const rows = sampleRows(settings.headerRow - 1);
  let read = values;
  for (let left = maxTries; left > 0; left--) {
    const grid = await readGrid(trellis, { settings, rights, title: read.title, rows, fields: sampleFields });
    if (grid !== undefined) {
      const kinds = kindsOf(grid.grid, settings.headerRow - 1);
      const cells = read.cells();
      return { cells, digest: read.digest, kinds, ...placeOf(grid, cells) };
    }
    const known = await lookUpTab(trellis, { settings, rights });
    // Without write access the values were requested by title, so they are those of another tab.
    read = rights.canWrite
      ? { ...read, title: known.title }
      : await readValues(trellis, { settings, rights, ...known });
  }
  throw tabGone();
}

function placeOf({ tab, timeZone }: Grid, cells: readonly (readonly RawCell[])[]) {
  const width = cells.reduce((widest, row) => Math.max(widest, row.length), 0);
  return { title: tab.title, cellCount: cells.length * width, timeZone };
}
