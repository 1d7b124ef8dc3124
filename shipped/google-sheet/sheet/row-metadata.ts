/**
 * Developer metadata that marks rows. It moves with its row through sorting, inserting and moving, and is gone with it
 * (developers.google.com/workspace/sheets/api/guides/metadata).
 */

import { type Api, type Rights, spreadsheets } from './api.ts';
import { fault, sourceFault } from './faults.ts';
import type { GridJson } from './grid.ts';
import type { SheetSettings } from './settings.ts';
import type { RowMetadata } from './table.ts';

/** Marks a row as a record. The number that Google gives the mark is the record's id. */
export const recordKey = 'trellis';
/** Characters of keys and values that a tab may have. */
const maxCharacters = 30_000;
const maxRows = Math.floor(maxCharacters / recordKey.length);
const rowsAtOnce = 1_000;

/** The mark of each row by its index; of two on one row the older counts. */
export function rowMetadataOf(grid: GridJson | undefined): RowMetadata {
  const found = new Map<number, number>();
  for (const [at, { developerMetadata = [] }] of (grid?.rowMetadata ?? []).entries()) {
    const ids = developerMetadata.filter(({ metadataKey }) => metadataKey === recordKey);
    if (ids.length === 0) continue;
    found.set((grid?.startRow ?? 0) + at, Math.min(...ids.map(({ metadataId }) => metadataId)));
  }
  return found;
}

/** Marks rows. Throws `too_many_rows` where the tab cannot hold so many marks. */
export async function tagRows(
  trellis: Api,
  of: { settings: SheetSettings; rights: Rights; rows: readonly number[]; tagged: number },
): Promise<void> {
  const { settings, rights, rows } = of;
  if (of.tagged + rows.length > maxRows) {
    throw fault(
      'too_many_rows',
      `The tab has more rows than the ${maxRows} that metadata can mark. Choose a key column or content instead.`,
    );
  }
  for (let from = 0; from < rows.length; from += rowsAtOnce) {
    const requests = rows.slice(from, from + rowsAtOnce).map((index) => mark(settings.sheetId, { index }));
    await trellis
      .post({ endpoint: `${spreadsheets}/${settings.spreadsheetId}:batchUpdate`, data: { requests } })
      .catch((error: unknown) => {
        throw sourceFault(error, rights.account);
      });
  }
}

/** A request that marks one row. */
export function mark(
  sheetId: number,
  { index, key = recordKey, metadataId }: { index: number; key?: string; metadataId?: number },
): object {
  return {
    createDeveloperMetadata: {
      developerMetadata: {
        ...(metadataId !== undefined && { metadataId }),
        metadataKey: key,
        visibility: 'DOCUMENT',
        location: {
          dimensionRange: { sheetId, dimension: 'ROWS', startIndex: index, endIndex: index + 1 },
        },
      },
    },
  };
}
