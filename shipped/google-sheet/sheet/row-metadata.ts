/**
 * Developer metadata that marks rows. It moves with its row when rows are sorted, inserted or moved, and is deleted with it
 * (developers.google.com/workspace/sheets/api/guides/metadata).
 */
import { type Api, batchUpdate, type SheetAccess } from './api.ts';
import { fault } from './faults.ts';
import type { GridJson } from './grid.ts';
import type { RowMetadata } from './table.ts';

/** The metadata key of a row that is a record. The record's ID is the metadata ID that Google assigns. */
export const recordKey = 'trellis';
/** Google's limit for the characters of metadata keys and values in a tab. */
const maxCharacters = 30_000;
const maxRows = Math.floor(maxCharacters / recordKey.length);
const rowsAtOnce = 1_000;

/** The metadata ID of each row by its index; the lower of two IDs on one row. */
export function rowMetadataOf(grid: GridJson | undefined): RowMetadata {
  const found = new Map<number, number>();
  for (const [at, { developerMetadata = [] }] of (grid?.rowMetadata ?? []).entries()) {
    const ids = developerMetadata.filter(({ metadataKey }) => metadataKey === recordKey);
    if (ids.length === 0) continue;
    found.set((grid?.startRow ?? 0) + at, Math.min(...ids.map(({ metadataId }) => metadataId)));
  }
  return found;
}

/** Adds the record metadata to rows. Throws `too_many_rows` above Google's limit for a tab. */
export async function tagRows(
  trellis: Api,
  of: SheetAccess & { rows: readonly number[]; tagged: number },
): Promise<void> {
  const { settings, rights, rows } = of;
  if (of.tagged + rows.length > maxRows) {
    throw fault(
      'too_many_rows',
      `The tab has more than ${maxRows} rows, Google's limit for rows with metadata. Identify rows by a key column or by content.`,
    );
  }
  for (let from = 0; from < rows.length; from += rowsAtOnce) {
    const requests = rows.slice(from, from + rowsAtOnce).map((index) => mark(settings.sheetId, { index }));
    await batchUpdate(trellis, { settings, rights, requests });
  }
}

/** The request that adds metadata to one row. */
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
