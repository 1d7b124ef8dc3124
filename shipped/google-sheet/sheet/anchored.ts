/**
 * Writes to rows that other users may move at the same time: metadata is added to each row, and moves with it. The rows are
 * checked and written by this metadata (the anchor).
 */
import { randomInt } from 'node:crypto';
import type { ActionContext } from 'trellis';
import { batchUpdate, type SheetAccess, spreadsheets } from './api.ts';
import type { RawCell } from './cells.ts';
import { fault, sourceFault } from './faults.ts';
import { rendering } from './read.ts';
import { mark } from './row-metadata.ts';
import { type Entering, isOutcomeUnknown, valuesLine, type Writable } from './write.ts';

const anchorKey = 'trellis.at';
/** Metadata IDs are positive 32-bit integers. */
const maxId = 2 ** 31 - 1;

/** Adds an anchor to each row; returns the anchors in order. */
export async function anchorRows(
  trellis: ActionContext,
  { settings, rights, rows }: SheetAccess & { rows: readonly number[] },
): Promise<number[]> {
  const anchors = rows.map(() => randomInt(1, maxId));
  const requests = rows.map((index, at) =>
    mark(settings.sheetId, { index, key: anchorKey, metadataId: anchors[at]! }),
  );
  try {
    await batchUpdate(trellis, { settings, rights, requests });
  } catch (error) {
    if (isOutcomeUnknown(error)) await dropAnchors(trellis, { settings, rights, anchors });
    throw error;
  }
  return anchors;
}

/** Removes anchors. A failure is logged. */
export async function dropAnchors(
  trellis: ActionContext,
  { settings, rights, anchors }: SheetAccess & { anchors: readonly number[] },
): Promise<void> {
  const requests = anchors.map((metadataId) => ({
    deleteDeveloperMetadata: { dataFilter: filterOf(metadataId) },
  }));
  await batchUpdate(trellis, { settings, rights, requests }).catch((error: Error) =>
    trellis.log(`The anchors of the write could not be removed from the rows: ${error.message}`, {
      level: 'warn',
    }),
  );
}

const filterOf = (metadataId: number) => ({ developerMetadataLookup: { metadataId } });

/** The cells of anchored rows, in the order of the anchors; undefined for a deleted row. */
export async function readAnchored(
  trellis: ActionContext,
  { settings, rights, anchors }: SheetAccess & { anchors: readonly number[] },
): Promise<(RawCell[] | undefined)[]> {
  type Found = {
    valueRange: { values?: RawCell[][] };
    dataFilters: { developerMetadataLookup: { metadataId: number } }[];
  };
  const { data } = await trellis
    .post<{ valueRanges?: Found[] }>({
      endpoint: `${spreadsheets}/${settings.spreadsheetId}/values:batchGetByDataFilter`,
      data: {
        dataFilters: anchors.map(filterOf),
        majorDimension: 'ROWS',
        ...rendering,
      },
    })
    .catch((error: unknown) => {
      throw sourceFault(error, rights.account);
    });
  const rows = new Map<number, RawCell[]>();
  for (const { valueRange, dataFilters } of data.valueRanges ?? []) {
    for (const { developerMetadataLookup } of dataFilters) {
      rows.set(developerMetadataLookup.metadataId, valueRange.values?.[0] ?? []);
    }
  }
  return anchors.map((anchor) => rows.get(anchor));
}

export type Line = { anchor: number; line: readonly (Writable | undefined)[] };

/**
 * Writes to anchored rows, all or none. If the outcome is unknown, the rows are read again, and `outcome_unknown` is thrown
 * unless they have the written values.
 */
export async function writeAnchored(
  trellis: ActionContext,
  { settings, rights, lines, entering }: SheetAccess & { lines: readonly Line[]; entering: Entering },
): Promise<void> {
  try {
    await trellis.post({
      endpoint: `${spreadsheets}/${settings.spreadsheetId}/values:batchUpdateByDataFilter`,
      data: {
        valueInputOption: entering,
        data: lines.map(({ anchor, line }) => ({
          dataFilter: filterOf(anchor),
          majorDimension: 'ROWS',
          values: [valuesLine(line)],
        })),
      },
    });
  } catch (error) {
    if (!isOutcomeUnknown(error)) throw sourceFault(error, rights.account);
    const anchors = lines.map(({ anchor }) => anchor);
    const rows = await readAnchored(trellis, { settings, rights, anchors }).catch(() => []);
    const isThere = lines.every(({ line }, at) => rows[at] !== undefined && isWritten(rows[at], line));
    if (isThere && rows.length > 0) return;
    // Google may convert a value that is entered as if typed, so a difference proves nothing.
    const isAbsent = rows.length > 0 && entering === 'RAW';
    throw fault(
      'outcome_unknown',
      'Google returned no response, and the rows do not have the written values. Check the sheet before you try again.',
      { tried: 'update', arrived: isAbsent ? 'not_seen' : 'unknown' },
    );
  }
}

function isWritten(row: readonly RawCell[], line: Line['line']): boolean {
  return line.every((value, at) => value === undefined || (row[at] ?? '') === (value ?? ''));
}
