/** One look at a tab: its values, and all that it takes to make records of them. */

import type { Api, Rights } from './api.ts';
import { readBook, tabOf } from './book.ts';
import type { ColumnKind, RawCell } from './cells.ts';
import { fault, tabGone } from './faults.ts';
import { cellsOf, type Grid, kindsOf, readGrid, sampleFields, sampleRows, wholeFields } from './grid.ts';
import { readValues, type Values } from './read.ts';
import { rowMetadataOf, tagRows } from './row-metadata.ts';
import type { SheetSettings } from './settings.ts';
import type { SheetState } from './state.ts';
import { headerIndexOf, isBlank, type RowMetadata } from './table.ts';

export type At = { settings: SheetSettings; rights: Rights };
/** What was known of the tab when it was read last. */
export type KnownTab = { title: string; cellCount: number };

/** The tab's name and size now: one request. */
export async function lookUpTab(trellis: Api, { settings, rights }: At): Promise<KnownTab> {
  const book = await readBook(trellis, { spreadsheetId: settings.spreadsheetId, rights });
  const tab = tabOf(book, settings.sheetId);
  if (tab.kind !== 'grid') throw fault('source_unavailable', `The tab "${tab.title}" has no cells.`);
  return { title: tab.title, cellCount: tab.rows * tab.columns };
}

export type Taken = {
  cells: RawCell[][];
  digest: string;
  title: string;
  /** Of those that are used, blank ones between them included. */
  cellCount: number;
  timeZone: string;
  /** Of the columns by index. Asked for once the header's place is known. */
  kinds: ColumnKind[];
  metadata?: RowMetadata;
};

const maxTries = 3;

/** The tab where developer metadata tells its rows apart: values, formats and metadata in one answer, so of one moment. */
export async function takeTagged(
  trellis: Api,
  { settings, rights, known, state }: At & { known: KnownTab | undefined; state: SheetState },
): Promise<Taken> {
  if (!rights.canWrite) {
    throw fault(
      'missing_scopes',
      'Telling rows apart by metadata takes the right to write to the spreadsheet. Choose a key column or content.',
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
      // Ids are part of what is compared: a row that lost its metadata is another row.
      const digest = JSON.stringify([read.timeZone, [...metadata], kindsOf(read.grid, headerIndex), cells]);
      return { cells, metadata, digest, kinds: kindsOf(read.grid, headerIndex), ...placeOf(read, cells) };
    }
    await tagRows(trellis, { settings, rights, rows: untagged, tagged: metadata.size });
  }
  throw fault(
    'sheet_moving',
    'Rows are added faster than they can be marked; the sheet is read again at the next time.',
  );
}

/** Formats, zone and size that go with values that were read: one request, and two more where the tab was renamed meanwhile. */
export async function takeFormats(
  trellis: Api,
  { settings, rights, values }: At & { values: Values },
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
    // Read by a title that was another tab's: those values are not ours.
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
